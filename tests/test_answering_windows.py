"""Segmentation, windows and footage splitting, through closed forms and small synthetic footage."""

import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, make_stored
from vilco_app.answering import Answerer
from vilco_app.answering.curve import passages_of
from vilco_app.answering.segments import hierarchy
from vilco_app.answering.windows import Windows, best_windows
from vilco_app.values import TextQuery, VilcoError


@pytest.mark.parametrize("n", [2, 3, 37, 200])
def test_spans_are_nested_and_complete(n):
    spans = hierarchy(np.random.default_rng(n).normal(size=(n, 5)))
    assert len(spans) == len({tuple(s) for s in spans.tolist()}) == 2 * n - 1  # a binary tree over n samples
    assert [0, n] in spans.tolist() and (spans[:, 0] < spans[:, 1]).all()
    for a, b in spans.tolist():  # any two are nested or apart
        apart = (spans[:, 1] <= a) | (spans[:, 0] >= b)
        inside = (spans[:, 0] >= a) & (spans[:, 1] <= b)
        around = (spans[:, 0] <= a) & (spans[:, 1] >= b)
        assert (apart | inside | around).all()


def test_the_cheapest_pair_goes_first():
    spans = hierarchy(np.array([[0.0], [1.0], [1.1], [5.0]])).tolist()
    assert spans[4:] == [[1, 3], [0, 3], [0, 4]]


def test_a_scene_is_a_span():
    x = np.repeat(np.eye(4, dtype=np.float32), [7, 3, 12, 5], axis=0)
    spans = {tuple(s) for s in hierarchy(x).tolist()}
    assert {(0, 7), (7, 10), (10, 22), (22, 27)} <= spans
    assert len(hierarchy(x[:1])) == 1 and len(hierarchy(x[:0])) == 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_features_that_are_no_numbers_end_in_an_error_that_names_them():
    """Two steps: the merging ends, and the recording is named (it went round for ever)."""
    x = np.random.default_rng(0).normal(size=(40, 8))
    x[7, 3] = np.nan
    assert len(hierarchy(x)) < 2 * len(x) - 1
    assert len(hierarchy(np.full((5, 2), np.inf))) == 5
    library = FakeLibrary([make_stored(np.nan_to_num(x, nan=np.inf))])
    with pytest.raises(VilcoError) as caught:
        Answerer(library, library.profile).text(TextQuery("thing 3"), library.videos())
    assert caught.value.code == "damaged-features" and "aaa.mp4" in caught.value.message


def test_repeats_come_late():
    starts, ends = np.array([0.0, 1.0, 20.0, 0.0]), np.array([10.0, 10.0, 30.0, 10.0])
    w = Windows(starts, ends, np.array([3.0, 2.9, 1.5, 2.0]), np.array([0, 0, 0, 1]))
    # the second repeats the first (IoU 0.9: 2.9 * exp(-1.62) = 0.57); the fourth lies in another passage
    assert best_windows(w, 5, 0.5) == [0, 3, 2, 1]


def test_what_stands_out_ranks_all_but_the_first():
    w = Windows(np.array([0.0, 20.0, 40.0]), np.array([5.0, 25.0, 45.0]), np.array([3.0, 2.0, 1.0]), np.zeros(3),
                np.array([0.1, 0.2, 0.9]))  # fmt: skip
    assert best_windows(w, 3, 0.5) == [0, 2, 1]


def test_forgotten_spans_and_holes_split_the_footage():
    stored = make_stored(np.eye(20, 8), forgotten=((3.1, 3.3), (8.0, 9.0)))
    parts = passages_of(stored)
    assert [(p.first, p.last) for p in parts] == [(0, 7), (7, 16), (16, 18)]
    assert parts[0].end == pytest.approx(3.1) and parts[1].end == pytest.approx(8.0)
    assert parts[2].start == pytest.approx(9.0)


def test_answers_stay_inside_the_video_and_before_the_given_time():
    scene = np.zeros((60, 8))
    scene[:, 0] = 1
    scene[40:50] = np.eye(8)[3]  # what is asked for: 20 s to 25 s
    library = FakeLibrary([make_stored(scene)])
    answerer = Answerer(library, library.profile)
    answer = answerer.text(TextQuery("thing 3"), library.videos(), curve=True)
    assert answer.moments[0].start == pytest.approx(20, abs=0.6) and answer.moments[0].end == pytest.approx(25, abs=0.6)
    assert len(answer.curves[0].times) == 60
    early = answerer.text(TextQuery("thing 3"), library.videos(), before=21.25)
    assert early.moments and all(0 <= m.start < m.end <= 21.25 for m in early.moments)
    with pytest.raises(VilcoError, match="video"):
        answerer.text(TextQuery("thing 3"), library.videos() * 2, before=21.0)
    with pytest.raises(VilcoError, match="empty"):
        answerer.text(TextQuery("  "), library.videos())
