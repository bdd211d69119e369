"""What the library hands to those who answer: stored features of a recording, search hits, score statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vilco_app.values import Correction, Video, VilcoError


@dataclass(frozen=True)
class Stored:
    """The committed features of one recording in one profile, memory-mapped; N samples in time order.

    times, durations [N] float64 seconds. globals [N, Dg] float16.
    Regions are stored once per near-still span: group [N] int64 says which group a sample shows; group g owns the rows
    offsets[g]:offsets[g + 1] of region_codes [M, Dr] int8 with region_scales [M] float32 (vector = code * scale) and
    region_boxes [M, 4] uint8 (fraction = value / 255).
    forgotten: spans (start, end) in seconds a person had removed; no sample lies in them, no answer may touch them.
    """

    video: Video
    times: np.ndarray
    durations: np.ndarray
    globals: np.ndarray
    group: np.ndarray
    offsets: np.ndarray
    region_codes: np.ndarray
    region_scales: np.ndarray
    region_boxes: np.ndarray
    forgotten: tuple[tuple[float, float], ...] = ()

    def __len__(self) -> int:
        return len(self.times)

    def regions(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Region vectors of rows first:last (region rows, not samples), dequantised, float32 [m, Dr]."""
        codes = np.asarray(self.region_codes[first:last], dtype=np.float32)
        return codes * np.asarray(self.region_scales[first:last], dtype=np.float32)[:, None]

    def region_scores(self, vectors: np.ndarray) -> np.ndarray:
        """Largest inner product of any region of each sample with each of vectors [Q, Dr] -> [Q, N] float32.

        Samples without regions get -inf. Works in slabs, so memory stays flat in video length.
        """
        vectors = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
        groups = len(self.offsets) - 1
        best = np.full((len(vectors), groups), -np.inf, dtype=np.float32)
        slab = 4096  # groups per slab: about 32 k region rows, 32 MB as float32 at 256 dimensions
        for g0 in range(0, groups, slab):
            g1 = min(groups, g0 + slab)
            first, last = int(self.offsets[g0]), int(self.offsets[g1])
            if first == last:
                continue
            scores = vectors @ self.regions(first, last).T  # [Q, last - first]
            starts = np.asarray(self.offsets[g0:g1]) - first
            full = np.flatnonzero(np.diff(self.offsets[g0 : g1 + 1]) > 0)  # reduceat mistakes empty groups
            best[:, g0 + full] = np.maximum.reduceat(scores, starts[full], axis=1)
        return best[:, np.asarray(self.group)]


def no_numbers(video: Video) -> VilcoError:
    """The error for stored features of a recording that are no finite numbers."""
    return VilcoError(
        "damaged-features", f"{video.path}: some of its stored features are no numbers.",
        f"Make them anew with: vilco remove {video.id} and vilco add {video.path}",
    )  # fmt: skip


@dataclass(frozen=True)
class Hits:
    """K nearest stored vectors of one query vector, best first: video ids, sample rows, times (s), scores, boxes.

    boxes [K, 4] float32 fractions for region hits, None for global hits.
    """

    videos: tuple[str, ...]
    rows: np.ndarray
    times: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray | None = None


@dataclass(frozen=True)
class Statistics:
    """Mean [D] and covariance [D, D] of n stored vectors: the score x @ q of a question q has mean q @ mean and variance
    q @ cov @ q over the library, without looking at a single vector."""

    n: int
    mean: np.ndarray
    cov: np.ndarray


class LibraryView(Protocol):
    """The reading side of the library (vilco_app.library.Library implements it)."""

    def videos(self) -> list[Video]: ...

    def stored(self, video: str) -> Stored:
        """Features of the recording with this id. A recording with nothing committed yet has N = 0."""
        ...

    def search_globals(self, vectors: np.ndarray, top: int, videos: Sequence[str] | None = None) -> list[Hits]:
        """Nearest stored global vectors (inner product) of each row of vectors [Q, Dg], in the given videos or all."""
        ...

    def search_regions(self, vectors: np.ndarray, top: int, videos: Sequence[str] | None = None) -> list[Hits]: ...

    def statistics(self, kind: str) -> Statistics:
        """kind: "globals" or "regions"."""
        ...

    def corrections(self, key: str, videos: Iterable[str]) -> list[Correction]: ...
