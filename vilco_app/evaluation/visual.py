"""Metrics of visual queries (Ego4D VQ2D): pure functions over box tracks.

A track here is a sequence of boxes (time, x1, y1, x2, y2) in time order: seconds and fractions of the frame. Two tracks
are compared on one time grid: boxes of the same time, within half a grid step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vilco_app.evaluation.retrieval import average_precision, temporal_iou

TimedBoxes = Sequence[Sequence[float]]
THRESHOLDS = (0.25, 0.5, 0.75, 0.95)


def box_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Intersection over union of two boxes (x1, y1, x2, y2); 0 when both are empty."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    inter = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
    return inter / union if union > 0 else 0.0


def nearest_box(track: TimedBoxes, time: float) -> Sequence[float] | None:
    """The box of the track closest in time, or None for an empty track."""
    return min(track, key=lambda b: abs(b[0] - time), default=None)


def _volume(box: Sequence[float]) -> float:
    return (box[3] - box[1]) * (box[4] - box[2])


def _pairs(predicted: TimedBoxes, truth: TimedBoxes, step: float) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Boxes of the two tracks that stand for the same instant, each predicted box used at most once."""
    taken: dict[int, Sequence[float]] = {round(float(b[0]) / step): b for b in predicted}
    return [(taken[k], g) for g in truth if (k := round(float(g[0]) / step)) in taken]


def span(track: TimedBoxes, step: float) -> tuple[float, float]:
    """Window of a track on a grid of `step` seconds, both ends inclusive (VQ2D counts the last frame)."""
    return float(track[0][0]), float(track[-1][0]) + step


def spatio_temporal_iou(predicted: TimedBoxes, truth: TimedBoxes, step: float) -> float:
    """stIoU: sum over instants of the intersection area / sum of the union area, instants of either track counted."""
    if not predicted or not truth:
        return 0.0
    inter = 0.0
    for p, g in _pairs(predicted, truth, step):
        width = max(0.0, min(p[3], g[3]) - max(p[1], g[1]))
        height = max(0.0, min(p[4], g[4]) - max(p[2], g[2]))
        inter += width * height
    total = sum(_volume(b) for b in predicted) + sum(_volume(b) for b in truth)
    return inter / (total - inter) if total > inter else (1.0 if inter else 0.0)


def temporal_ap(
    predicted: Sequence[TimedBoxes],
    scores: Sequence[float],
    truth: Sequence[TimedBoxes],
    step: float,
    thresholds: Sequence[float] = THRESHOLDS,
) -> dict[str, float]:
    """tAP: one predicted and one true track per query, right when their windows' IoU >= threshold.

    Returns {"tAP": mean over thresholds, "tAP@0.25": ...}. A query with an empty prediction is a miss.
    """
    ious = [
        temporal_iou(span(p, step), span(g, step)) if p and g else 0.0 for p, g in zip(predicted, truth, strict=True)
    ]
    return _ap("tAP", ious, scores, [bool(p) for p in predicted], thresholds)


def spatio_temporal_ap(
    predicted: Sequence[TimedBoxes],
    scores: Sequence[float],
    truth: Sequence[TimedBoxes],
    step: float,
    thresholds: Sequence[float] = THRESHOLDS,
) -> dict[str, float]:
    """stAP: like `temporal_ap` with `spatio_temporal_iou`."""
    ious = [spatio_temporal_iou(p, g, step) for p, g in zip(predicted, truth, strict=True)]
    return _ap("stAP", ious, scores, [bool(p) for p in predicted], thresholds)


def _ap(
    name: str, ious: Sequence[float], scores: Sequence[float], given: Sequence[bool], thresholds: Sequence[float]
) -> dict[str, float]:
    kept = [i for i, ok in enumerate(given) if ok]
    out = {
        f"{name}@{t:g}": average_precision([scores[i] for i in kept], [ious[i] >= t for i in kept], len(ious))
        for t in thresholds
    }
    return {name: float(np.mean(list(out.values()))) if out else float("nan"), **out}


def recovery(predicted: Sequence[TimedBoxes], truth: Sequence[TimedBoxes], step: float, iou: float = 0.5) -> float:
    """Share of all true boxes (pooled over tracks) whose predicted box at that instant has IoU >= iou. nan without truth."""
    found = total = 0
    for p, g in zip(predicted, truth, strict=True):
        total += len(g)
        found += sum(box_iou(a[1:], b[1:]) >= iou for a, b in _pairs(p, g, step))
    return found / total if total else float("nan")


def success(predicted: Sequence[TimedBoxes], truth: Sequence[TimedBoxes], step: float, iou: float = 0.05) -> float:
    """Share of tracks with stIoU >= iou. nan without tracks."""
    hits = [spatio_temporal_iou(p, g, step) >= iou for p, g in zip(predicted, truth, strict=True)]
    return float(np.mean(hits)) if hits else float("nan")
