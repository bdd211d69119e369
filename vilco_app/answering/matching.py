"""Dense matching: where in a frame is the thing in a picture?

Both are turned into maps of cell vectors. The footage's mean cell is subtracted (what every cell has in common says
nothing), cells are brought to unit length, and the picture becomes one vector: the mean of its inner cells at several
sizes, since a thing far away and the same thing close up look different to the encoder. The cosine of that vector with every
cell is a heat map; the box is the window with the largest sum of heat above a threshold between the frame's median and
its maximum, among windows of about the picture's shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from vilco_app.encoders.base import Profile
from vilco_app.encoders.cells import unit
from vilco_app.network.visual_maps import correspondences, standing

if TYPE_CHECKING:
    from vilco_app.answering.curve import Passage

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
    """The best place in one frame. score: what frames are ranked by, on the scale of a cosine; box x1 y1 x2 y2 in fractions; cosine: of the
    best cell, which confidence is calibrated on; None: the score is it."""

    score: float
    box: tuple[float, float, float, float]
    cosine: float | None = None

    @property
    def sure(self) -> float:
        return self.score if self.cosine is None else self.cosine


@dataclass(frozen=True)
class Verdict:
    """What a trained head says of one frame: score on the scale of the cosines; cells [h, w] in [-.5, .5], above 0 where it
    sees the thing."""

    score: float
    cells: np.ndarray


class PictureJudge(Protocol):
    """A trained picture head. maps: correspondence maps [h, w, CHANNELS] of frames (network.visual_maps).

    frames, boxes: how much it counts beside the match, in [0, 1], in which frames show the thing and in where they do.
    """

    frames: float
    boxes: float

    def judge(self, maps: Sequence[np.ndarray]) -> list[Verdict]: ...


@dataclass(frozen=True)
class Picture:
    """What is looked for: direction [C] and parts [n, C], unit vectors less the footage's mean cell; aspect: width / height."""

    direction: np.ndarray
    parts: np.ndarray
    aspect: float
    mean: np.ndarray

    def heat(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """cells [h, w, C] of a frame as encoded -> (unit cells less the mean [h, w, C], their cosine [h, w])."""
        own = unit(unit(cells.astype(np.float32)) - self.mean)
        return own, own @ self.direction

    def maps(self, cells: np.ndarray) -> np.ndarray:
        """cells [h, w, C] of a frame as encoded -> correspondence maps [h, w, CHANNELS], what a trained head reads."""
        return correspondences(*self.heat(cells), self.parts)


def scaled(image: np.ndarray, longer: int) -> np.ndarray:
    """image [H, W, 3] uint8 -> its longer side = `longer` pixels, aspect kept."""
    from PIL import Image

    height, width = image.shape[:2]
    scale = longer / max(height, width)
    size = (max(16, round(width * scale)), max(16, round(height * scale)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC))


def picture_cells(profile: Profile, image: np.ndarray) -> list[np.ndarray]:
    """The picture's inner cells [n, C] (not centred) at each of SIDES."""
    out = []
    for side in SIDES:
        cells = profile.dense(scaled(image, side)[None])[0]  # [h, w, C]
        top, left = cells.shape[0] // 4, cells.shape[1] // 4  # the rim of a crop is mostly background
        out.append(cells[top : cells.shape[0] - top, left : cells.shape[1] - left].reshape(-1, cells.shape[-1]))
    return out


def picture_of(cells: Sequence[np.ndarray], aspect: float, mean: np.ndarray) -> Picture:
    """cells: `picture_cells`; aspect: width / height of the picture in pixels; mean [C]: `mean_cell` of the footage.

    Parts are those of all sizes but the smallest, whose cells see most of the picture at once.
    """
    direction = unit(np.mean([unit(unit(c.mean(axis=0)) - mean) for c in cells], axis=0))
    fine = np.concatenate(list(cells[1:] or cells)).astype(np.float32)
    return Picture(direction, unit(unit(fine) - mean), aspect, mean)


def match(maps: np.ndarray, picture: Sequence[np.ndarray], aspect: float, mean: np.ndarray) -> list[Match]:
    """maps [B, h, w, C] of whole frames -> the best place in each. picture: `picture_cells`; aspect, mean: as `picture_of`."""
    asked = picture_of(picture, aspect, mean)
    return [matched(asked.heat(cells)[1], aspect) for cells in maps]


def matched(
    heat: np.ndarray, aspect: float, verdict: Verdict | None = None, frames: float = 0.0, boxes: float = 0.0
) -> Match:
    """heat [h, w] of a frame -> its best place; with a verdict (1 - w) x zero-shot + w x trained, in the score with w = frames
    and, cell by cell, in what the box is drawn by with w = boxes. Both 0: the zero-shot match as it is."""
    cosine = float(heat.max())
    if verdict is None:
        return Match(cosine, best_box(heat, aspect))
    evidence = (1 - boxes) * standing(heat) + boxes * verdict.cells
    box = densest(evidence, aspect) if boxes > 0 else best_box(heat, aspect)
    return Match((1 - frames) * cosine + frames * verdict.score, box, cosine)


def mean_cell(maps: np.ndarray) -> np.ndarray:
    """maps [B, h, w, C] -> the mean of their unit cells [C]."""
    return unit(maps.astype(np.float32)).mean(axis=(0, 1, 2))


def best_box(heat: np.ndarray, aspect: float) -> tuple[float, float, float, float]:
    """heat [h, w], cells as wide as high -> x1 y1 x2 y2 fractions of the window with the largest sum above threshold."""
    middle = float(np.median(heat))
    return densest(heat - (middle + LEVEL * (float(heat.max()) - middle)), aspect)


def densest(evidence: np.ndarray, aspect: float) -> tuple[float, float, float, float]:
    """evidence [h, w], below 0 where the thing is not -> x1 y1 x2 y2 of the window of about this shape with the largest sum."""
    height, width = evidence.shape
    table = np.zeros((height + 1, width + 1))  # integral image
    table[1:, 1:] = evidence.cumsum(axis=0).cumsum(axis=1)
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


@dataclass
class Sight:
    """What was looked at for one picture: it does not depend on who judges it, so that several may (`PictureFinder.found`).

    first: (passage, row) of the frames decoded to begin with, maps: dense maps [h, w, C] of all frames decoded so far (none:
    the files are gone); picture: what is looked for, None with no maps.
    """

    passages: Sequence[Passage]
    curves: tuple[np.ndarray, ...]
    direction: np.ndarray
    first: list[tuple[int, int]]
    maps: dict[tuple[int, int], np.ndarray]
    picture: Picture | None = None
    heats: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    verdicts: dict[tuple[int, int], Verdict] = field(default_factory=dict)

    def matches(self, keys: Sequence[tuple[int, int]], judge: PictureJudge | None) -> dict[tuple[int, int], Match]:
        """The best place in each of the frames as weighed with the judge's. Verdicts are kept: one judge per sight."""
        assert self.picture is not None
        for k in keys:
            if k not in self.heats:
                self.heats[k] = self.picture.heat(self.maps[k])[1]
        if judge is None or max(judge.frames, judge.boxes) <= 0:
            return {k: matched(self.heats[k], self.picture.aspect) for k in keys}
        new = [k for k in keys if k not in self.verdicts]
        found = judge.judge([self.picture.maps(self.maps[k]) for k in new]) if new else []
        self.verdicts.update(zip(new, found, strict=True))
        aspect = self.picture.aspect
        return {k: matched(self.heats[k], aspect, self.verdicts.get(k), judge.frames, judge.boxes) for k in keys}
