"""From seconds to feature cells and back: the one place where this equation stands.

Cell i of a grid covers the seconds [start + i * stride, start + (i + 1) * stride). With u measured in cells from the left
edge of cell 0,

    seconds = start + u * stride          u = (seconds - start) / stride

Cell i of pyramid level l covers u in [i * 2^l, (i + 1) * 2^l); its *point* is the middle, u = (i + 0.5) * 2^l. Windows are
pairs of edges, so a window [s, e] in cells is exact for any s, e: no half-cell term appears anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Grid:
    """`length` cells of `stride` seconds each from `start` (seconds of the recording)."""

    start: float
    stride: float
    length: int

    def cells(self, seconds: np.ndarray | float) -> np.ndarray:
        """Seconds -> cells (float, unclipped)."""
        return (np.asarray(seconds, dtype=np.float64) - self.start) / self.stride

    def seconds(self, cells: np.ndarray | float) -> np.ndarray:
        """Cells (float) -> seconds, the inverse of `cells`."""
        return self.start + np.asarray(cells, dtype=np.float64) * self.stride

    def centres(self) -> np.ndarray:
        """Middle of every cell in seconds [length]."""
        return self.seconds(np.arange(self.length) + 0.5)

    def crop(self, first: int, last: int) -> Grid:
        """The grid of cells first:last."""
        return Grid(float(self.seconds(first)), self.stride, last - first)


def grid_of(duration: float, stride: float) -> Grid:
    """The grid that covers a recording of `duration` seconds (at least one cell)."""
    return Grid(0.0, stride, max(1, int(np.ceil(round(duration / stride, 6)))))


def shown(times: np.ndarray, durations: np.ndarray, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Which sample each cell shows -> (rows [length] int64, valid [length] bool).

    The sample displayed at the middle of the cell: robust to PTS that jitter around the cell's edges. A cell is valid when
    that sample stands for it: no more than one and a half of its duration (or of the stride) ago.
    """
    centres = grid.centres()
    if len(times) == 0:
        return np.zeros(grid.length, dtype=np.int64), np.zeros(grid.length, dtype=bool)
    times = np.asarray(times, dtype=np.float64)
    rows = np.clip(np.searchsorted(times, centres, side="right") - 1, 0, len(times) - 1)
    age = centres - times[rows]
    reach = 1.5 * np.maximum(np.asarray(durations, dtype=np.float64)[rows], grid.stride)
    return rows.astype(np.int64), (age < reach) & (age > -grid.stride)


def points(length: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a pyramid over `length` cells (a multiple of 2^(levels-1)) -> (u [P], scale [P]), level after level.

    u: the point in cells; scale: cells of its level (2^l). P = length * (2 - 2^(1-levels)).
    """
    u, scale = [], []
    for level in range(levels):
        step = 2**level
        u.append((np.arange(length // step) + 0.5) * step)
        scale.append(np.full(length // step, float(step)))
    return np.concatenate(u), np.concatenate(scale)
