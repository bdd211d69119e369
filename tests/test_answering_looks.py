"""One place per look over much footage, and how sure an answer is by the height of its evidence."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, make_stored
from vilco_app.answering import Answerer
from vilco_app.answering.calibrate import (
    HEIGHT,
    MARGIN_SURENESS,
    OFFSET,
    STEEPNESS,
    SURENESS,
    TYPICAL_WEIGHT,
    Reached,
    confidence,
)  # fmt: skip
from vilco_app.answering.grounding import peak_height
from vilco_app.answering.looks import look_of, looks_of
from vilco_app.answering.options import Options
from vilco_app.answering.shortlist import around_hits
from vilco_app.encoders.base import Blocks
from vilco_app.values import TextQuery

DIM = 24
MUCH = Options(much_footage=60.0)
WEAK = "e" * 12


def scene(axis, strength, length=20):
    """length samples that answer "thing 3" by `strength` and look like scene `axis`."""
    rows = np.zeros((length, DIM))
    rows[:, 3], rows[:, axis] = strength, 3.0
    return rows


def library(repeats=4):
    """Four recordings that show the same strong scene among others of their own, one with a weaker, different one."""
    rng = np.random.default_rng(0)
    recordings = []
    for k in range(repeats):
        rows = np.concatenate([scene(10 + k, 0.0, 60), scene(5, 2.0), scene(10 + k, 0.0, 60)])
        recordings.append(make_stored(rows + rng.normal(0, 0.03, rows.shape), video=chr(97 + k) * 12))
    rows = np.concatenate([scene(20, 0.0, 60), scene(7, 1.5), scene(20, 0.0, 60)])
    recordings.append(make_stored(rows + rng.normal(0, 0.03, rows.shape), video=WEAK))
    return FakeLibrary(recordings)


@pytest.mark.parametrize("exact", [100_000, 100])
def test_the_same_look_takes_one_place(exact):
    shelf = library()
    asked = TextQuery("thing 3")
    options = replace(MUCH, exact_samples=exact)
    moments = Answerer(shelf, shelf.profile, options).text(asked, shelf.videos(), top=2).moments
    strong = {m.video for m in moments if m.video != WEAK and m.start >= 29 and m.end <= 41}
    assert len(strong) == 1 and moments[0].video in strong  # the strong scene, once
    other = next(m for m in moments if m.video == WEAK)
    assert (other.start, other.end) == (pytest.approx(30, abs=1), pytest.approx(40, abs=1))
    repeats = Answerer(shelf, shelf.profile, replace(options, much_footage=1e6, alike=2.0))
    assert WEAK not in {m.video for m in repeats.text(asked, shelf.videos(), top=2).moments}


def test_repeats_keep_their_places_when_they_are_far_better():
    shelf = library()
    for repeat, alone in ((0.6, True), (0.9, False)):  # the weak scene has 3/4 of the strong one's score
        answerer = Answerer(shelf, shelf.profile, replace(MUCH, repeat=repeat))
        answer = answerer.text(TextQuery("thing 3"), shelf.videos(), top=2)
        assert (WEAK in {m.video for m in answer.moments}) == alone
    rows = np.concatenate([scene(5, 2.0, 4), scene(5, 2.0, 4)])  # nothing but one scene, three times
    shelf = FakeLibrary([make_stored(rows, video=v * 12) for v in "abc"])
    answerer = Answerer(shelf, shelf.profile, replace(MUCH, much_footage=1.0))
    assert len(answerer.text(TextQuery("thing 3"), shelf.videos(), top=3).moments) == 3


def test_one_occasion_may_have_two_places():
    rows = [scene(8, 0.0, 40), scene(5, 2.0), scene(8, 0.0, 40), scene(5, 1.9), scene(8, 0.0, 40), scene(7, 1.6)]
    shelf = FakeLibrary([make_stored(np.concatenate([*rows, scene(8, 0.0, 100)]))])

    def starts(occasion):
        options = replace(MUCH, occasion=occasion)
        moments = Answerer(shelf, shelf.profile, options).text(TextQuery("thing 3"), shelf.videos(), top=2).moments
        return sorted(m.start for m in moments)

    assert starts(60.0) == [pytest.approx(20, abs=1), pytest.approx(50, abs=1)]  # both views of the better look
    assert starts(5.0) == [pytest.approx(20, abs=1), pytest.approx(80, abs=1)]  # now they are two occasions


def test_the_shortlist_has_several_looks_and_some_of_what_recurs():
    shelf = library()
    mean = shelf.statistics("globals").mean
    hits = shelf.search_globals(shelf.profile.text("thing 3").scene[None], 100)
    options = replace(MUCH, passages=2, again_passages=1, passage_seconds=10.0)

    def videos(look):
        return [p.stored.video.id for p in around_hits(shelf, hits, options, look)]

    assert WEAK not in videos(None) and len(videos(None)) == 2  # the four recordings of the strong scene come first
    found = videos(lambda rows: looks_of(rows, mean, shelf.profile.blocks))
    assert WEAK in found and len(found) == 3  # the strong scene, the weak one, and the strong one again


def test_a_look_is_what_differs_from_the_mean_whatever_a_block_measures():
    blocks = Blocks(("a", "b"), (2, 4), (1.0, 1.0))
    mean = np.array([1.0, 0.0, 10.0, 0.0])
    look = look_of(np.array([[4.0, 4.0, 10.0, 500.0]]), mean, blocks)
    assert look == pytest.approx(np.array([0.6, 0.8, 0.0, 1.0]) / math.sqrt(2))
    opposite = look_of(np.array([[2.0, 0.0, 10.0, 1.0], [0.0, 0.0, 10.0, 1.0]]), mean, blocks)
    assert opposite == pytest.approx([0.0, 0.0, 0.0, 1.0])  # the first block shows nothing on average


def test_the_height_is_in_units_of_stored_vectors():
    scores = [np.array([1.0, 2.0]), np.array([5.0, 0.0])]
    assert peak_height(scores, length=0.5, mean=1.0, deviation=1.5) == pytest.approx((5 - 1 - 1.5) / 0.5)
    again = [10 * s for s in scores]  # the same question, ten times as long
    assert peak_height(again, 5.0, 10.0, 15.0) == pytest.approx(peak_height(scores, 0.5, 1.0, 1.5))
    assert peak_height(scores, 0.0, 1.0, 1.5) == 0.0


def test_confidence_follows_the_formula_and_falls_with_worse_windows():
    best, level = Reached(4.0, 1.2), Reached(3.0, 0.9)
    odds = OFFSET + HEIGHT * 0.3 - SURENESS * math.log(0.5 / TYPICAL_WEIGHT)
    assert confidence(4.0, best, level, 0.5) == pytest.approx(1 / (1 + math.exp(-odds)))
    worse = confidence(3.0, best, level, 0.5)
    assert worse == pytest.approx(1 / (1 + math.exp(-odds + STEEPNESS)))
    assert confidence(4.0, Reached(4.0, 1.5), level, 0.5) > confidence(4.0, best, level, 0.5)
    margin = STEEPNESS * (4.0 - 3.0) - MARGIN_SURENESS * math.log(0.5 / TYPICAL_WEIGHT)
    for one, other in ((Reached(4.0), level), (best, Reached(3.0))):  # no evidence block: by the margin
        assert confidence(4.0, one, other, 0.5) == pytest.approx(1 / (1 + math.exp(-margin)))


def test_evidence_tells_what_is_there_from_what_only_varies_as_much():
    """Standardised, the noise of an absent thing peaks as high as any; in its own units it is small."""
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 0.02, size=(200, DIM))
    rows[60:70, 3] += 2.0
    rows[120:130, 4] += 0.1
    shelf = FakeLibrary([make_stored(rows)])
    shelf.profile.blocks = replace(shelf.profile.blocks, evidence="all")
    answerer = Answerer(shelf, shelf.profile)
    there = answerer.text(TextQuery("thing 3"), shelf.videos())
    hardly = answerer.text(TextQuery("thing 4"), shelf.videos())
    assert there.found and there.confidence > 0.9 > 0.5 > hardly.confidence
    assert [m.score for m in there.moments] == sorted((m.score for m in there.moments), reverse=True)
    bent = replace(answerer.questions("thing 4"), concepts=())
    grounded = answerer.zero_shot.propose(bent, "text", answerer._footage(shelf.videos()).passages())
    margin = answerer.sure("text", bent, shelf.videos(), grounded)(float(grounded.windows.scores.max()))
    assert margin > hardly.confidence  # judged by the margin alone, as before
