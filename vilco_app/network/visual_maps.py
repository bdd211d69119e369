"""What the picture head reads: correspondence maps of a frame with the picture asked with, made the same way at import and
at answer time, from whole cell vectors. numpy only.

Channels (CHANNELS of them; each about 0 where nothing is known and about 1 apart between the thing and what is not it):
0 stand: heat between the frame's median (-.5) and its maximum (.5); 1 heat: the cosine itself, from even odds; 2 part: the
best of the picture's cells, as 0; 3 alike: likeness to the frame's own best place, as 0; 4 wide: channel 0 over 3 x 3
cells; 5 far: distance to the best place in frame heights; 6 best: the cosine of channel 2, from where it is usual.
"""

from __future__ import annotations

import numpy as np

CHANNELS = 7
STAND, HEAT, PART, ALIKE, WIDE, FAR, BEST = range(CHANNELS)
EVEN = 0.47  # cosine of even odds (answering.calibrate.picture_confidence)
USUAL = 0.6  # of the best single cell of the picture: one of many is always nearer than their mean
STRETCH = 4.0  # cosines differ by a quarter where the other channels differ by one


def correspondences(cells: np.ndarray, heat: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """cells [h, w, C] and parts [n, C]: unit vectors of a frame and of the picture, both less the footage's mean cell; heat
    [h, w]: the zero-shot match of the frame -> [h, w, CHANNELS] float32."""
    h, w, _ = cells.shape
    y, x = divmod(int(np.argmax(heat)), w)
    stand = standing(heat)
    around = (slice(max(0, y - 1), y + 2), slice(max(0, x - 1), x + 2))
    near = np.maximum(stand[around], 0.0).reshape(-1) @ cells[around].reshape(-1, cells.shape[-1])
    alike = cells @ (near / max(float(np.linalg.norm(near)), 1e-6))
    part = (cells @ parts.T).max(axis=-1)
    rows, columns = np.mgrid[:h, :w]
    far = np.hypot(rows - y, columns - x) / h
    out = [
        stand,
        STRETCH * (heat - EVEN),
        standing(part),
        standing(alike),
        smoothed(stand),
        far,
        STRETCH * (part - USUAL),
    ]
    return np.stack(out, axis=-1).astype(np.float32)


def standing(heat: np.ndarray) -> np.ndarray:
    """heat [h, w] brought to -.5 at its median and .5 at its maximum; -2 at least, where nothing stands out."""
    middle = float(np.median(heat))
    found: np.ndarray = np.maximum((heat - middle) / max(float(heat.max()) - middle, 1e-3) - 0.5, -2.0)
    return found


def smoothed(heat: np.ndarray) -> np.ndarray:
    """Means over 3 x 3 cells [h, w], the rim repeated outside."""
    h, w = heat.shape
    wide = np.pad(heat, 1, mode="edge")
    found: np.ndarray = np.mean([wide[i : i + h, j : j + w] for i in range(3) for j in range(3)], axis=0)
    return found
