"""Windows from a saliency curve: every span of the hierarchy is scored, near-duplicates are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vilco_app.answering.curve import Passage
from vilco_app.answering.options import Options


@dataclass(frozen=True)
class Windows:
    """M candidate windows: starts, ends (seconds), scores, and the passage each lies in."""

    starts: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    passage: np.ndarray

    @staticmethod
    def concatenate(parts: list[Windows]) -> Windows:
        if not parts:
            empty = np.empty(0)
            return Windows(empty, empty, empty, np.empty(0, dtype=np.int64))
        return Windows(
            np.concatenate([p.starts for p in parts]),
            np.concatenate([p.ends for p in parts]),
            np.concatenate([p.scores for p in parts]),
            np.concatenate([p.passage for p in parts]),
        )


def score_spans(
    passage: Passage, index: int, spans: np.ndarray, curve: np.ndarray, total: float, options: Options
) -> Windows:
    """spans [M, 2] rows of the passage, curve [n] (mean 0 over all footage) -> scored windows.

    score = mean of the curve inside * seconds ** length_weight where that mean is above the footage's (0). total: seconds
    of all footage searched. Spans shorter than `shortest` or longer than `longest_share` of total are left out unless
    nothing else is there.
    """
    times = passage.times
    edges = np.concatenate([times, [passage.end]])
    edges[0] = passage.start
    starts, ends = edges[spans[:, 0]], np.minimum(edges[spans[:, 1]], passage.end)
    starts = np.maximum(starts, passage.start)
    length = ends - starts
    sums = np.concatenate([[0.0], np.cumsum(curve, dtype=np.float64)])
    mean = (sums[spans[:, 1]] - sums[spans[:, 0]]) / (spans[:, 1] - spans[:, 0])
    fits = (length >= options.shortest) & (length <= max(options.longest_share * total, 2 * options.shortest))
    if not fits.any():
        fits = length > 0
    gain = np.maximum(length, 1e-3) ** options.length_weight
    scores = np.where(mean > 0, mean * gain, mean)
    kept = np.flatnonzero(fits & (length > 0))
    return Windows(starts[kept], ends[kept], scores[kept], np.full(len(kept), index))


def best_windows(windows: Windows, top: int, overlap: float) -> list[int]:
    """Indices of the `top` best windows, best first, none meeting a better one with IoU > overlap (greedy suppression)."""
    left = windows.scores.astype(np.float64).copy()
    chosen: list[int] = []
    while len(chosen) < top and len(left):
        i = int(np.argmax(left))
        if left[i] == -np.inf:
            break
        chosen.append(i)
        same = windows.passage == windows.passage[i]
        inter = np.minimum(windows.ends, windows.ends[i]) - np.maximum(windows.starts, windows.starts[i])
        inter = np.where(same, np.maximum(0.0, inter), 0.0)
        union = (windows.ends - windows.starts) + (windows.ends[i] - windows.starts[i]) - inter
        left[inter > overlap * union] = -np.inf
        left[i] = -np.inf
    return chosen
