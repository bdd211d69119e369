"""Examples as tensors (`ClipSample`) and how a step's examples are laid out (`Collated`), one video side for all its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from vilco_app.continual.protocols import Sample
from vilco_app.network.losses import assign
from vilco_app.network.pyramid import level_lengths

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig

LEAST_CELLS = 128  # a kept clip is at least this long (64 s): something that is not the moment must be in it
CONTEXT = 2.0  # moment lengths kept to either side of it
MOST_CELLS = 384  # and no longer than this: 0.5 MB at 640 dimensions


@dataclass(frozen=True)
class ClipSample(Sample):
    """A text or category example on a stretch of one video.

    features: video [T, Dv], valid [T] bool, priors [T, K], sentence [Dt], tokens [S, Dt]. targets: windows [n, 2] in cells
    of the stretch. meta: family, text, stride (s), start (s of the stretch's first cell), video. Samples of one video share
    the video tensor, so a step runs the video side once for all of them. What a buffer keeps is `compact`: the moment with
    twice its length around it.
    """

    def trim(self) -> Sample:
        return self if self.stored else self.around()  # stored outputs line up with the stretch they were made on

    def compact(self) -> Sample:
        return Sample.compact(self.trim())

    def around(self, least: int = LEAST_CELLS, most: int = MOST_CELLS) -> ClipSample:
        """The stretch cut to event + context, at least `least` and at most `most` cells."""
        total = self.features["video"].shape[0]
        windows = self.targets["windows"]
        if len(windows):
            start, end = float(windows.min()), float(windows.max())
        else:  # a negative: the cells the zero-shot score finds most alike are the ones to remember
            top = int(self.features["priors"].float().mean(-1).argmax()) if self.features["priors"].numel() else 0
            start = end = float(top)
        size = int(min(max((end - start) * (1 + 2 * CONTEXT), least), max(most, end - start), total))
        first = int(min(max(round((start + end) / 2 - size / 2), 0), total - size))
        return self.crop(first, first + size)

    def crop(self, first: int, last: int) -> ClipSample:
        """Cells first:last; windows that leave the stretch by more than half are dropped."""
        windows = self.targets["windows"]
        if len(windows):
            inside = windows.clamp(first, last)
            keep = (inside[:, 1] - inside[:, 0]) >= 0.5 * (windows[:, 1] - windows[:, 0])
            windows = inside[keep] - first
        stride = float(self.meta["stride"])
        start = float(self.meta["start"]) + first * stride
        video = str(self.meta["video"])
        return replace(
            self,
            features={
                **self.features,
                **{k: self.features[k][first:last].clone() for k in ("video", "valid", "priors")},
            },
            targets={**self.targets, "windows": windows},
            meta={**self.meta, "start": start},
            spans=((video, start, start + (last - first) * stride),),
        )


@dataclass
class Bucket:
    """Clips of one padded length. features [V, T, Dv], valid [V, T]; rows: the samples on them, which: their clip."""

    features: torch.Tensor
    valid: torch.Tensor
    rows: list[int]
    which: torch.Tensor


@dataclass
class Collated:
    """B samples as tensors. Levels lie one after the other along P, each padded to the longest clip's.

    sentence [B, Dt], tokens [B, S, Dt], token_mask [B, S], priors (per bucket, [b, T, K]), positive [B, P] bool,
    distance [B, P, 2], mask [B, P], nlq / mq [B] bool, category [B] (index into the learner's categories, -1).
    """

    buckets: list[Bucket]
    priors: list[torch.Tensor]
    sentence: torch.Tensor
    tokens: torch.Tensor
    token_mask: torch.Tensor
    positive: torch.Tensor
    distance: torch.Tensor
    mask: torch.Tensor
    nlq: torch.Tensor
    mq: torch.Tensor
    category: torch.Tensor
    cells: int


def pad_tokens(tokens: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token matrices [S_i, Dt] -> (padded [B, S, Dt], mask [B, S])."""
    longest = max(1, max(len(t) for t in tokens))
    out = torch.stack([F.pad(t.float(), (0, 0, 0, longest - len(t))) for t in tokens])
    sizes = torch.tensor([max(1, len(t)) for t in tokens])
    return out, torch.arange(longest)[None] < sizes[:, None]


def padded(length: int, multiple: int) -> int:
    """Cells a clip is padded to: a multiple of `multiple`, coarser for long clips so that few lengths occur."""
    step = multiple if length <= 8 * multiple else 4 * multiple
    return -(-length // step) * step


def collate(
    samples: Sequence[Sample], config: NetworkConfig, categories: dict[str, int], device: torch.device
) -> Collated:
    """Lay out nlq/mq samples for one step. Clips that are the same tensor are taken once."""
    clips: dict[tuple[int, int], tuple[Sample, list[int]]] = {}
    for row, s in enumerate(samples):
        video = s.features["video"]
        key = (video.data_ptr(), video.shape[0])
        clips.setdefault(key, (s, []))[1].append(row)
    sizes: dict[int, list[tuple[Sample, list[int]]]] = {}
    for s, rows in clips.values():
        sizes.setdefault(padded(s.features["video"].shape[0], config.multiple), []).append((s, rows))
    cells = max(sizes)
    buckets, priors = [], []
    for length in sorted(sizes):
        members = sizes[length]
        rows = [r for _, owned in members for r in owned]
        which = torch.tensor([k for k, (_, owned) in enumerate(members) for _ in owned])
        features = torch.stack([_lengthen(s.features["video"].float(), length) for s, _ in members])
        valid = torch.stack([_lengthen(s.features["valid"].bool()[:, None], length)[:, 0] for s, _ in members])
        buckets.append(Bucket(features.to(device), valid.to(device), rows, which.to(device)))
        curves = torch.stack([_lengthen(samples[r].features["priors"].float(), length) for r in rows])
        priors.append(curves.to(device))
    from vilco_app.network.grid import points

    positive, distance, mask = [], [], []
    for s in samples:
        n = padded(s.features["video"].shape[0], config.multiple)
        u, scale = (torch.as_tensor(a, dtype=torch.float32) for a in points(n, config.levels))
        hit, reach = assign(s.targets["windows"].float(), u, scale, config.ranges())
        positive.append(spread(hit[:, None], n, cells, config.levels)[:, 0])
        distance.append(spread(reach, n, cells, config.levels))
        valid = _lengthen(s.features["valid"].bool()[:, None], n)[:, 0]
        seen = torch.cat([valid.reshape(-1, 2**level).any(1) for level in range(config.levels)])
        mask.append(spread(seen[:, None], n, cells, config.levels)[:, 0])
    tokens, token_mask = pad_tokens([s.features["tokens"] for s in samples])
    family = [s.meta["family"] for s in samples]
    keep = torch.stack(mask)
    return Collated(
        buckets, priors, torch.stack([s.features["sentence"].float() for s in samples]).to(device), tokens.to(device),
        token_mask.to(device), (torch.stack(positive) & keep).to(device), torch.stack(distance).to(device),
        keep.to(device), torch.tensor([f == "nlq" for f in family], device=device),
        torch.tensor([f == "mq" for f in family], device=device),
        torch.tensor([categories.get(str(s.meta["text"]), -1) for s in samples], device=device), cells,
    )  # fmt: skip


def _lengthen(x: torch.Tensor, length: int) -> torch.Tensor:
    return F.pad(x, (0, 0, 0, length - x.shape[0]))


def spread(x: torch.Tensor, length: int, cells: int, levels: int) -> torch.Tensor:
    """Levels over `length` cells laid one after the other [..., P(length), n] -> the same, each padded to `cells`."""
    if length == cells:
        return x
    parts = x.split(level_lengths(length, levels), dim=-2)
    wide = level_lengths(cells, levels)
    return torch.cat([F.pad(p, (0, 0, 0, w - p.shape[-2])) for p, w in zip(parts, wide, strict=True)], dim=-2)
