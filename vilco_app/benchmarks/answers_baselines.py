"""What an answer must beat: simpler askers over the same stored features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Window = tuple[float, float]


class Baseline(Protocol):
    """Answers text over one recording."""

    def windows(self, text: str) -> list[Window]:
        """At most five windows in seconds, best first."""
        ...

    def score(self, text: str) -> float:
        """How sure it is that the thing is there; larger is surer."""
        ...


class FrameSimilarity:
    """Plain similarity of whole frames with the question as typed. A window is a peak down to half its height above the
    median; the next peak is sought outside. How sure: the highest peak in deviations."""

    def __init__(self, memory: Any, video: Any) -> None:
        self.stored = memory.library.stored(video.id)
        self.profile = memory.profile
        self.times = np.asarray(self.stored.times)
        self.ends = np.minimum(self.times + np.asarray(self.stored.durations), video.duration)
        self.rows = np.asarray(self.stored.globals, dtype=np.float32)

    def curve(self, text: str) -> np.ndarray:
        """[N] similarity: the standardised scores of the profile's blocks added up."""
        scene = self.profile.text(text).scene
        curve = np.zeros(len(self.rows), dtype=np.float32)
        for part, name in zip(self.profile.blocks.slices(), self.profile.blocks.names, strict=True):
            if name == "colour":  # part of what the product adds, not of the plain encoder
                continue
            scores = self.rows[:, part] @ np.asarray(scene[part], dtype=np.float32)
            curve += (scores - scores.mean()) / (scores.std() + 1e-6)
        return curve

    def windows(self, text: str) -> list[Window]:
        left = self.curve(text)
        middle = float(np.median(left))
        out: list[Window] = []
        while len(out) < 5 and np.isfinite(left).any() and left.max() > -np.inf:
            peak = int(np.argmax(left))
            level = middle + 0.5 * (float(left[peak]) - middle)
            first = last = peak
            while first > 0 and left[first - 1] >= level:
                first -= 1
            while last < len(left) - 1 and left[last + 1] >= level:
                last += 1
            out.append((float(self.times[first]), float(self.ends[last])))
            left[first : last + 1] = -np.inf
        return out

    def score(self, text: str) -> float:
        curve = self.curve(text)
        return float((curve.max() - curve.mean()) / (curve.std() + 1e-6))


class ShotBoundaries(FrameSimilarity):
    """Shots ranked by their mean similarity: cuts where neighbouring frames differ by more than three deviations."""

    def shots(self) -> list[tuple[int, int]]:
        unit = self.rows / np.maximum(np.linalg.norm(self.rows, axis=1, keepdims=True), 1e-6)
        change = 1 - (unit[1:] * unit[:-1]).sum(axis=1)
        cuts = np.flatnonzero(change > change.mean() + 3 * change.std()) + 1 if len(change) else np.empty(0, dtype=int)
        edges = [0, *cuts.tolist(), len(self.rows)]
        return list(zip(edges[:-1], edges[1:], strict=True))  # noqa: RUF007

    def ranked(self, text: str) -> list[tuple[float, Window]]:
        curve = self.curve(text)
        found = [(float(curve[a:b].mean()), (float(self.times[a]), float(self.ends[b - 1]))) for a, b in self.shots()]
        return sorted(found, key=lambda f: -f[0])[:5]

    def windows(self, text: str) -> list[Window]:
        return [w for _, w in self.ranked(text)]

    def score(self, text: str) -> float:
        return self.ranked(text)[0][0]


class QueryBlind(ShotBoundaries):
    """The five longest shots, whatever was asked."""

    def ranked(self, text: str) -> list[tuple[float, Window]]:
        spans = [(float(self.times[a]), float(self.ends[b - 1])) for a, b in self.shots()]
        return [(0.0, w) for w in sorted(spans, key=lambda w: w[0] - w[1])[:5]]


BASELINES: dict[str, Callable[[Any, Any], Baseline]] = {
    "frame similarity": FrameSimilarity,
    "shot boundaries": ShotBoundaries,
    "query-blind": QueryBlind,
}
