"""Encoder protocols and the profile: the named set of encoders in use.

A *profile* turns frames into what the library stores and questions into what is compared with it. Vectors of one profile
are never compared with another's; indexes, prompt keys, buffers and snapshots carry `Profile.id`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from vilco_app.values import Concept

MAX_REGIONS = 8  # region vectors kept per sample: enough for the objects of one view, 1 kB after compression


@dataclass(frozen=True)
class Features:
    """What one batch of B samples is stored as.

    globals [B, Dg] float32: whole-frame vectors. regions [M, Dr] float32: region vectors of all samples, in order.
    boxes [M, 4] float32: x1 y1 x2 y2 of each region in fractions of the displayed frame.
    counts [B] int64: regions per sample (0 <= counts <= MAX_REGIONS, sum = M).
    """

    globals: np.ndarray
    regions: np.ndarray
    boxes: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class TextVectors:
    """A question in a profile's terms.

    sentence [Dt] and tokens [L, Dt]: the text encoder's own vectors (what the ViLCo network reads).
    scene [Dg] and thing [Dr]: directions in the space of `Features.globals` / `.regions`; the inner product with a stored
    vector says how well it fits. None in profiles that are not aligned. concepts: what the question was mapped to.
    understood: False when the encoder knows not one word of the question.
    """

    sentence: np.ndarray
    tokens: np.ndarray
    scene: np.ndarray | None = None
    thing: np.ndarray | None = None
    concepts: tuple[Concept, ...] = ()
    understood: bool = True


@dataclass(frozen=True)
class ImageVectors:
    """A picture in a profile's terms: whole [Dg] as one frame, regions [K, Dr] unit vectors of it (row 0: all of it)."""

    whole: np.ndarray
    regions: np.ndarray


@dataclass(frozen=True)
class Blocks:
    """How `Features.globals` is laid out: named slices whose inner products with a question are different scores.

    A profile with one score has one block. The grounder standardises each block's scores over the footage before it adds
    them with the given weights, so that two scores of different scale can be joined.
    evidence: the block whose height tells whether what was asked for is there at all; "": confidence judges by the joined
    score alone.
    """

    names: tuple[str, ...]
    stops: tuple[int, ...]
    weights: tuple[float, ...]
    evidence: str = ""

    def slices(self) -> list[slice]:
        starts = (0, *self.stops[:-1])
        return [slice(a, b) for a, b in zip(starts, self.stops, strict=True)]


@runtime_checkable
class VideoEncoder(Protocol):
    """clips [B, T, H, W, 3] uint8 -> [B, Dg]. T frames per clip, one clip every `stride` s, covering `window` s."""

    name: str
    version: str
    preprocess: str
    dim: int
    frames: int
    window: float

    def clips(self, clips: np.ndarray) -> np.ndarray: ...


@runtime_checkable
class RegionEncoder(Protocol):
    """frames [B, H, W, 3] uint8 -> region vectors and dense maps."""

    name: str
    version: str
    preprocess: str
    dim: int

    def regions(self, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """-> (vectors [M, Dr], boxes [M, 4], counts [B])."""
        ...

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """-> maps [B, h, w, C], cell (i, j) covers the i-th of h rows and j-th of w columns of the frame."""
        ...


@runtime_checkable
class TextEncoder(Protocol):
    """sentences -> sentence vectors [N, Dt] (unit length) and token vectors [L_n, Dt]."""

    name: str
    version: str
    preprocess: str
    dim: int

    def sentences(self, texts: Sequence[str]) -> np.ndarray: ...

    def tokens(self, text: str) -> np.ndarray: ...


class Profile(Protocol):
    """The encoders in use, joined. Every method is thread-safe.

    id: "name@version", changes whenever stored vectors would. short_side: pixels the frames must come in at (shorter
    displayed side). aligned: text and video are comparable without training, so zero-shot answers exist.
    window: seconds of video one sample covers (0 for image encoders). blocks: layout of `Features.globals`.
    """

    id: str
    aligned: bool
    short_side: int
    global_dim: int
    region_dim: int
    text_dim: int
    window: float
    blocks: Blocks

    def encode(self, frames: np.ndarray) -> Features:
        """frames [B, H, W, 3] uint8, shorter side = short_side -> Features."""
        ...

    def text(self, text: str) -> TextVectors: ...

    def image(self, image: np.ndarray) -> ImageVectors:
        """image [H, W, 3] uint8 of any size."""
        ...

    def dense(self, frames: np.ndarray) -> np.ndarray:
        """frames [B, H, W, 3] uint8 of any size -> float32 maps [B, h, w, C] for dense matching."""
        ...


@dataclass(frozen=True)
class ProfileStatus:
    """Whether a profile can be used on this machine now, and if not, what the person can do about it."""

    name: str
    ready: bool
    reason: str = ""
    remedy: str = ""
    options: dict[str, str] = field(default_factory=dict)
