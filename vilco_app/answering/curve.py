"""From stored vectors and a question to one saliency value per sample.

A profile may have several scores per sample (its blocks, and the best region); each is standardised over all footage that
is searched, so that scores of different scale add up and a question's curve is comparable between recordings.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.library.types import Statistics, Stored, no_numbers


@dataclass(frozen=True)
class Passage:
    """Samples first:last of a recording that are searched together: no hole and no forgotten span inside.

    start, end: the seconds they cover; no window leaves them.
    """

    stored: Stored
    first: int
    last: int
    start: float
    end: float

    @property
    def times(self) -> np.ndarray:
        return np.asarray(self.stored.times[self.first : self.last])

    def __len__(self) -> int:
        return self.last - self.first


HOLE = 1.0  # seconds without a sample after one ended: footage that could not be read or was removed


def passages_of(stored: Stored, before: float | None = None) -> list[Passage]:
    """All searchable stretches of a recording, split at forgotten spans and holes. before: footage after it is not there."""
    if len(stored) == 0:
        return []
    times = np.asarray(stored.times)
    ends = times + np.asarray(stored.durations)
    duration = stored.video.duration if stored.video.duration > 0 else float(ends[-1])
    if before is not None:
        duration = min(duration, before)
        count = int(np.searchsorted(times, before - 1e-6))
        times, ends = times[:count], ends[:count]
    if len(times) == 0:
        return []
    cut = times[1:] - ends[:-1] > HOLE
    for a, b in stored.forgotten:
        cut |= (times[:-1] < b) & (times[1:] > a)
    out = []
    for first, last in itertools.pairwise([0, *(np.flatnonzero(cut) + 1).tolist(), len(times)]):
        start, end = float(times[first]), min(float(ends[last - 1]), duration)
        for a, b in stored.forgotten:  # the last sample's duration may reach into what was removed
            if start < b and end > a:
                end = min(end, max(a, start))
        if end > start:
            out.append(Passage(stored, first, last, start, end))
    return out


def passage_scores(passage: Passage, query: TextVectors, blocks: Blocks) -> np.ndarray:
    """-> [B + 1, n] float32: inner products of every sample with the question, one row per block, last the best region.

    A row is 0 throughout where the question says nothing about it (a colour block without a colour word, no regions).
    Raises VilcoError "damaged-features" for stored features that are no numbers.
    """
    assert query.scene is not None
    rows = np.asarray(passage.stored.globals[passage.first : passage.last], dtype=np.float32)
    scores = [rows[:, s] @ np.asarray(query.scene[s], dtype=np.float32) for s in blocks.slices()]
    table = np.stack([*scores, region_scores(passage, query.thing)])
    if not np.isfinite(table).all():
        raise no_numbers(passage.stored.video)
    return table


def region_scores(passage: Passage, thing: np.ndarray | None) -> np.ndarray:
    """The largest inner product of any region of each sample with `thing` [Dr] -> [n] float32 (0 without regions)."""
    if thing is None:
        return np.zeros(len(passage), dtype=np.float32)
    stored = passage.stored
    group = np.asarray(stored.group[passage.first : passage.last])
    low, high = int(group.min()), int(group.max()) + 1
    offsets = np.asarray(stored.offsets[low : high + 1])
    best = np.full(high - low, np.nan, dtype=np.float32)
    if offsets[-1] > offsets[0]:
        products = stored.regions(int(offsets[0]), int(offsets[-1])) @ np.asarray(thing, dtype=np.float32)
        full = np.flatnonzero(np.diff(offsets) > 0)  # reduceat mistakes empty groups
        best[full] = np.maximum.reduceat(products, offsets[full] - offsets[0])
    best = np.where(np.isnan(best), np.nanmin(best) if np.isfinite(best).any() else 0.0, best)
    return best[group - low].astype(np.float32)


@dataclass(frozen=True)
class Scale:
    """Mean and deviation [B] of each block's scores over the footage searched."""

    mean: np.ndarray
    deviation: np.ndarray


def scale_of(scores: Sequence[np.ndarray]) -> Scale:
    joined = np.concatenate(list(scores), axis=1)
    return Scale(joined.mean(axis=1), joined.std(axis=1))


def library_scale(query: TextVectors, blocks: Blocks, frames: Statistics, regions: Statistics) -> Scale:
    """The scale over a whole library without reading it: an inner product x @ q has mean q @ mean, variance q @ cov @ q.

    The best of about eight regions lies 1.42 deviations above their mean and varies 0.61 as much (normal order statistics).
    """
    assert query.scene is not None
    means, deviations = [], []
    for s in blocks.slices():
        q = np.asarray(query.scene[s], dtype=np.float64)
        means.append(float(q @ frames.mean[s]))
        deviations.append(float(np.sqrt(max(0.0, q @ frames.cov[s, s] @ q))))
    thing = np.asarray(query.thing, dtype=np.float64) if query.thing is not None else np.zeros(len(regions.mean))
    deviation = float(np.sqrt(max(0.0, thing @ regions.cov @ thing)))
    means.append(float(thing @ regions.mean) + 1.42 * deviation)
    deviations.append(0.61 * deviation)
    return Scale(np.array(means), np.array(deviations))


def join(scores: np.ndarray, scale: Scale, weights: Sequence[float]) -> np.ndarray:
    """Scores [B, n] -> one curve [n]: the weighted sum of standardised rows. A row that never varies adds nothing."""
    varies = scale.deviation[:, None] > 1e-5
    z = np.where(varies, (scores - scale.mean[:, None]) / np.where(varies, scale.deviation[:, None], 1.0), 0.0)
    return np.asarray(weights, dtype=np.float32) @ z


def smooth(curve: np.ndarray, times: np.ndarray, seconds: float) -> np.ndarray:
    """Triangular moving average of `seconds` to each side, by sample count at the median spacing."""
    if len(curve) < 3 or seconds <= 0:
        return curve
    step = float(np.median(np.diff(times)))
    half = min(round(seconds / max(step, 1e-3)) - 1, (len(curve) - 1) // 2)
    if half < 1:
        return curve
    kernel = np.concatenate([np.arange(1, half + 2), np.arange(half, 0, -1)]).astype(np.float32)
    return np.convolve(np.pad(curve, half, mode="edge"), kernel / kernel.sum(), mode="valid")
