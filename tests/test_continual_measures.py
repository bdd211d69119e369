"""Plasticity, routing and cost measures against cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vilco_app.continual import measures


def test_effective_rank_counts_directions() -> None:
    assert measures.effective_rank(np.eye(5)) == pytest.approx(5)
    assert measures.effective_rank(np.outer([1, 2, 3], [1, 0, 1, 0])) == pytest.approx(1)
    # singular values 3 and 1: shares 3/4 and 1/4
    assert measures.effective_rank(np.diag([3.0, 1.0])) == pytest.approx(
        math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    )
    assert measures.effective_rank(np.zeros((3, 3))) == 0
    offset = np.eye(4) + 100
    assert measures.effective_rank(offset) < 1.3 and measures.effective_rank(offset, centre=True) == pytest.approx(3)
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    x = np.random.default_rng(1).normal(size=(9, 4))
    assert measures.effective_rank(7 * x @ turned) == pytest.approx(measures.effective_rank(x))


def test_feature_rank_is_the_least_that_holds_the_share() -> None:
    assert measures.feature_rank(np.diag([96.0, 3.0, 1.0])) == 2  # 99 % reached exactly by two
    assert measures.feature_rank(np.diag([96.0, 2.0, 2.0])) == 3
    assert measures.feature_rank(np.eye(6)) == 6 and measures.feature_rank(np.zeros((2, 2))) == 0


def test_dormant_units_are_those_far_below_their_layer() -> None:
    layer = np.array([[1.0, -1.0, 0.0, 0.02], [-1.0, 1.0, 0.0, -0.02]])  # sizes 1, 1, 0, 0.02; mean 0.505
    assert measures.dormant_share([layer]) == 0.25
    assert measures.dormant_share([layer], tau=0.04) == 0.5  # 0.0202 is above 0.02, 0.02 below it
    assert measures.dormant_share([layer, np.ones((2, 4))]) == 0.125
    assert measures.dormant_share([np.zeros((2, 3))]) == 1
    assert math.isnan(measures.dormant_share([]))
    assert measures.dormant_share([100 * layer]) == 0.25  # of a layer, so its scale does not count


def test_weight_norm_is_a_root_mean_square() -> None:
    assert measures.weight_norm([np.array([3.0, 4.0]), np.zeros((1, 2))]) == pytest.approx(math.sqrt(25 / 4))
    assert math.isnan(measures.weight_norm([]))


WEIGHTS = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.5, 0.4]])
OWNERS = [0, 0, 1]


def test_routing_by_the_heaviest_slot_and_by_weight() -> None:
    assert measures.routed(WEIGHTS, OWNERS).tolist() == [0, 0, 0]
    assert measures.routing_accuracy(WEIGHTS, OWNERS, [0, 0, 1]) == pytest.approx(2 / 3)
    confusion = measures.routing_confusion(WEIGHTS, OWNERS, [0, 0, 1], 3)
    assert confusion[0] == pytest.approx([0.9, 0.1, 0]) and confusion[1] == pytest.approx([0.6, 0.4, 0])
    assert np.isnan(confusion[2]).all()  # nobody asked for stage 2
    assert math.isnan(measures.routing_accuracy(np.zeros((2, 0)), [], [0, 1]))


def test_usage_entropy_is_one_for_even_use_and_none_for_one_slot() -> None:
    assert measures.usage_entropy(np.eye(4)) == pytest.approx(1)
    assert measures.usage_entropy(np.array([[1.0, 0.0], [1.0, 0.0]])) == 0
    assert measures.usage_entropy(np.array([[0.75, 0.25]])) == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2)
    )
    assert math.isnan(measures.usage_entropy(np.ones((3, 1))))


def test_costs_are_told_against_fine_tuning() -> None:
    assert measures.relative_cost({"naive": 4.0, "ewc": 6.0}, "naive") == {"naive": 1.0, "ewc": 1.5}
