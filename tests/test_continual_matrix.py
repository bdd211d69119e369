"""Metrics of the score matrix on matrices worked out by hand, their relations, and the bootstrap intervals."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vilco_app.continual import intervals, matrix
from vilco_app.continual.matrix import ScoreMatrix
from vilco_app.values import VilcoError

NAN = math.nan
# after stage 0, 1, 2 (rows) on stage 0, 1, 2
A = np.array([[0.8, NAN, NAN], [0.9, 0.6, NAN], [0.5, 0.4, 0.7]])


def test_final_and_incremental_averages() -> None:
    assert matrix.acc(A) == pytest.approx((0.5 + 0.4 + 0.7) / 3)
    assert matrix.acc_weighted(A, np.array([1, 1, 2])) == pytest.approx((0.5 + 0.4 + 1.4) / 4)
    assert matrix.average_incremental(A) == pytest.approx((0.8 + 0.75 + 1.6 / 3) / 3)
    assert matrix.relative_gap(A, np.array([0.8, 0.8, 0.8])) == pytest.approx((0.8 - 1.6 / 3) / 0.8)


def test_every_variant_of_forgetting_differs_as_it_should() -> None:
    assert matrix.bwf_vilco(A) == pytest.approx((0.3 + 0.2) / 2)
    assert matrix.bwt(A) == pytest.approx(-0.25)
    assert matrix.cw_forgetting(A) == pytest.approx(0.5 / 3)
    assert matrix.chaudhry_forgetting(A) == pytest.approx((0.4 + 0.2) / 2)  # stage 0 was best after stage 1
    assert matrix.bwf_vilco_weighted(A, np.array([22, 44, 66])) == pytest.approx((22 * 0.3 + 44 * 0.2) / 66)
    assert matrix.bwf_vilco(A, after=1) == pytest.approx(-0.1)
    assert matrix.average_vilco_weighted(A, np.array([22, 44, 66])) == pytest.approx(
        (22 * 0.5 + 44 * 0.4 + 66 * 0.7) / 132
    )
    assert matrix.average_vilco_weighted(A, np.array([22, 44, 66]), after=1) == pytest.approx(
        (22 * 0.9 + 44 * 0.6) / 66
    )


def test_a_stage_that_got_better_in_the_end_counts_as_negative_forgetting() -> None:
    gained = np.array([[0.2, NAN], [0.9, 0.5]])
    for metric in (matrix.chaudhry_forgetting, matrix.bwf_vilco):
        assert metric(gained) == pytest.approx(-0.7)


def test_learning_and_transfer() -> None:
    assert matrix.intransigence(A, np.array([0.9, 0.9, 0.9])) == pytest.approx((0.1 + 0.3 + 0.2) / 3)
    assert matrix.plasticity(A, np.array([0.7, 0.7, 0.7])) == pytest.approx((0.1 - 0.1 + 0.0) / 3)
    assert matrix.plasticity_slope(A) == pytest.approx(-0.05)
    full = np.array([[0.8, 0.3, NAN], [0.9, 0.6, 0.5], [0.5, 0.4, 0.7]])
    assert matrix.fwt_gem(full, np.array([0.1, 0.1, 0.2])) == pytest.approx((0.2 + 0.3) / 2)
    assert math.isnan(matrix.fwt_gem(A, np.zeros(3)))  # what was not measured is not made up


def test_one_stage_has_nothing_to_forget() -> None:
    one = np.array([[0.4]])
    assert matrix.acc(one) == 0.4 and matrix.cw_forgetting(one) == 0
    for metric in (matrix.bwt, matrix.bwf_vilco, matrix.chaudhry_forgetting, matrix.plasticity_slope):
        assert math.isnan(metric(one))
    assert math.isnan(matrix.bwf_vilco_weighted(one, np.array([1.0])))


def test_metrics_inside_stages() -> None:
    dip = np.array([0.8, 0.3, 0.7])
    assert matrix.stability_gap(0.9, dip) == pytest.approx(0.6)
    assert matrix.min_acc([dip, np.array([0.5, 0.6])]) == pytest.approx(0.4)
    assert matrix.wc_acc(0.9, [dip, np.array([0.5, 0.6])]) == pytest.approx(0.9 / 3 + 2 / 3 * 0.4)
    assert matrix.wc_acc(0.9, []) == 0.9
    assert matrix.anytime([np.array([0.8]), np.array([0.4, 0.6])]) == pytest.approx(0.65)
    assert matrix.forward_transfer_cw(np.array([0.6, 0.8]), np.array([0.4, 0.6])) == pytest.approx(0.4)
    assert math.isnan(matrix.forward_transfer_cw(np.array([1.0]), np.array([0.95])))


def test_transfer_over_stages_leaves_out_what_cannot_be_gained() -> None:
    curves = [np.array([0.6, 0.8]), np.array([0.2, 0.2]), np.array([1.0])]
    single = [np.array([0.4, 0.6]), np.array([0.6]), np.array([0.95])]
    assert matrix.forward_transfer_cw_mean(curves, single) == pytest.approx((0.4 - 1.0) / 2)
    assert matrix.learning_gain_cw(curves[2], single[2]) == pytest.approx(0.05)
    assert math.isnan(matrix.forward_transfer_cw_mean(curves[2:], single[2:]))
    pairs = np.array([[NAN, 0.2, 0.5], [NAN, NAN, 0.3], [NAN, NAN, NAN]])
    assert matrix.reference_transfer_cw(pairs) == pytest.approx((0.2 + 0.5) / 3)


@given(arrays(np.float64, st.integers(2, 6).map(lambda n: (n, n)), elements=st.floats(0, 1)))
def test_relations_that_hold_for_every_matrix(a: np.ndarray) -> None:
    t = len(a)
    before = a.copy()
    assert matrix.bwf_vilco(a) == pytest.approx(-matrix.bwt(a))
    assert matrix.cw_forgetting(a) == pytest.approx(matrix.bwf_vilco(a) * (t - 1) / t)
    assert matrix.chaudhry_forgetting(a) >= matrix.bwf_vilco(a) - 1e-12
    assert matrix.bwf_vilco_weighted(a, np.ones(t)) == pytest.approx(matrix.bwf_vilco(a))
    assert matrix.acc_weighted(a, np.full(t, 7)) == pytest.approx(matrix.acc(a))
    # what is gained at one's own time minus what is lost later is the end
    assert np.mean(np.diag(a)) - matrix.cw_forgetting(a) == pytest.approx(matrix.acc(a))
    assert np.array_equal(a, before)  # no metric writes into its argument


def filled(seed: int, better: float = 0.0, n: int = 60) -> ScoreMatrix:
    rng = np.random.default_rng(seed)
    scores = ScoreMatrix("R@1@0.5", ["a", "b", "c"])
    hard = [rng.random(n) for _ in range(3)]
    for i in range(3):
        for j in range(i + 1):
            scores.set(i, j, (hard[j] < 0.6 - 0.1 * (i - j) + better).astype(float))
    return scores


def test_the_matrix_keeps_raw_hits_and_looks_like_the_contract() -> None:
    scores = ScoreMatrix("R@1@0.5", ["a", "b"])
    scores.set(0, 0, [1, 0, 1, 1])
    scores.set(1, 0, [1, 0, 0, 0])
    scores.set(1, 1, [1.0])
    assert scores.to_json() == {"metric": "R@1@0.5", "stages": ["a", "b"], "values": [[0.75, None], [0.25, 1.0]]}
    assert scores.counts().tolist() == [4, 1]
    again = ScoreMatrix.from_state(json.loads(json.dumps(scores.state_dict())))
    assert again.to_json() == scores.to_json() and again.hits[(1, 0)].tolist() == [1, 0, 0, 0]
    with pytest.raises(VilcoError):
        scores.set(1, 0, [1, 0])


def test_query_intervals_are_paired_and_cover() -> None:
    scores = filled(0)
    value, low, high = intervals.over_queries(scores, matrix.bwf_vilco)
    assert low <= value <= high and value == pytest.approx(matrix.bwf_vilco(scores.values()))
    # unpaired resampling of the same cells is wider: the same queries are hard before and after
    rng = np.random.default_rng(0)
    loose = []
    for _ in range(500):
        a = np.full((3, 3), np.nan)
        for (i, j), hits in scores.hits.items():
            a[i, j] = rng.choice(hits, len(hits)).mean()
        loose.append(matrix.bwf_vilco(a))
    assert high - low < 0.8 * (np.quantile(loose, 0.95) - np.quantile(loose, 0.05))
    # 90 % intervals of a mean of 0/1 cover the truth about nine times in ten
    inside = 0
    for seed in range(100):
        one = ScoreMatrix("m", ["a"])
        one.set(0, 0, (np.random.default_rng(seed).random(80) < 0.4).astype(float))
        _, low, high = intervals.over_queries(one, matrix.acc, rounds=300)
        inside += low <= 0.4 <= high
    assert 82 <= inside <= 97


def test_differences_between_runs_are_paired_by_query() -> None:
    value, low, _ = intervals.difference_over_queries(filled(0, 0.15), filled(0), matrix.acc)
    assert value > 0 and low > 0
    same = intervals.difference_over_queries(filled(0), filled(0), matrix.acc)
    assert same == (0, 0, 0)
    with pytest.raises(VilcoError):
        intervals.difference_over_queries(filled(0), filled(0, n=50), matrix.acc)


def test_seed_intervals() -> None:
    value, low, high = intervals.over_seeds([0.5, 0.5, 0.5])
    assert value == low == high == 0.5
    value, low, high = intervals.over_seeds(np.random.default_rng(0).normal(0.6, 0.1, 20))
    assert low < value < high and high - low == pytest.approx(2 * 1.645 * 0.1 / 20**0.5, rel=0.35)
    # forward transfer: areas 0.7 against 0.5 on both stages -> 0.4, known exactly when runs agree
    exact = intervals.transfer_over_seeds(np.full((5, 2), 0.7), [np.full(8, 0.5), np.full(3, 0.5)])
    assert exact == pytest.approx((0.4, 0.4, 0.4))


def test_transfer_intervals_leave_out_what_cannot_be_gained() -> None:
    curves = np.array([[0.6, 1.0], [0.8, 1.0]])
    found = intervals.transfer_over_seeds(curves, [np.array([0.5, 0.5]), np.array([1.0, 0.99])])
    assert found.value == pytest.approx(0.4) and found.low == pytest.approx(0.2) and found.high == pytest.approx(0.6)
    assert math.isnan(intervals.transfer_over_seeds(curves[:, 1:], [np.array([1.0])]).value)


def test_metrics_and_strategy_names_need_no_torch() -> None:
    code = (
        "import sys; from vilco_app.continual import STRATEGIES, matrix, intervals; "
        "assert len(STRATEGIES) == 19 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
