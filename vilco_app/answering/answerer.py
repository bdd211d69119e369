"""The answering service: a question and recordings in, an Answer out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from vilco_app.answering.calibrate import Doubt, Reached, confidence
from vilco_app.answering.correcting import apply_corrections, correct_tracks
from vilco_app.answering.curve import Passage
from vilco_app.answering.footage import Footage
from vilco_app.answering.grounding import Grounded, Grounder, ZeroShotGrounder, fuse
from vilco_app.answering.keys import make_key
from vilco_app.answering.looks import Looks, distinct_windows
from vilco_app.answering.matching import PictureJudge
from vilco_app.answering.nulls import NULL_QUESTIONS, Levels
from vilco_app.answering.options import DEFAULTS, Options
from vilco_app.answering.questions import Bender, Questions
from vilco_app.answering.visual import PictureFinder
from vilco_app.answering.windows import best_windows
from vilco_app.encoders.base import Profile, TextVectors
from vilco_app.library.types import LibraryView
from vilco_app.values import (
    Answer,
    Concept,
    Curve,
    Kind,
    Moment,
    MomentQuery,
    TextQuery,
    Track,
    Video,
    VilcoError,
    VisualQuery,
)


class Answerer:
    """Answers questions over a library with one profile. Thread-safe.

    network: a second grounder (the ViLCo network) and its weight in [0, 1] per query kind; None: zero-shot only.
    doubts: how that network lowers the confidence, for the kinds it was taught to say "not in here" of. judge: its picture
    head, which knows how much it counts. bend: what was taught of questions, for those it knows.
    """

    def __init__(
        self,
        library: LibraryView,
        profile: Profile,
        options: Options = DEFAULTS,
        network: Grounder | None = None,
        weights: dict[Kind, float] | None = None,
        snapshot: str = "base",
        doubts: dict[Kind, Doubt] | None = None,
        judge: PictureJudge | None = None,
        bend: Bender | None = None,
    ) -> None:
        self.library, self.profile, self.options, self.snapshot = library, profile, options, snapshot
        self.network, self.weights, self.doubts = network, dict(weights or {}), dict(doubts or {})
        self.zero_shot = ZeroShotGrounder(profile.blocks, options)
        self.finder = PictureFinder(library, profile, options, self.zero_shot, judge)
        self.questions = Questions(profile, options)
        self.bend = bend
        self._levels = Levels(self._unrelated, options.cached_questions)

    def text(
        self, query: TextQuery, videos: Sequence[Video], top: int = 5, before: float | None = None, curve: bool = False
    ) -> Answer:
        """Where the footage shows what `query.text` says. before: seconds; only moments that end by then (one video).

        Raises VilcoError: empty question, `before` with several recordings, a profile without zero-shot answers.
        """
        began = time.perf_counter()
        if not query.text.strip():
            raise VilcoError("empty-question", "the question is empty.", 'Ask in words: vilco ask "where are my keys?"')
        answer = self._words("text", query.text, None, videos, top, before, curve)
        return replace(answer, milliseconds=(time.perf_counter() - began) * 1e3)

    def moments(
        self,
        query: MomentQuery,
        videos: Sequence[Video],
        top: int = 5,
        before: float | None = None,
        curve: bool = False,
    ) -> Answer:
        """All windows of each activity category, each category's best `top`; every moment names its category."""
        began = time.perf_counter()
        if not query.categories or not all(c.strip() for c in query.categories):
            raise VilcoError(
                "empty-question", "a category is empty.", 'Name activities: vilco moments "cook" "wash dishes"'
            )
        many = len(query.categories) > 1
        answers = [self._words("moment", c, c if many else None, videos, top, before, curve) for c in query.categories]
        moments = sorted((m for a in answers for m in a.moments), key=lambda m: -m.score)
        joined = replace(
            answers[0],
            query=query.label(),
            categories=query.categories,
            confidence=max(a.confidence for a in answers),
            moments=tuple(moments),
            curves=tuple(c for a in answers for c in a.curves),
            concepts=tuple(c for a in answers for c in a.concepts),
        )
        return replace(joined, milliseconds=(time.perf_counter() - began) * 1e3)

    def find(
        self,
        query: VisualQuery,
        videos: Sequence[Video],
        top: int = 5,
        before: float | None = None,
        curve: bool = False,
    ) -> Answer:
        """Where the thing in the picture was seen, last appearance first, as windows with box tracks."""
        began = time.perf_counter()
        if min(query.image.shape[:2]) < 2:
            raise VilcoError("picture-too-small", f"{query.name} has no two pixels.", "Give a larger picture or box.")
        tracks: tuple[Track, ...] = ()
        certainty = 0.0
        curves: tuple[Curve, ...] = ()
        footage = self._footage(videos, before)
        if footage.samples:
            direction = self.finder.region_query(query.image)
            passages = footage.passages(regions=direction)
            if passages:
                found = self.finder.find(query.image, direction, passages, top)
                tracks, certainty = found.tracks, found.confidence
                curves = self._curves(found.curves, passages) if curve else ()
        said = self.library.corrections(make_key("visual", query.name, query.digest), footage.ids)
        tracks, certainty = correct_tracks(said, tracks, certainty, videos, top, before)
        return Answer(
            query=query.label(),
            kind="visual",
            confidence=certainty,
            threshold=self.options.threshold,
            searched=footage.searched,
            moments=tuple(t.moment for t in tracks),
            tracks=tracks,
            curves=curves,
            snapshot=self.snapshot,
            profile=self.profile.id,
            milliseconds=(time.perf_counter() - began) * 1e3,
            with_curves=curve,
            digest=query.digest,
        )

    def _words(
        self,
        kind: Kind,
        words: str,
        category: str | None,
        videos: Sequence[Video],
        top: int,
        before: float | None,
        curve: bool,
    ) -> Answer:
        typed = self.questions(words.replace("_", " "))
        vectors, known = typed, dict[str, float]()
        if self.bend is not None:
            vectors, known = self.bend(kind, typed, self.questions.sought(words.replace("_", " ")))
        footage = self._footage(videos, before)
        passages = footage.passages(vectors.scene, vectors.thing)
        moments: list[Moment] = []
        certainty = 0.0
        curves: tuple[Curve, ...] = ()
        if passages:
            grounded, sure, certainty = self._ground(kind, typed, vectors, passages, footage)
            moments = self._moments(grounded, passages, top, category, sure, footage.much)
            curves = self._curves(grounded.curves, passages) if curve else ()
        found = self.library.corrections(make_key(kind, words), footage.ids)
        if not vectors.understood:
            certainty = 0.0
        moments, certainty = apply_corrections(found, moments, certainty, videos, top, before, category)
        return Answer(
            query=words,
            kind=kind,
            confidence=certainty,
            threshold=self.options.threshold,
            searched=footage.searched,
            moments=tuple(moments),
            curves=curves,
            snapshot=self.snapshot,
            profile=self.profile.id,
            concepts=(
                *(Concept(f"taught: {question}", share) for question, share in known.items()),
                *(Concept(c.name, c.weight) for c in typed.concepts),
            ),
            with_curves=curve,
        )

    def _ground(
        self,
        kind: Kind,
        typed: TextVectors,
        vectors: TextVectors,
        passages: Sequence[Passage],
        footage: Footage,
    ) -> tuple[Grounded, Callable[[float], float], float]:
        """-> (what is proposed, window score -> probability, probability that it is there at all).

        The last is judged on the zero-shot scale, which is the one that was calibrated, and lowered by what the network
        learnt of absence; a profile that is not aligned has only the network's own best score.
        """
        weight = self.weights.get(kind, 0.0) if self.network is not None else 0.0
        if typed.scene is None and vectors.scene is not None:
            weight = 0.0  # taught directions answer what they know alone
        if vectors.scene is None:
            if self.network is None or weight <= 0:
                raise VilcoError(
                    "not-aligned",
                    f"profile {self.profile.id} cannot compare words with pictures without training.",
                    "Learn a stage first, or use a profile such as embedded or clip.",
                )
            only = self.network.propose(vectors, kind, passages)
            return only, _clipped, _clipped(float(only.windows.scores.max(initial=0.0)))
        scale = footage.scale(vectors)
        grounded = self.zero_shot.propose(vectors, kind, passages, scale)
        sure = self._sure(kind, vectors, footage, grounded)
        certainty = sure(float(grounded.windows.scores.max())) if len(grounded.windows.scores) else 0.0
        doubt = self.doubts.get(kind)
        if self.network is None or (weight <= 0 and doubt is None):
            return grounded, sure, certainty
        learnt = self.network.propose(typed, kind, passages, scale)
        if doubt is not None:
            best = float(learnt.windows.scores.max(initial=0.0))
            certainty = doubt.lowered(certainty, best)
            if weight <= 0:
                return grounded, _doubted(sure, doubt, best), certainty
        fused = fuse(grounded, learnt, weight)
        return fused, _shared(certainty, fused), certainty

    def _unrelated(self, text: str) -> TextVectors:
        """A question about nothing in particular; where words have no look of their own, one of the taught looks."""
        vectors = self.profile.text(text)
        if vectors.scene is not None or self.bend is None:
            return vectors
        return replace(vectors, scene=self.bend.look(NULL_QUESTIONS.index(text)))

    def sure(
        self, kind: Kind, vectors: TextVectors, videos: Sequence[Video], grounded: Grounded
    ) -> Callable[[float], float]:
        """A window's score -> the probability that it is there, for this question on this footage. grounded: zero-shot."""
        return self._sure(kind, vectors, self._footage(videos), grounded)

    def _sure(self, kind: Kind, vectors: TextVectors, footage: Footage, grounded: Grounded) -> Callable[[float], float]:
        level, best = self._level(kind, footage), grounded.reached() or Reached(0.0)
        if not vectors.concepts:  # a question turned towards what was taught: the height was not measured for such
            best = Reached(best.score)
        weight = max((c.weight for c in vectors.concepts), default=None)
        return lambda score: confidence(score, best, level, weight)

    def level(self, kind: Kind, videos: Sequence[Video]) -> Reached:
        """What unrelated questions reach on these recordings, on average."""
        return self._level(kind, self._footage(videos))

    def _level(self, kind: Kind, asked: Footage) -> Reached:
        footage = asked.whole()  # a question about a part is judged by all of it

        def best(vectors: TextVectors) -> Reached | None:
            passages = footage.passages(vectors.scene, vectors.thing)
            return self.zero_shot.propose(vectors, kind, passages, footage.scale(vectors)).reached()

        count = self.options.null_questions if footage.exact else self.options.null_questions_shortlisted
        return self._levels.of((kind, *footage.key), count, best)

    def _footage(self, videos: Sequence[Video], before: float | None = None) -> Footage:
        return Footage(self.library, self.profile.blocks, self.options, videos, before)

    def _moments(
        self,
        grounded: Grounded,
        passages: Sequence[Passage],
        top: int,
        category: str | None,
        sure: Callable[[float], float],
        much: bool,
    ) -> list[Moment]:
        """The best windows; a score is the probability of that window alone, and never above the one before it.

        much: of much footage, where one look takes one place.
        """
        w = grounded.windows
        out: list[Moment] = []
        if much:
            mean = self.library.statistics("globals").mean
            best = distinct_windows(w, top, Looks(passages, mean, self.profile.blocks, self.options))
        else:
            best = best_windows(w, top, self.options.overlap)
        for i in best:
            video = passages[int(w.passage[i])].stored.video
            score = sure(float(w.scores[i]))
            score = min(score, out[-1].score) if out else score
            out.append(
                Moment(video.id, video.path, float(w.starts[i]), float(w.ends[i]), score, grounded.source, category)
            )
        return out

    def _curves(self, curves: Sequence[np.ndarray], passages: Sequence[Passage]) -> tuple[Curve, ...]:
        by_video: dict[str, tuple[list[float], list[float]]] = {}
        for p, c in zip(passages, curves, strict=True):
            times, values = by_video.setdefault(p.stored.video.id, ([], []))
            times += p.times.tolist()
            values += c.tolist()
        return tuple(Curve(v, tuple(t), tuple(c)) for v, (t, c) in by_video.items())


def _doubted(sure: Callable[[float], float], doubt: Doubt, best: float) -> Callable[[float], float]:
    return lambda score: doubt.lowered(sure(score), best)


def _shared(certainty: float, fused: Grounded) -> Callable[[float], float]:
    """Votes are no probabilities: the best window gets that of the whole answer, the others in proportion."""
    best = max(float(fused.windows.scores.max(initial=0.0)), 1e-9)
    return lambda votes: certainty * min(max(votes / best, 0.0), 1.0)


def _clipped(score: float) -> float:
    """The network's scores are in [0, 1] already."""
    return min(max(score, 0.0), 1.0)
