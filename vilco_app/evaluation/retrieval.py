"""Retrieval metrics over windows and scores: pure functions, no I/O.

A window is (start, end) in seconds. Definitions follow the Ego4D episodic-memory and ActivityNet practice; where the two
differ the docstring says which one holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Window = tuple[float, float]


def temporal_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two windows in seconds; 0 when both are empty or they do not meet."""
    inter = max(0.0, min(a[1], b[1]) - max(a[0], b[0]))
    union = (a[1] - a[0]) + (b[1] - b[0]) - inter
    return inter / union if union > 0 else 0.0


def hit_at(predicted: Sequence[Sequence[float]], truth: Sequence[Sequence[float]], k: int, iou: float) -> bool:
    """Whether any of the first k predicted windows meets any true window with temporal IoU >= iou."""
    return any(temporal_iou(p, g) >= iou for p in predicted[:k] for g in truth)


def recall_at(
    predicted: Sequence[Sequence[Sequence[float]]], truth: Sequence[Sequence[Sequence[float]]], k: int, iou: float
) -> float:
    """R@k at IoU: the share of queries with a hit (`hit_at`). nan for no query. Raises ValueError on unequal lengths."""
    hits = [hit_at(p, g, k, iou) for p, g in zip(predicted, truth, strict=True)]
    return float(np.mean(hits)) if hits else float("nan")


def recall_at_kx(
    predicted: Sequence[Sequence[float]], truth: Sequence[Sequence[float]], k: int, iou: float
) -> list[bool]:
    """Ego4D moment queries' R@kx: per true window, whether the first k * len(truth) predictions meet it (IoU >= iou)."""
    first = predicted[: k * len(truth)]
    return [any(temporal_iou(p, g) >= iou for p in first) for g in truth]


def average_precision(scores: Sequence[float], correct: Sequence[bool], positives: int) -> float:
    """Area under the interpolated precision-recall curve (ActivityNet's, all points).

    scores, correct: one per prediction, a true window may be matched once only (see `match_windows`).
    positives: number of true windows. nan when positives = 0.
    """
    if positives == 0:
        return float("nan")
    order = np.argsort(-np.asarray(scores, dtype=float), kind="stable")
    true = np.asarray(correct, dtype=float)[order]
    if len(true) == 0:
        return 0.0
    hits = np.cumsum(true)
    precision = hits / np.arange(1, len(true) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]  # interpolated: best precision at this recall or beyond
    recall = hits / positives
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def match_windows(
    predicted: Sequence[Sequence[float]], scores: Sequence[float], truth: Sequence[Sequence[float]], iou: float
) -> list[bool]:
    """Greedy matching, best score first: each prediction takes the free true window it meets best, if IoU >= iou.

    Returns one flag per prediction, in the order given.
    """
    flags = [False] * len(predicted)
    free = set(range(len(truth)))
    for i in np.argsort(-np.asarray(scores, dtype=float), kind="stable"):
        best = max(free, key=lambda g: temporal_iou(predicted[i], truth[g]), default=None)
        if best is not None and temporal_iou(predicted[i], truth[best]) >= iou:
            free.discard(best)
            flags[i] = True
    return flags


def auroc(present: Sequence[float], absent: Sequence[float]) -> float:
    """Probability that a score of `present` exceeds one of `absent` (ties count half). nan when either is empty."""
    p, q = np.asarray(present, dtype=float), np.asarray(absent, dtype=float)
    if len(p) == 0 or len(q) == 0:
        return float("nan")
    more = (p[:, None] > q[None]).mean()
    same = (p[:, None] == q[None]).mean()
    return float(more + 0.5 * same)


@dataclass(frozen=True)
class Interval:
    """A mean with the bounds of its percentile bootstrap interval."""

    mean: float
    low: float
    high: float

    def to_json(self) -> list[float]:
        return [round(self.mean, 4), round(self.low, 4), round(self.high, 4)]


def bootstrap(values: Sequence[float], draws: int = 2000, level: float = 0.95, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of the mean of values (one per query), resampling queries. nan for no value."""
    x = np.asarray(values, dtype=float)
    if len(x) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(seed)
    means = x[rng.integers(0, len(x), size=(draws, len(x)))].mean(axis=1)
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(x.mean()), float(low), float(high))


def paired_bootstrap(
    ours: Sequence[float], theirs: Sequence[float], draws: int = 2000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Interval of mean(ours - theirs) where both hold one value per query in the same order (queries resampled in pairs).

    Raises ValueError on unequal lengths.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"paired values of different length: {len(ours)} and {len(theirs)}")
    return bootstrap(np.asarray(ours, dtype=float) - np.asarray(theirs, dtype=float), draws, level, seed)  # type: ignore[arg-type]


def auroc_bootstrap(
    present: Sequence[float], absent: Sequence[float], draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of `auroc`, resampling the two groups separately."""
    if not len(present) or not len(absent):
        return Interval(float("nan"), float("nan"), float("nan"))
    p, q = np.asarray(present, dtype=float), np.asarray(absent, dtype=float)
    rng = np.random.default_rng(seed)
    drawn = [auroc(rng.choice(p, len(p)).tolist(), rng.choice(q, len(q)).tolist()) for _ in range(draws)]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(auroc(present, absent), float(low), float(high))
