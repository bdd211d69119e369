"""Grounders turn a question and footage into curves and windows; answers may fuse two of them.

The zero-shot grounder works on the similarity curve. The ViLCo network is the other grounder: it plugs in here with the
same protocol, and a weight per query family (0: not used) decides how much it counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np

from vilco_app.answering.calibrate import Reached
from vilco_app.answering.curve import Passage, Scale, join, passage_scores, scale_of, smooth
from vilco_app.answering.options import Options
from vilco_app.answering.segments import hierarchy
from vilco_app.answering.windows import Windows, score_spans
from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.values import Kind, Source


@dataclass(frozen=True)
class Grounded:
    """One curve [n] per passage (standardised: 0 = the footage's mean, 1 = one deviation) and the candidate windows.

    height: how far the profile's evidence block rises at its peak, not standardised (see `peak_height`); None without one.
    """

    curves: tuple[np.ndarray, ...]
    windows: Windows
    source: Source
    height: float | None = None

    def reached(self) -> Reached | None:
        """What confidence is judged by; None without a window."""
        return Reached(float(self.windows.scores.max()), self.height) if len(self.windows.scores) else None


class Grounder(Protocol):
    """What answers a question over given footage. scale: statistics of the whole library, or None (use the passages')."""

    source: Source

    def propose(
        self, query: TextVectors, kind: Kind, passages: Sequence[Passage], scale: Scale | None = None
    ) -> Grounded: ...


class ZeroShotGrounder:
    """Windows from the similarity curve alone: no training, aligned profiles only."""

    source: Source = "zero-shot"

    def __init__(self, blocks: Blocks, options: Options) -> None:
        self.blocks, self.options = blocks, options
        self._spans: OrderedDict[tuple[str, int, int, int], np.ndarray] = OrderedDict()
        self._lock = Lock()

    def spans(self, passage: Passage) -> np.ndarray:
        """The hierarchy of a passage's features [M, 2]; it does not depend on the question and is kept."""
        key = (passage.stored.video.id, len(passage.stored), passage.first, passage.last)
        with self._lock:
            if key in self._spans:
                self._spans.move_to_end(key)
                return self._spans[key]
        rows = np.asarray(passage.stored.globals[passage.first : passage.last], dtype=np.float32)
        parts = []
        for s in self.blocks.slices():  # each block counts alike, whatever its norm
            centred = rows[:, s] - rows[:, s].mean(axis=0)
            parts.append(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6))
        spans = hierarchy(np.concatenate(parts, axis=1))
        with self._lock:
            self._spans[key] = spans
            while len(self._spans) > self.options.cached_segmentations:
                self._spans.popitem(last=False)
        return spans

    def propose(
        self, query: TextVectors, kind: Kind, passages: Sequence[Passage], scale: Scale | None = None
    ) -> Grounded:
        scores = [passage_scores(p, query, self.blocks) for p in passages]
        weights = (*self.blocks.weights, self.options.region_weight)
        if scale is None:
            scale = scale_of(scores)
            raw = [join(s, scale, weights) for s in scores]
            spread = float(np.concatenate(raw).std()) + 1e-6
        else:  # standardised rows, taken as independent
            raw = [join(s, scale, weights) for s in scores]
            spread = (
                float(np.sqrt(sum(w * w for w, d in zip(weights, scale.deviation, strict=True) if d > 1e-5))) + 1e-6
            )
        curves = tuple(
            smooth(c / spread, p.times, self.options.smooth).astype(np.float32)
            for c, p in zip(raw, passages, strict=True)
        )
        total = sum(p.end - p.start for p in passages)
        contrast = self.options.moment_contrast if kind == "moment" else self.options.text_contrast
        windows = [
            score_spans(p, i, self.spans(p), c, total, self.options, contrast)
            for i, (p, c) in enumerate(zip(passages, curves, strict=True))
        ]
        return Grounded(curves, Windows.concatenate(windows), self.source, self._height(query, scores, passages, scale))

    def _height(
        self, query: TextVectors, scores: Sequence[np.ndarray], passages: Sequence[Passage], scale: Scale
    ) -> float | None:
        if self.blocks.evidence not in self.blocks.names or query.scene is None:
            return None
        row = self.blocks.names.index(self.blocks.evidence)
        asked = query.scene[self.blocks.slices()[row]]
        parts = [smooth(s[row], p.times, self.options.smooth) for s, p in zip(scores, passages, strict=True)]
        return peak_height(parts, float(np.linalg.norm(asked)), float(scale.mean[row]), float(scale.deviation[row]))


def peak_height(scores: Sequence[np.ndarray], length: float, mean: float, deviation: float) -> float:
    """(highest score - one deviation above the mean) / length of the question's vector: in the units of stored vectors.

    The standardised curve of any question reaches about as high somewhere, also of one that means nothing here; in these
    units what is not there stays low. 0 for a question without a direction.
    """
    if length < 1e-6 or not scores:
        return 0.0
    return (max(float(s.max()) for s in scores) - mean - deviation) / length


def fuse(zero_shot: Grounded, network: Grounded | None, weight: float) -> Grounded:
    """(1 - weight) x zero-shot + weight x network, over the same passages. weight 0 or no network: zero-shot as it is.

    Windows of both are candidates. Each grounder votes for every candidate: the best of its own windows there, score times
    IoU, its scores brought to [0, 1] (from its median to its best window), so that no scale has to be compared.
    """
    if network is None or weight <= 0:
        return zero_shot
    if weight >= 1 or not len(zero_shot.windows.scores):
        return network
    if not len(network.windows.scores):
        return zero_shot
    curves = tuple((1 - weight) * a + weight * b for a, b in zip(zero_shot.curves, network.curves, strict=True))
    both = Windows.concatenate([zero_shot.windows, network.windows])
    scores = (1 - weight) * votes(both, zero_shot.windows) + weight * votes(both, network.windows)
    return Grounded(curves, Windows(both.starts, both.ends, scores, both.passage), "fused")


def votes(candidates: Windows, own: Windows, strongest: int = 100) -> np.ndarray:
    """[M] in [0, 1]: how much the grounder that proposed `own` thinks of each candidate, by its `strongest` windows."""
    order = np.argsort(-own.scores, kind="stable")[:strongest]
    low, high = float(np.median(own.scores)), float(own.scores.max())
    worth = np.clip((own.scores[order] - low) / (high - low), 0.0, 1.0) if high > low else np.ones(len(order))
    starts, ends = own.starts[order], own.ends[order]
    inter = np.minimum(candidates.ends[:, None], ends) - np.maximum(candidates.starts[:, None], starts)
    inter = np.where(candidates.passage[:, None] == own.passage[order], np.maximum(inter, 0.0), 0.0)
    union = (candidates.ends - candidates.starts)[:, None] + (ends - starts) - inter
    found: np.ndarray = (worth * inter / np.maximum(union, 1e-9)).max(axis=1)
    return found
