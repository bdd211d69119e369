"""Taught directions: what the taught questions looked like, kept beside the network, without a gradient and without forgetting.

Of every taught window the memory keeps the question's sentence vector and two directions in the space of the stored
features: what sets the window's frames apart from the rest of their recording (Fisher's linear discriminant per block), and
what sets one region apart (small things). A new question that comes nearer to a taught one than different taught questions
come to each other is *known*: the zero-shot vectors of the question are then bent towards the directions of the taught
questions nearest to it, so that curves, shortlist and windows work as they always do. Any other question is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.answering.keys import normalise
from vilco_app.answering.nulls import NULL_QUESTIONS
from vilco_app.answering.phrases import wanted
from vilco_app.encoders.cells import unit

if TYPE_CHECKING:
    from vilco_app.encoders.base import Blocks, TextVectors
    from vilco_app.library.types import Stored

CAPACITY = 512  # taught questions kept: 1.3 MB with the embedded profile
SHARPNESS = 40.0  # of the softmax over cosines: a tenth nearer counts 55 times as much; 15 to 40 did alike
SHRINKAGE = 0.1  # of the covariance towards a multiple of one: a recording has fewer independent views than dimensions
SAMPLES = 20_000  # rows of a recording its mean and covariance are taken from
GROUPS = 2_000  # still spans of a recording a region is compared with
CANDIDATES = 64  # regions of a window that may be its thing


@dataclass(frozen=True)
class Taught:
    """One taught question on one recording. windows: seconds. sentence [Dt], unit: of what is looked for, without asking words.

    scene [Dg]: each block of unit deviation over the recording. thing [Dr]: the same of its regions; zeros without any.
    """

    text: str
    family: str
    video: str
    windows: tuple[tuple[float, float], ...]
    sentence: np.ndarray
    scene: np.ndarray
    thing: np.ndarray

    @property
    def key(self) -> str:
        """See `key_of`."""
        return key_of(self.text)

    def meets(self, video: str, start: float, end: float) -> bool:
        """Whether a window lies on any of [start, end] of a recording."""
        return video == self.video and any(s <= end and t >= start for s, t in self.windows)

    def together(self, other: Taught) -> bool:
        """Whether both have a window at the same time of the same recording."""
        return any(self.meets(other.video, s, t) for s, t in other.windows)


def key_of(text: str) -> str:
    """What a question looks for, in normal form: the same for the same question however it is asked."""
    return normalise(wanted(text))


class Directions:
    """A memory of taught questions. spread [B + 1]: deviation of a unit-length question's scores, per block and of regions.

    unrelated [n, Dt]: sentence vectors of questions about nothing in particular. Immutable; safe to share between threads.
    """

    def __init__(
        self, entries: Sequence[Taught], spread: np.ndarray, unrelated: np.ndarray, blocks: Blocks,
        apart: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """apart [n, n] bool: which pairs of entries are after different things; None: found out when needed."""
        self.entries, self.blocks, self._apart = tuple(entries), blocks, apart
        self.spread, self.unrelated = np.asarray(spread, np.float32), np.asarray(unrelated, np.float32)
        if self.entries:
            self._sentences = np.stack([e.sentence for e in self.entries]).astype(np.float64)
            self._scenes = np.stack([e.scene for e in self.entries]).astype(np.float32)
            self._things = np.stack([e.thing for e in self.entries]).astype(np.float32)
        self._levels: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def only(self, keep: Callable[[Taught], bool]) -> Directions:
        """The memory of some of its entries."""
        kept = [k for k, e in enumerate(self.entries) if keep(e)]
        rows = [self.entries[k] for k in kept]
        return Directions(rows, self.spread, self.unrelated, self.blocks, self._others()[np.ix_(kept, kept)])

    def knows(self, sought: np.ndarray, nearness: float) -> bool:
        """Whether a question is near enough to taught ones to be bent."""
        return bool(self.entries) and self._nearness(sought)[1] >= self.level(nearness)

    def _nearness(self, sought: np.ndarray) -> tuple[np.ndarray, float]:
        cosines = SHARPNESS * (self._sentences @ np.asarray(sought, np.float64))
        return cosines, _log_sum(cosines)

    def bend(
        self, vectors: TextVectors, sought: np.ndarray, strength: float, nearness: float
    ) -> tuple[TextVectors, dict[str, float]]:
        """-> (the question's vectors, bent where it is known; the taught questions they come from with their shares).

        sought [Dt]: sentence vector of what is looked for. strength: of the directions against the question's own, 0: none.
        nearness: see `level`. A profile that is not aligned has no vectors of its own: a known question gets the taught.
        """
        if strength <= 0 or not self.entries:
            return vectors, {}
        cosines, mass = self._nearness(sought)
        if mass < self.level(nearness):
            return vectors, {}
        share = np.exp(cosines - mass)
        scene, thing = share @ self._scenes, share @ self._things
        # which words of its own it maps to says nothing any more of how sure an answer is
        bent = replace(vectors, scene=self._joined(vectors.scene, strength * scene), concepts=(), understood=True)
        if thing.any() and (vectors.thing is not None or vectors.scene is None):
            own = 0.0 if vectors.thing is None else _scaled(np.asarray(vectors.thing, np.float32), self.spread[-1])
            bent = replace(bent, thing=(own + strength * thing).astype(np.float32))
        named: dict[str, float] = {}
        for k in np.argsort(-share, kind="stable"):
            if share[k] >= 0.1:
                named[self.entries[k].text] = named.get(self.entries[k].text, 0.0) + float(share[k])
        return bent, named

    def _joined(self, scene: np.ndarray | None, taught: np.ndarray) -> np.ndarray:
        out = taught.astype(np.float32)
        if scene is not None:
            for k, s in enumerate(self.blocks.slices()):
                out[s] += _scaled(np.asarray(scene[s], np.float32), self.spread[k])
        return out

    def level(self, nearness: float) -> float:
        """The log mass from which a question is known: the `nearness` quantile of what each taught question gets from taught
        questions after other things, and never less than questions about nothing get. Infinite with nothing to compare."""
        if not self.entries:
            return float("inf")
        if nearness not in self._levels:
            self._levels[nearness] = self._level(nearness)
        return self._levels[nearness]

    def _level(self, nearness: float) -> float:
        levels = [float(np.mean([_log_sum(SHARPNESS * (self._sentences @ u)) for u in self.unrelated]))]
        cosines = SHARPNESS * (self._sentences @ self._sentences.T)
        others = [_log_sum(row[m]) for row, m in zip(cosines, self._others(), strict=True) if m.any()]
        if others:
            levels.append(float(np.quantile(others, nearness)))
        return max(levels)

    def _others(self) -> np.ndarray:
        """[n, n] bool: pairs of taught questions after different things: other words, other time."""
        if self._apart is None:
            keys, videos = np.array([e.key for e in self.entries]), np.array([e.video for e in self.entries])
            apart = keys[:, None] != keys
            for i, j in np.argwhere(apart & (videos[:, None] == videos)):
                apart[i, j] = not self.entries[i].together(self.entries[j])
            self._apart = apart
        return self._apart


@dataclass(frozen=True)
class Footing:
    """What windows of a recording are held against. mean [Dg]; covariances: of each block [D, D]."""

    mean: np.ndarray
    covariances: tuple[np.ndarray, ...]

    @staticmethod
    def of(stored: Stored, blocks: Blocks) -> Footing:
        """Of about SAMPLES frames spread over the recording; once a recording, for it costs more than all its windows."""
        rows = np.asarray(stored.globals[:: max(1, len(stored) // SAMPLES)], dtype=np.float64)
        return Footing(rows.mean(axis=0), tuple(np.atleast_2d(np.cov(rows[:, part].T)) for part in blocks.slices()))


def look(
    stored: Stored, windows: Sequence[tuple[float, float]], blocks: Blocks, footing: Footing
) -> tuple[np.ndarray, np.ndarray]:
    """What sets the frames, and a region, inside `windows` apart from the rest of their recording -> scene [Dg], thing [Dr].

    Per block inverse(covariance) (mean inside - mean), the covariance shrunk, scaled to unit deviation over the recording.
    """
    times = np.asarray(stored.times)
    inside = np.zeros(len(times), dtype=bool)
    for s, t in windows:
        inside |= (times >= s) & (times < t)
    if not inside.any():
        inside[int(np.argmin(np.abs(times - windows[0][0])))] = True
    apart = np.asarray(stored.globals[np.flatnonzero(inside)], np.float64).mean(axis=0) - footing.mean
    scene = np.zeros(len(apart))
    for part, covariance in zip(blocks.slices(), footing.covariances, strict=True):
        scene[part] = discriminant(apart[part], covariance)
    return scene.astype(np.float32), _thing(stored, inside)


def discriminant(apart: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Fisher's direction for a difference of means [D], scaled so that scores of that covariance [D, D] deviate by 1."""
    size = len(apart)
    ridge = SHRINKAGE * float(np.trace(covariance)) / size + 1e-9
    found = np.linalg.solve(covariance + ridge * np.eye(size), apart)
    deviation = float(np.sqrt(max(found @ covariance @ found, 0.0)))
    return found / deviation if deviation > 1e-6 else np.zeros(size)


def _thing(stored: Stored, inside: np.ndarray) -> np.ndarray:
    """The region direction: of the window's regions, that whose like is always there inside and seldom outside."""
    group, offsets = np.asarray(stored.group), np.asarray(stored.offsets)
    none = np.zeros(stored.region_codes.shape[1], dtype=np.float32)
    held = np.unique(group[inside])
    rest = np.setdiff1d(np.unique(group), held)
    held = held[:: max(1, len(held) // (GROUPS // 4))]
    rest = rest[:: max(1, len(rest) // GROUPS)]
    chosen = [g for g in (*held, *rest) if offsets[g + 1] > offsets[g]]
    within = sum(offsets[g + 1] > offsets[g] for g in held)
    if within == 0 or within == len(chosen):
        return none
    rows = [stored.regions(int(offsets[g]), int(offsets[g + 1])) for g in chosen]
    starts = np.cumsum([0, *(len(r) for r in rows)])
    raw = np.concatenate(rows)
    apart = unit(raw)
    apart -= apart.mean(axis=0)
    mine = np.arange(starts[within])
    mine = mine[:: max(1, len(mine) // CANDIDATES)]
    likeness = apart[mine] @ apart.T
    best = np.maximum.reduceat(likeness, starts[:-1], axis=1)  # [candidates, groups]
    outside = best[:, within:]
    found = int(np.argmax(best[:, :within].mean(axis=1) - outside.mean(axis=1) - outside.std(axis=1)))
    like = [starts[g] + int(np.argmax(likeness[found, starts[g] : starts[g + 1]])) for g in range(within)]
    direction = apart[like].mean(axis=0)
    deviation = float(np.std(raw @ direction))
    return (direction / deviation).astype(np.float32) if deviation > 1e-6 else none


def unrelated_questions(profile: Any) -> tuple[np.ndarray, list[TextVectors]]:
    """Sentence vectors [n, Dt] of questions about nothing in particular, and the questions."""
    vectors = [profile.text(text) for text in NULL_QUESTIONS]
    return np.stack([np.asarray(v.sentence, np.float32) for v in vectors]), vectors


def spread_of(questions: Sequence[TextVectors], stored: Sequence[Stored], blocks: Blocks) -> np.ndarray:
    """[B + 1]: deviation over recordings of the scores of unit-length questions, in the mean over questions; 1 where none
    of them says anything."""
    out = np.ones(len(blocks.stops) + 1, dtype=np.float32)
    slices = blocks.slices()
    found: list[list[float]] = [[] for _ in out]
    for one in stored:
        rows = np.asarray(one.globals[:: max(1, len(one) // 2000)], np.float32)
        regions = one.regions(0, min(4000, len(one.region_scales)))
        for q in questions:
            if q.scene is not None:
                for k, s in enumerate(slices):
                    found[k].append(_deviation(rows[:, s], q.scene[s]))
            if q.thing is not None and len(regions):
                found[-1].append(_deviation(regions, q.thing))
    for k, values in enumerate(found):
        told = [v for v in values if v > 0]
        if told:
            out[k] = np.mean(told)
    return out


def _deviation(rows: np.ndarray, direction: np.ndarray) -> float:
    length = float(np.linalg.norm(direction))
    return float(np.std(rows @ (np.asarray(direction, np.float32) / length))) if length > 1e-6 else 0.0


def _scaled(direction: np.ndarray, spread: float) -> np.ndarray:
    """A question's own direction, about unit deviation; one that says nothing stays nothing."""
    length = float(np.linalg.norm(direction))
    return direction / (length * spread) if length > 1e-6 and spread > 1e-9 else np.zeros_like(direction)


def _log_sum(logs: np.ndarray) -> float:
    top = float(logs.max())
    return top + float(np.log(np.exp(logs - top).sum()))
