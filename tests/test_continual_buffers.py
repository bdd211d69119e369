"""Replay buffers: uniformity, balance, order of herding, forgetting, state."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vilco_app.continual.buffers import Balanced, Buffer, Herding, Reservoir, Unlimited, herd, make_buffer
from vilco_app.continual.protocols import Sample
from vilco_app.continual.state import pack, unpack
from vilco_app.values import VilcoError


def sample(i: int, group: str = "", start: float = 0.0, video: str = "v") -> Sample:
    return Sample(f"s{i}", {"x": torch.full((3,), float(i))}, {"y": torch.tensor([float(i) + 1 / 3])}, 0, group,
                  spans=((video, start, start + 2.0),))  # fmt: skip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_reservoir_keeps_every_sample_of_the_stream_equally_often() -> None:
    stream, capacity, rounds = 40, 10, 800
    counts = np.zeros(stream)
    rng = generator()
    for _ in range(rounds):
        buffer = Reservoir(capacity)
        for first in (0, 13, 29):  # three stages of unequal size
            buffer.add([sample(i) for i in range(first, {0: 13, 13: 29, 29: 40}[first])], rng)
        assert len(buffer) == capacity and buffer.seen == stream
        for s in buffer:
            counts[int(s.id[1:])] += 1
    expected = rounds * capacity / stream
    chi2 = ((counts - expected) ** 2 / (expected * (1 - capacity / stream))).sum()
    assert chi2 < 62.4  # 99 % quantile of chi-square with 39 degrees of freedom


def test_a_plain_keep_the_latest_buffer_would_fail_the_uniformity_test() -> None:
    counts = np.r_[np.zeros(30), np.full(10, 800.0)]
    assert ((counts - 200) ** 2 / 150).sum() > 62.4


def test_balanced_buffer_takes_from_the_largest_group_only() -> None:
    buffer, rng = Balanced(12), generator()
    buffer.add([sample(i, "common") for i in range(50)], rng)
    buffer.add([sample(100 + i, "rare") for i in range(3)], rng)
    buffer.add([sample(200 + i, "middle") for i in range(9)], rng)
    sizes = {g: len(m) for g, m in buffer.groups().items()}
    assert len(buffer) == 12 and sizes["rare"] == 3 and {sizes["common"], sizes["middle"]} == {4, 5}


def test_balanced_sampling_rehearses_rare_groups_as_often() -> None:
    buffer, rng = Balanced(40), generator()
    buffer.add([sample(i, "common") for i in range(36)], rng)
    buffer.add([sample(100 + i, "rare") for i in range(4)], rng)
    drawn = [s.group for _ in range(50) for s in buffer.sample(8, rng)]
    assert drawn.count("rare") == drawn.count("common") == 200
    # a group's members are all drawn before any is drawn again
    assert len({s.id for s in buffer.sample(8, rng) if s.group == "rare"}) == 4


def test_herding_picks_the_order_that_follows_the_mean() -> None:
    # unit vectors at angles; the mean points at 0 degrees, so the middle one comes first, then the pair around it
    angles = torch.tensor([0.0, 80.0, -80.0, 20.0, -20.0]) * torch.pi / 180
    vectors = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([[1.0], [3.0], [3.0], [2.0], [2.0]])
    mean = torch.nn.functional.normalize(vectors, dim=1).mean(0)
    order = herd(vectors, 3)
    unit = torch.nn.functional.normalize(vectors, dim=1)
    for k in range(3):  # greedy optimality of each step, by exhaustion

        def gap(last: int, k: int = k) -> float:
            return float((mean - unit[[*order[:k], last]].mean(0)).norm())

        assert all(gap(order[k]) <= gap(i) + 1e-6 for i in range(5) if i not in order[:k])


def test_herding_of_three_vectors_by_hand() -> None:
    # unit rows: mean (.533, .6); third is nearest (.21); with the first the mean is .33 away, with the second .38
    assert herd(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), 3) == [2, 0, 1]


def test_herding_shrinks_groups_from_the_end_of_their_order() -> None:
    rng = generator()
    vectors = {f"s{i}": torch.randn(4, generator=rng) for i in range(60)}
    buffer = Herding(12)
    buffer.add([sample(i, "a") for i in range(20)], rng, lambda s: vectors[s.id])
    first = [s.id for s in buffer]
    assert first == [f"s{i}" for i in herd(torch.stack([vectors[f"s{i}"] for i in range(20)]), 12)]
    buffer.add([sample(i, "b") for i in range(20, 40)], rng, lambda s: vectors[s.id])
    assert {g: len(m) for g, m in buffer.groups().items()} == {"a": 6, "b": 6}
    assert [s.id for s in buffer if s.group == "b"] == [
        f"s{20 + i}" for i in herd(torch.stack([vectors[f"s{i}"] for i in range(20, 40)]), 6)
    ]


@pytest.mark.parametrize("policy", ["reservoir", "balanced", "herding", "unlimited"])
def test_features_are_halved_targets_exact_and_state_survives_files(policy: str) -> None:
    rng = generator(3)
    buffer = make_buffer(policy, 7)
    buffer.add([sample(i, f"g{i % 3}", float(i)) for i in range(30)], rng, lambda s: s.features["x"].float())
    kept = buffer.samples[0]
    assert kept.features["x"].dtype == torch.float16
    assert kept.targets["y"].dtype == torch.float32 and float(kept.targets["y"]) == pytest.approx(
        int(kept.id[1:]) + 1 / 3, abs=1e-6
    )
    tensors, tree = pack(buffer.state_dict())
    other = make_buffer(policy, 7)
    other.load_state_dict(unpack(tensors, json.loads(json.dumps(tree))))
    a, b = generator(5), generator(5)
    assert [s.id for s in buffer.sample(20, a)] == [s.id for s in other.sample(20, b)]
    more = [sample(100 + i, "g9", 1.0) for i in range(10)]
    buffer.add(more, a, lambda s: s.features["x"].float())
    other.add(more, b, lambda s: s.features["x"].float())
    assert [s.id for s in buffer] == [s.id for s in other]
    with pytest.raises(VilcoError):
        make_buffer("balanced" if policy != "balanced" else "herding", 7).load_state_dict(buffer.state_dict())


def test_the_same_id_replaces_instead_of_adding() -> None:
    for buffer in (Reservoir(5), Balanced(5), Herding(5), Unlimited()):
        rng = generator()
        buffer.add([sample(1), sample(2)], rng)
        corrected = Sample("s1", {"x": torch.zeros(3)}, {"y": torch.tensor([9.0])})
        buffer.add([corrected], rng)
        assert sorted(s.id for s in buffer) == ["s1", "s2"]
        assert [float(s.targets["y"]) for s in buffer if s.id == "s1"] == [9.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 100)), max_size=20), st.floats(0, 100), st.floats(0, 50))
def test_forget_removes_exactly_what_overlaps(cuts: list[tuple[str, float]], start: float, length: float) -> None:
    buffer = Buffer()
    buffer.add([sample(i, "", at, video) for i, (video, at) in enumerate(cuts)], generator())
    gone = {i for i, (video, at) in enumerate(cuts) if video == "a" and at < start + length and at + 2.0 > start}
    assert buffer.forget("a", start, start + length) == len(gone)
    assert {s.id for s in buffer} == {f"s{i}" for i in range(len(cuts)) if i not in gone}


def test_a_reservoir_stays_fair_after_forgetting() -> None:
    """Half the stream is forgotten; the rest and what comes after are kept about equally often."""
    counts, rng = np.zeros(60), generator()
    for _ in range(600):
        buffer = Reservoir(12)
        buffer.add([sample(i, video="gone" if i % 2 else "kept") for i in range(40)], rng)
        buffer.forget("gone", 0.0, 1e9)
        buffer.add([sample(i) for i in range(40, 60)], rng)
        assert len(buffer) <= 12
        for s in buffer:
            counts[int(s.id[1:])] += 1
    assert counts[1:40:2].sum() == 0
    old, new = counts[0:40:2].mean(), counts[40:].mean()
    assert 0.85 < old / new < 1.18


def test_sampling_repeats_only_when_it_must() -> None:
    buffer, rng = Unlimited(), generator()
    buffer.add([sample(i) for i in range(5)], rng)
    assert len({s.id for s in buffer.sample(5, rng)}) == 5
    assert sorted({s.id: 0 for s in buffer.sample(12, rng)}) == [f"s{i}" for i in range(5)]
    assert Unlimited().sample(3, rng) == [] and buffer.sample(0, rng) == []
    with pytest.raises(VilcoError):
        Reservoir(0)
    with pytest.raises(VilcoError):
        make_buffer("newest", 5)
