"""Retrieval and track metrics against closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vilco_app.evaluation import retrieval as r
from vilco_app.evaluation import visual as v

window = st.tuples(st.floats(0, 100), st.floats(0.1, 50)).map(lambda w: (w[0], w[0] + w[1]))


@given(window, window)
def test_iou_is_symmetric_and_bounded(a, b):
    assert r.temporal_iou(a, b) == pytest.approx(r.temporal_iou(b, a))
    assert 0 <= r.temporal_iou(a, b) <= 1
    assert r.temporal_iou(a, a) == pytest.approx(1)


@given(st.floats(0, 1))
def test_iou_of_a_shifted_window(shift):
    assert r.temporal_iou((0, 1), (shift, 1 + shift)) == pytest.approx((1 - shift) / (1 + shift))


def test_recall_counts_the_first_k():
    predicted = [[(0, 1), (5, 9)], [(0, 4)]]
    truth = [[(5, 9)], [(2, 4), (20, 30)]]
    assert r.recall_at(predicted, truth, 1, 0.5) == 0.5  # (0,4) against (2,4): IoU 0.5
    assert r.recall_at(predicted, truth, 2, 0.5) == 1.0
    assert math.isnan(r.recall_at([], [], 1, 0.5))
    with pytest.raises(ValueError):
        r.recall_at(predicted, truth[:1], 1, 0.5)
    assert r.recall_at_kx([(0, 1), (20, 30), (2, 4)], [(2, 4), (20, 30)], 1, 0.5) == [False, True]


def test_average_precision_by_hand():
    # right, wrong, right over 2 positives: precision 1 up to recall 1/2, then 2/3
    assert r.average_precision([0.9, 0.8, 0.7], [True, False, True], 2) == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert r.average_precision([], [], 3) == 0.0
    assert math.isnan(r.average_precision([0.5], [False], 0))
    flags = r.match_windows([(0, 10), (0, 9), (20, 30)], [0.5, 0.9, 0.1], [(0, 10), (20, 31)], 0.5)
    assert flags == [False, True, True]  # the surer one takes the window, the other is a repeat


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20), st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_auroc_of_the_other_side(p, q):
    assert r.auroc(p, q) == pytest.approx(1 - r.auroc(q, p))
    assert r.auroc(p, p) == pytest.approx(0.5)


def test_bootstrap_intervals():
    flat = r.bootstrap([1.0] * 20)
    assert (flat.mean, flat.low, flat.high) == (1, 1, 1)
    x = np.random.default_rng(0).normal(size=400)
    b = r.bootstrap(x, seed=1)
    assert b.high - b.low == pytest.approx(2 * 1.96 * x.std() / 20, rel=0.15)  # normal theory
    paired = r.paired_bootstrap(x + 1, x)
    assert (paired.low, paired.high) == pytest.approx((1, 1))  # pairs cancel what both share
    with pytest.raises(ValueError):
        r.paired_bootstrap([1.0], [1.0, 2.0])
    sure = r.auroc_bootstrap([2.0, 3.0], [0.0, 1.0])
    assert sure.to_json() == [1.0, 1.0, 1.0]


def track(times, box):
    return [(t, *box) for t in times]


def test_box_iou_by_hand():
    assert v.box_iou((0, 0, 2, 2), (1, 1, 3, 3)) == pytest.approx(1 / 7)
    assert v.box_iou((0, 0, 1, 1), (2, 2, 3, 3)) == 0


def test_tracks_in_space_and_time():
    truth = track([0, 1, 2, 3], (0, 0, 0.5, 0.5))
    half = track([2, 3], (0, 0, 0.5, 0.5))
    assert v.spatio_temporal_iou(truth, truth, 1.0) == pytest.approx(1)
    assert v.spatio_temporal_iou(half, truth, 1.0) == pytest.approx(0.5)
    moved = track([0, 1, 2, 3], (0.25, 0, 0.75, 0.5))  # a third of the area shared at every instant
    assert v.spatio_temporal_iou(moved, truth, 1.0) == pytest.approx(1 / 3)
    assert v.spatio_temporal_iou([], truth, 1.0) == 0
    assert v.recovery([moved, half], [truth, truth], 1.0, iou=0.5) == pytest.approx(2 / 8)
    assert v.success([half, []], [truth, truth], 1.0) == 0.5


def test_average_precision_of_tracks():
    truth = track([0, 1, 2, 3], (0, 0, 0.5, 0.5))
    half = track([2, 3], (0, 0, 0.5, 0.5))
    assert v.span(half, 1.0) == (2, 4)
    ap = v.temporal_ap([truth, half], [0.9, 0.8], [truth, truth], 1.0)
    assert ap["tAP@0.25"] == 1 and ap["tAP@0.5"] == 1 and ap["tAP@0.75"] == 0.5 and ap["tAP"] == 0.75
    assert v.spatio_temporal_ap([[], half], [0.9, 0.8], [truth, truth], 1.0)["stAP@0.25"] == 0.5
    assert v.nearest_box(half, 2.4)[0] == 2 and v.nearest_box([], 1.0) is None
