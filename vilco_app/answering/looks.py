"""One place per look: the same picture again, elsewhere or later, takes a second place only where it is far better.

What a stretch looks like is the mean of its samples' whole-frame vectors, each block centred on the library's mean and of
unit length (as in the segmentation), so the measure asks nothing of the question. Of windows that look alike the best one
has its place; the others count less, so that something else comes first unless they are far better: what recurs, such as
washing up in one kitchen, is still listed (compare maximal marginal relevance, Carbonell & Goldstein 1998).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vilco_app.answering.curve import Passage
from vilco_app.answering.options import Options
from vilco_app.answering.windows import Windows, covered, overlaps
from vilco_app.encoders.base import Blocks
from vilco_app.encoders.cells import unit


def looks_of(rows: np.ndarray, mean: np.ndarray, blocks: Blocks) -> np.ndarray:
    """rows [n, Dg] of samples -> the look of each [n, Dg], of unit length (zeros where it shows just the mean)."""
    out = np.asarray(rows, dtype=np.float32) - mean
    for s in blocks.slices():
        out[:, s] = unit(out[:, s])
    return unit(out)


def look_of(rows: np.ndarray, mean: np.ndarray, blocks: Blocks) -> np.ndarray:
    """rows [n, Dg] of one stretch -> its look [Dg], of unit length: the mean of its samples' looks."""
    return unit(looks_of(rows, mean, blocks).mean(axis=0))


class Looks:
    """The looks of windows in given passages. mean [Dg]: of the library's whole-frame vectors."""

    def __init__(self, passages: Sequence[Passage], mean: np.ndarray, blocks: Blocks, options: Options) -> None:
        self.passages, self.blocks, self.options = passages, blocks, options
        self.mean = np.asarray(mean, dtype=np.float32)

    def of(self, windows: Windows, i: int) -> np.ndarray:
        p = self.passages[int(windows.passage[i])]
        first, last = np.searchsorted(p.times, [windows.starts[i] - 1e-6, windows.ends[i] - 1e-6])
        first = min(int(first), len(p) - 1)
        rows = p.stored.globals[p.first + first : p.first + max(int(last), first + 1)]
        return look_of(rows, self.mean, self.blocks)

    def near(self, windows: Windows, i: int, j: int) -> bool:
        """Whether two windows are of one recording and one occasion: such are told apart by their edges, not their looks."""
        a, b = self.passages[int(windows.passage[i])], self.passages[int(windows.passage[j])]
        gap = max(windows.starts[i], windows.starts[j]) - min(windows.ends[i], windows.ends[j])
        return a.stored.video.id == b.stored.video.id and float(gap) < self.options.occasion


def distinct_windows(windows: Windows, top: int, looks: Looks) -> list[int]:
    """Indices of the `top` best windows over much footage, best first, seldom two of one look.

    All are ranked by `scores`: how a window stands out of its own surroundings (`apart`) says little between recordings.
    Soft-NMS as in `best_windows`, but by the share of the shorter window: with so much to show, a part of what is chosen
    says nothing new. A window that looks like a chosen one of another occasion counts `repeat` of its score, once for each.
    """
    options = looks.options
    pool = np.argsort(-windows.scores, kind="stable")[: options.look_pool]
    few = Windows(windows.starts[pool], windows.ends[pool], windows.scores[pool], windows.passage[pool])
    left = few.scores.astype(np.float64) - min(0.0, float(few.scores.min(initial=0.0)))  # decay must lower, not raise
    met = np.zeros(len(left), dtype=np.int64)  # places its look had when a window was last compared
    chosen: list[int] = []
    seen: list[np.ndarray] = []
    while len(chosen) < min(top, len(left)):
        i = int(np.argmax(left))
        if left[i] == -np.inf:
            break
        look = looks.of(few, i)
        times = sum(
            not looks.near(few, i, j) and float(look @ s) > options.alike for j, s in zip(chosen, seen, strict=True)
        )
        if times > met[i]:
            same = (overlaps(few, i) > options.overlap) & (met < times)  # the same stretch by other edges
            left[same] *= options.repeat ** (times - met[same])
            met[same] = times
            continue
        chosen.append(i)
        seen.append(look)
        left *= np.exp(-(covered(few, i) ** 2) / options.overlap)
        left[overlaps(few, i) > 0.95] = -np.inf  # the same window under another name
    return [int(pool[i]) for i in chosen]
