"""Dense matching: where in a frame is the thing in a picture?

Both are turned into maps of cell vectors. The footage's mean cell is subtracted (what every cell has in common says
nothing), cells are brought to unit length, and the picture becomes one vector: the mean of its inner cells at several
sizes, since a thing far away and the same thing close up look different to the encoder. The cosine of that vector with every
cell is a heat map; the box is the window with the largest sum of heat above a threshold between the frame's median and
its maximum, among windows of about the picture's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vilco_app.encoders.base import Profile

SIDES = (
    96,
    160,
    256,
)  # pixels of the picture's longer side; one size alone: right frame first in .76 to .81, together 1.00
LEVEL = (
    0.5  # threshold between median and maximum; lower ones swallow the surroundings (IoU >= .25: .67 at .3, .76 at .5)
)
SHAPES = (0.5, 0.71, 1.0, 1.41, 2.0)  # a thing seen from elsewhere is up to twice as wide or high


@dataclass(frozen=True)
class Match:
    """The best place in one frame: score = cosine of the best cell in [-1, 1]; box x1 y1 x2 y2 in fractions."""

    score: float
    box: tuple[float, float, float, float]


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def scaled(image: np.ndarray, longer: int) -> np.ndarray:
    """image [H, W, 3] uint8 -> its longer side = `longer` pixels, aspect kept."""
    from PIL import Image

    height, width = image.shape[:2]
    scale = longer / max(height, width)
    size = (max(16, round(width * scale)), max(16, round(height * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def picture_cells(profile: Profile, image: np.ndarray) -> list[np.ndarray]:
    """The picture's mean inner cell [C] (not centred) at each of SIDES."""
    out = []
    for side in SIDES:
        cells = profile.dense(scaled(image, side)[None])[0]  # [h, w, C]
        top, left = cells.shape[0] // 4, cells.shape[1] // 4  # the rim of a crop is mostly background
        out.append(cells[top : cells.shape[0] - top, left : cells.shape[1] - left].mean(axis=(0, 1)))
    return out


def match(maps: np.ndarray, picture: Sequence[np.ndarray], aspect: float, mean: np.ndarray) -> list[Match]:
    """maps [B, h, w, C] of whole frames -> the best place in each. aspect: width / height of the picture in pixels of
    the frame's own aspect; mean [C]: the footage's mean unit cell (`mean_cell`)."""
    direction = unit(np.mean([unit(unit(p) - mean) for p in picture], axis=0))
    out = []
    for cells in maps:
        heat = unit(unit(cells.astype(np.float32)) - mean) @ direction  # [h, w]
        out.append(Match(float(heat.max()), best_box(heat, aspect)))
    return out


def mean_cell(maps: np.ndarray) -> np.ndarray:
    """maps [B, h, w, C] -> the mean of their unit cells [C]."""
    return unit(maps.astype(np.float32)).mean(axis=(0, 1, 2))


def best_box(heat: np.ndarray, aspect: float) -> tuple[float, float, float, float]:
    """heat [h, w], cells as wide as high -> x1 y1 x2 y2 fractions of the window with the largest sum above threshold."""
    height, width = heat.shape
    middle = float(np.median(heat))
    excess = heat - (middle + LEVEL * (float(heat.max()) - middle))
    table = np.zeros((height + 1, width + 1))  # integral image
    table[1:, 1:] = excess.cumsum(axis=0).cumsum(axis=1)
    best, found = -np.inf, (0, 0, width, height)
    for rows in range(1, height + 1):
        for cols in sorted({int(np.clip(round(rows * aspect * s), 1, width)) for s in SHAPES}):
            sums = table[rows:, cols:] - table[:-rows, cols:] - table[rows:, :-cols] + table[:-rows, :-cols]
            i = int(np.argmax(sums))
            if sums.flat[i] > best:
                y, x = divmod(i, sums.shape[1])
                best, found = float(sums.flat[i]), (x, y, x + cols, y + rows)
    x1, y1, x2, y2 = found
    return x1 / width, y1 / height, x2 / width, y2 / height
