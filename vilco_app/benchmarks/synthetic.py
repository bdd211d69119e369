"""Synthetic moments for continual learning: class prototypes in long noisy feature sequences, in stages of new classes.

What makes it hard is on purpose and adjustable: events are weak against noise, look-alike events of no class are in every
clip, and what a class looks like has nothing to do with how it is called, so that words must be learnt and can be forgotten.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional as F

from vilco_app.network.batch import ClipSample


@dataclass(frozen=True)
class SyntheticSettings:
    """The generator's settings, published with every result. The defaults are the middle of the sweep over `noise`."""

    stages: int = 5  # as ViLCo-Bench MQ
    classes: int = 4  # per stage
    train: int = 100  # training queries per stage
    held: int = 40  # held-out queries per stage
    cells: int = 128  # length of a clip
    video_dim: int = 48
    text_dim: int = 32
    noise: float = 0.6  # deviation of every feature channel, against prototypes of norm `signal`
    signal: float = 4.0
    shortest: int = 6  # cells of an event
    longest: int = 24
    distractors: int = 2  # events per clip of prototypes that belong to no class
    others: int = 2  # events per clip of other classes of the same stage
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class SyntheticStage:
    """Samples of one stage: train and held-out parts, each a list of ClipSample."""

    name: str
    train: list[ClipSample]
    held: list[ClipSample]


def synthetic_stages(settings: SyntheticSettings) -> list[SyntheticStage]:
    """All stages, the same for the same settings. Queries of stage k ask only for its own classes."""
    rng = torch.Generator().manual_seed(settings.seed * 7919 + 17)
    total = settings.stages * settings.classes
    looks = F.normalize(torch.randn(total, settings.video_dim, generator=rng), dim=-1) * settings.signal
    noise_looks = F.normalize(torch.randn(total, settings.video_dim, generator=rng), dim=-1) * settings.signal
    words = F.normalize(torch.randn(total, settings.text_dim, generator=rng), dim=-1)
    out = []
    for stage in range(settings.stages):
        own = list(range(stage * settings.classes, (stage + 1) * settings.classes))
        parts = []
        for part, count in (("train", settings.train), ("held", settings.held)):
            parts.append(
                [
                    _sample(
                        settings, f"{part}{stage}-{i}", own[i % len(own)], own, looks, noise_looks, words, stage, rng
                    )
                    for i in range(count)
                ]
            )
        out.append(SyntheticStage(f"stage {stage + 1}", parts[0], parts[1]))
    return out


def _sample(
    s: SyntheticSettings, name: str, label: int, own: list[int], looks: torch.Tensor, noise_looks: torch.Tensor,
    words: torch.Tensor, stage: int, rng: torch.Generator,
) -> ClipSample:  # fmt: skip
    video = torch.randn(s.cells, s.video_dim, generator=rng) * s.noise
    free = torch.ones(s.cells, dtype=torch.bool)
    window = _place(s, video, looks[label], free, rng)
    assert window is not None
    for _ in range(s.others):
        other = own[int(torch.randint(len(own), (1,), generator=rng))]
        if other != label:
            _place(s, video, looks[other], free, rng)
    for _ in range(s.distractors):
        _place(s, video, noise_looks[int(torch.randint(len(noise_looks), (1,), generator=rng))], free, rng)
    text = f"class {label}"
    return ClipSample(
        id=name,
        features={
            "video": video, "valid": torch.ones(s.cells, dtype=torch.bool), "priors": torch.zeros(s.cells, 0),
            "sentence": words[label], "tokens": words[label][None],
        },
        targets={"windows": torch.tensor([window], dtype=torch.float32)},
        task=stage,
        group=text,
        meta={"family": "mq", "text": text, "stride": 0.5, "start": 0.0, "video": name},
        spans=((name, 0.0, s.cells * 0.5),),
    )  # fmt: skip


def _place(
    s: SyntheticSettings, video: torch.Tensor, look: torch.Tensor, free: torch.Tensor, rng: torch.Generator
) -> tuple[float, float] | None:
    """Add an event where the clip is still free -> its window in cells, or None after ten tries."""
    for _ in range(10):
        length = int(torch.randint(s.shortest, s.longest + 1, (1,), generator=rng))
        start = int(torch.randint(s.cells - length, (1,), generator=rng))
        if bool(free[start : start + length].all()):
            video[start : start + length] += look
            free[start : start + length] = False
            return float(start), float(start + length)
    return None
