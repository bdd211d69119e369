"""From stage examples and stored features to the network's samples. Nothing is decoded and no encoder sees a frame here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.answering.options import DEFAULTS
from vilco_app.answering.questions import Questions
from vilco_app.network.grid import Grid, grid_of, shown

if TYPE_CHECKING:
    import torch

    from vilco_app.encoders.base import Blocks, TextVectors
    from vilco_app.library.types import Stored
    from vilco_app.network.batch import ClipSample
    from vilco_app.network.config import NetworkConfig
    from vilco_app.stages import Example

CHUNK = 512  # cells of a training stretch: 4 minutes hold enough of what is not the moment; a step costs half of 1024


@dataclass
class Clip:
    """One recording on the feature grid. rows [T]: sample shown by each cell; valid [T] bool; stored: its features.

    mean [Dg] and covariance per block of the valid rows: the scale of any question's curve, without a pass over the video.
    """

    stored: Stored
    grid: Grid
    rows: np.ndarray
    valid: np.ndarray
    mean: np.ndarray
    covariance: list[np.ndarray]

    def features(self, first: int, last: int) -> torch.Tensor:
        """Cells first:last as float16 [n, Dg]; invalid cells are zero."""
        import torch

        x = np.asarray(self.stored.globals)[self.rows[first:last]].astype(np.float16)
        x[~self.valid[first:last]] = 0
        return torch.from_numpy(x)

    def priors(self, query: TextVectors, blocks: Blocks, first: int, last: int) -> np.ndarray:
        """Zero-shot score curves [n, K] of a question over cells first:last, standardised by the whole recording.

        Zeros in a profile that is not aligned.
        """
        slices = blocks.slices()
        out = np.zeros((last - first, len(slices)), dtype=np.float32)
        if query.scene is None:
            return out
        scene = np.asarray(query.scene, dtype=np.float32)
        x = np.asarray(self.stored.globals)[self.rows[first:last]].astype(np.float32)
        for k, (s, cov) in enumerate(zip(slices, self.covariance, strict=True)):
            q = scene[s]
            deviation = float(np.sqrt(max(q @ cov @ q, 0.0))) + 1e-6
            out[:, k] = (x[:, s] @ q - float(q @ self.mean[s])) / deviation
        out[~self.valid[first:last]] = 0.0
        return np.clip(out, -8.0, 8.0)


def clip_of(stored: Stored, blocks: Blocks, stride: float) -> Clip:
    """Lay a recording's features on the grid. Forgotten spans and holes are invalid cells."""
    times = np.asarray(stored.times, dtype=np.float64)
    durations = np.asarray(stored.durations, dtype=np.float64)
    length = stored.video.duration or (float(times[-1] + durations[-1]) if len(times) else stride)
    grid = grid_of(length, stride)
    rows, valid = shown(times, durations, grid)
    centres = grid.centres()
    for a, b in stored.forgotten:
        valid &= ~((centres >= a) & (centres <= b))
    x = (
        np.asarray(stored.globals)[rows[valid]].astype(np.float32)
        if valid.any()
        else np.zeros((1, blocks.stops[-1]), np.float32)
    )
    mean = x.mean(axis=0)
    covariance = [((x[:, s] - mean[s]).T @ (x[:, s] - mean[s])) / len(x) for s in blocks.slices()]
    return Clip(stored, grid, rows, valid, mean, covariance)


class Sampler:
    """Makes samples; keeps each recording's clip and stretches, so that its examples share tensors."""

    def __init__(self, library: Any, profile: Any, config: NetworkConfig) -> None:
        self.library, self.profile, self.config = library, profile, config
        self._clips: dict[str, Clip] = {}
        self._stretches: dict[tuple[str, int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._questions = Questions(
            profile, DEFAULTS
        )  # as answers encode them: the curves are those met at answer time

    def clip(self, video: str) -> Clip:
        if video not in self._clips:
            self._clips[video] = clip_of(self.library.stored(video), self.profile.blocks, self.config.stride)
        return self._clips[video]

    def text(self, words: str) -> TextVectors:
        return self._questions(words.replace("_", " "))

    def sample(
        self, example: Example, family: str, video: str, task: int, also: Sequence[tuple[float, float]]
    ) -> ClipSample:
        """One nlq/mq example on `video` (id). also: windows other examples give for the same question."""
        import torch

        from vilco_app.network.batch import ClipSample

        clip = self.clip(video)
        windows = sorted({*example.windows, *also})
        cells = clip.grid.cells(np.asarray(windows, dtype=np.float64).reshape(-1, 2)).clip(0, clip.grid.length)
        first, last = self._stretch(clip, cells)
        features, valid = self._tensors(video, clip, first, last)
        vectors = self.text(example.text)
        priors = torch.from_numpy(clip.priors(vectors, self.profile.blocks, first, last))
        inside = [
            (max(s, first) - first, min(e, last) - first) for s, e in cells.tolist() if min(e, last) > max(s, first)
        ]
        start = float(clip.grid.seconds(first))
        return ClipSample(
            id=f"{task}:{example.id}",
            features={
                "video": features, "valid": valid, "priors": priors,
                "sentence": torch.as_tensor(np.asarray(vectors.sentence, dtype=np.float32)),
                "tokens": torch.as_tensor(np.asarray(vectors.tokens, dtype=np.float32)),
            },
            targets={"windows": torch.tensor(inside, dtype=torch.float32).reshape(-1, 2)},
            task=task,
            group=str(example.source.get("template") or example.extra.get("template") or (example.category or f"stage {task}")),
            meta={"family": family, "text": example.text, "stride": clip.grid.stride, "start": start, "video": video},
            spans=((video, start, float(clip.grid.seconds(last))),),
        )  # fmt: skip

    def _stretch(self, clip: Clip, cells: np.ndarray) -> tuple[int, int]:
        """The stretch an example is trained on: all of it, or the aligned chunk its (first) moment is most central in."""
        total = clip.grid.length
        if total <= CHUNK:
            return 0, total
        middle = float(cells.mean()) if len(cells) else total / 2
        hop = CHUNK // 2
        first = int(np.clip(round((middle - CHUNK / 2) / hop) * hop, 0, total - CHUNK))
        return first, first + CHUNK

    def _tensors(self, video: str, clip: Clip, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        key = (video, first, last)
        if key not in self._stretches:
            valid = torch.from_numpy(clip.valid[first:last].copy())
            self._stretches[key] = (clip.features(first, last), valid)
        return self._stretches[key]
