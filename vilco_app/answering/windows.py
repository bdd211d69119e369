"""Windows from a saliency curve: every span of the hierarchy is scored, near-duplicates are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vilco_app.answering.curve import Passage
from vilco_app.answering.options import Options


@dataclass(frozen=True)
class Windows:
    """M candidate windows: starts, ends (seconds), scores, and the passage each lies in.

    apart [M] or None (then `scores`): how far a window stands out of its surroundings, which ranks all but the first.
    """

    starts: np.ndarray
    ends: np.ndarray
    scores: np.ndarray
    passage: np.ndarray
    apart: np.ndarray | None = None

    def ranks_rest(self) -> np.ndarray:
        return self.scores if self.apart is None else self.apart

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
            np.concatenate([p.ranks_rest() for p in parts]),
        )


def score_spans(
    passage: Passage,
    index: int,
    spans: np.ndarray,
    curve: np.ndarray,
    total: float,
    options: Options,
    contrast: float = 0.0,
) -> Windows:
    """spans [M, 2] rows of the passage, curve [n] (mean 0 over all footage) -> scored windows.

    score = (mean inside - contrast * mean around) * seconds ** length_weight, where "around" is half the window's length
    on each side; `apart` is the same with the options' stronger contrast. Negative means are not multiplied. total:
    seconds of all footage searched. Spans shorter than `shortest` or longer than `longest_share` of total are left out
    unless nothing else is there.
    """
    edges = np.concatenate([passage.times, [passage.end]])
    edges[0] = passage.start
    first, last = spans[:, 0], spans[:, 1]
    starts, ends = np.maximum(edges[first], passage.start), np.minimum(edges[last], passage.end)
    length = ends - starts
    sums = np.concatenate([[0.0], np.cumsum(curve, dtype=np.float64)])
    inside = (sums[last] - sums[first]) / (last - first)
    reach = np.maximum(2, (last - first) // 2)
    left, right = np.maximum(0, first - reach), np.minimum(len(curve), last + reach)
    around = (sums[first] - sums[left] + sums[right] - sums[last]) / np.maximum(first - left + right - last, 1)
    fits = (length >= options.shortest) & (length <= max(options.longest_share * total, 2 * options.shortest))
    if not fits.any():
        fits = length > 0
    kept = np.flatnonzero(fits & (length > 0))

    def weighed(share: float, power: float) -> np.ndarray:
        height = (inside - share * around)[kept]
        return np.where(height > 0, height * np.maximum(length[kept], 1e-3) ** power, height)

    return Windows(
        starts[kept],
        ends[kept],
        weighed(contrast, options.length_weight),
        np.full(len(kept), index),
        weighed(options.rest_contrast, options.rest_length_weight),
    )


def best_windows(windows: Windows, top: int, overlap: float) -> list[int]:
    """Indices of the `top` best windows, best first.

    The first is the highest score. For the others Gaussian soft-NMS (Bodla et al. 2017) on `apart`: whenever one is
    chosen, every other's rank score falls by exp(-IoU^2 / overlap), so repeats of what is said already come late.
    """
    left = windows.ranks_rest().astype(np.float64).copy()
    left = np.where(left > 0, left, 1e-3 * left - 1.0)  # below zero decay would raise them; keep them behind, in order
    chosen: list[int] = []
    while len(chosen) < min(top, len(left)):
        i = int(np.argmax(windows.scores)) if not chosen else int(np.argmax(left))
        chosen.append(i)
        left = decay(left, windows, i, overlap)
    return chosen


def _shared(windows: Windows, i: int) -> np.ndarray:
    """Seconds [M] that every window shares with window i."""
    inter = np.minimum(windows.ends, windows.ends[i]) - np.maximum(windows.starts, windows.starts[i])
    shared: np.ndarray = np.where(windows.passage == windows.passage[i], np.maximum(0.0, inter), 0.0)
    return shared


def covered(windows: Windows, i: int) -> np.ndarray:
    """[M]: seconds shared with window i / seconds of the shorter of the two; 1 where one lies in the other."""
    length = windows.ends - windows.starts
    share: np.ndarray = _shared(windows, i) / np.maximum(np.minimum(length, length[i]), 1e-9)
    return share


def overlaps(windows: Windows, i: int) -> np.ndarray:
    """IoU [M] of every window with window i; 0 in other passages."""
    inter = _shared(windows, i)
    union = (windows.ends - windows.starts) + (windows.ends[i] - windows.starts[i]) - inter
    iou: np.ndarray = inter / np.maximum(union, 1e-9)
    return iou


def decay(left: np.ndarray, windows: Windows, i: int, overlap: float) -> np.ndarray:
    """Rank scores [M] after window i was chosen: those of its passage fall with their overlap, its own to -inf."""
    iou = overlaps(windows, i)
    out = np.where(left > 0, left * np.exp(-(iou**2) / overlap), left - iou)
    out[iou > 0.95] -= 1e6  # the same window under another name
    out[i] = -np.inf
    return out
