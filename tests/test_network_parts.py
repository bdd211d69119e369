"""The network's parts against closed forms: grid, losses, target assignment, soft-NMS, pyramid, prompts, key index."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vilco_app.network.config import NetworkConfig
from vilco_app.network.decode import iou_1d, soft_nms
from vilco_app.network.grid import Grid, grid_of, points, shown
from vilco_app.network.keys import KeyIndex, version_of
from vilco_app.network.losses import assign, diou_1d, focal, info_nce
from vilco_app.network.prompts import PromptMemory, spherical_kmeans
from vilco_app.network.pyramid import LocalAttention, VideoSide, pool_levels
from vilco_app.network.vilco import ViLCo
from vilco_app.values import VilcoError


def small(**changes: object) -> NetworkConfig:
    sizes = {"width": 16, "heads": 2, "levels": 3, "stem_blocks": 1, "window": 4, "prompt_length": 3, "dropout": 0.0}
    return NetworkConfig(10, 6, 2, **{**sizes, **changes})  # type: ignore[arg-type]


# -- seconds and cells


def test_seconds_to_cells_and_back_is_exact_at_window_edges() -> None:
    grid = Grid(start=7.25, stride=0.5, length=40)
    for seconds in (7.25, 7.5, 7.75, 27.25, 12.3456):
        assert float(grid.seconds(grid.cells(seconds))) == pytest.approx(seconds, abs=1e-12)
    assert float(grid.cells(7.25)) == 0.0 and float(grid.cells(27.25)) == 40.0
    assert float(grid.crop(4, 10).cells(9.25)) == 0.0


def test_decoding_the_taught_distances_gives_the_window_back() -> None:
    config = small()
    u, scale = points(64, config.levels)
    windows = torch.tensor([[10.3, 17.9], [40.0, 63.5]])
    hit, reach = assign(windows, torch.tensor(u).float(), torch.tensor(scale).float(), config.ranges())
    assert hit.any()
    for k in torch.nonzero(hit)[:, 0].tolist():
        start, end = u[k] - float(reach[k, 0]) * scale[k], u[k] + float(reach[k, 1]) * scale[k]
        assert min(abs(start - a) + abs(end - b) for a, b in windows.tolist()) < 1e-4


def test_points_sit_in_the_middle_of_their_cells() -> None:
    u, scale = points(8, 3)
    assert len(u) == 8 + 4 + 2
    assert u[:2].tolist() == [0.5, 1.5] and u[8:10].tolist() == [1.0, 3.0] and u[12:].tolist() == [2.0, 6.0]
    assert set(scale[12:].tolist()) == {4.0}


def test_cells_show_the_sample_on_display_and_holes_are_invalid() -> None:
    times = np.array([0.0, 0.4999, 1.0003, 5.0])
    rows, valid = shown(times, np.full(4, 0.5), grid_of(5.5, 0.5))
    assert rows[:3].tolist() == [0, 1, 2]
    assert valid[:3].all() and not valid[4:9].any() and valid[10]


def test_grid_covers_the_recording() -> None:
    assert grid_of(10.0, 0.5).length == 20 and grid_of(10.01, 0.5).length == 21 and grid_of(0.1, 0.5).length == 1


# -- losses


def test_focal_loss_by_hand() -> None:
    p = 1 / (1 + math.exp(-0.7))
    got = focal(torch.tensor([0.7, 0.7]), torch.tensor([1.0, 0.0]))
    assert got[0].item() == pytest.approx(-0.25 * (1 - p) ** 2 * math.log(p), rel=1e-5)
    assert got[1].item() == pytest.approx(-0.75 * p**2 * math.log(1 - p), rel=1e-5)


def test_diou_by_hand() -> None:
    # point at 0; predicted [-2, 2], true [-1, 3]: overlap 3, union 5, centre distance 1, hull 5
    got = diou_1d(torch.tensor([2.0, 2.0]), torch.tensor([1.0, 3.0]))
    assert got.item() == pytest.approx(1 - 3 / 5 + (1 / 5) ** 2)
    assert diou_1d(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 3.0])).item() == pytest.approx(0.0, abs=1e-6)


def test_info_nce_by_hand_and_negatives_only_add_to_one_direction() -> None:
    v, t = torch.eye(2), torch.eye(2)
    one_way = -math.log(math.e / (math.e + 1))
    assert info_nce(v, t, temperature=1.0).item() == pytest.approx(2 * one_way, rel=1e-5)
    with_negative = info_nce(v, t, torch.tensor([[1.0, 1.0]]), temperature=1.0).item()
    s = math.exp(1 / math.sqrt(2))
    assert with_negative == pytest.approx(one_way - math.log(math.e / (math.e + 1 + s)), rel=1e-5)


def test_every_window_is_taught_somewhere_even_a_tiny_one() -> None:
    config = small()
    u, scale = (torch.tensor(a).float() for a in points(64, config.levels))
    for window in ([3.02, 3.04], [0.0, 0.3], [63.9, 64.0], [0.0, 64.0], [31.9, 32.1]):
        hit, _ = assign(torch.tensor([window]), u, scale, config.ranges())
        assert hit.any(), window


def test_a_negative_teaches_no_point() -> None:
    u, scale = (torch.tensor(a).float() for a in points(64, 3))
    hit, reach = assign(torch.zeros(0, 2), u, scale, small().ranges())
    assert not hit.any() and float(reach.abs().sum()) == 0.0


def test_the_shortest_of_overlapping_windows_is_taught() -> None:
    u, scale = (torch.tensor(a).float() for a in points(64, 3))
    hit, reach = assign(torch.tensor([[18.0, 24.0], [20.0, 23.0]]), u, scale, small().ranges())
    at = int(torch.nonzero((u == 21.5) & (scale == 1))[0])
    assert hit[at] and reach[at].tolist() == [1.5, 1.5]


# -- decoding


def test_soft_nms_decays_by_the_gaussian_of_iou() -> None:
    windows = np.array([[0.0, 10.0], [0.0, 5.0], [20.0, 30.0]])
    kept, scores = soft_nms(windows, np.array([0.9, 0.8, 0.5]), sigma=0.5)
    assert kept.tolist() == [[0.0, 10.0], [20.0, 30.0], [0.0, 5.0]] or scores[1] == pytest.approx(0.8 * math.exp(-0.5))
    assert sorted(scores.tolist()) == pytest.approx(sorted([0.9, 0.5, 0.8 * math.exp(-(0.5**2) / 0.5)]))
    assert (np.diff(scores) <= 0).all()


def test_iou_of_windows() -> None:
    got = iou_1d(np.array([[0.0, 2.0]]), np.array([[1.0, 3.0], [5.0, 6.0]]))
    assert got.tolist() == [[pytest.approx(1 / 3), 0.0]]


# -- video side


def test_local_attention_sees_its_window_and_no_further() -> None:
    torch.manual_seed(0)
    layer = LocalAttention(8, 2, window=4, dropout=0.0).eval()
    x = torch.randn(1, 32, 8)
    mask = torch.ones(1, 32, dtype=torch.bool)
    before = layer(x, mask)
    changed = x.clone()
    changed[0, 20] += 5.0
    moved = (layer(changed, mask) - before).abs().sum(-1)[0] > 1e-6
    assert torch.nonzero(moved)[:, 0].tolist() == list(range(16, 25))


def test_padding_and_invalid_cells_change_nothing() -> None:
    config = small()
    net = VideoSide(config).eval()
    x = torch.randn(1, 16, 10)
    mask = torch.ones(1, 16, dtype=torch.bool)
    mask[0, 13:] = False
    y, seen = net(x, mask)
    other = x.clone()
    other[0, 13:] = 99.0
    assert torch.allclose(net(other, mask)[0][seen], y[seen], atol=1e-5)
    longer, wide = torch.cat([x, torch.full((1, 16, 10), 7.0)], 1), torch.cat([mask, torch.zeros_like(mask)], 1)
    z, seen2 = net(longer, wide)
    assert torch.allclose(z[seen2], y[seen], atol=1e-5)


def test_the_same_footage_gives_the_same_features_wherever_it_is_cut() -> None:
    net = VideoSide(small(levels=2)).eval()
    x = torch.randn(1, 96, 10)
    ones = torch.ones(1, 96, dtype=torch.bool)
    whole = net(x, ones)[0][0, :96]
    part = net(x[:, 32:], ones[:, 32:])[0][0, :64]
    # away from the cut (two blocks of window 4, three convolutions, one halving) nothing knows of it
    assert torch.allclose(part[24:], whole[56:], atol=1e-5)


def test_levels_are_means_of_valid_cells() -> None:
    curve = torch.tensor([1.0, 3.0, 5.0, 100.0])[None, :, None]
    mask = torch.tensor([[True, True, True, False]])
    assert pool_levels(curve, mask, 3)[0, 4:, 0].tolist() == [2.0, 5.0, 3.5]


# -- prompts


def test_fixed_pool_takes_the_nearest_prompts_and_masks_cover_them() -> None:
    config = small(prompts="prepend", pool=5, top_n=2)
    memory = PromptMemory(config, torch.Generator().manual_seed(0))
    query = memory.keys.data[3:4] * 2.5
    tokens, mask = torch.randn(1, 4, 6), torch.tensor([[True, True, False, False]])
    out, seen, pull = memory(query, tokens, mask)
    assert out.shape == (1, 2 * 3 + 4, 6) and seen[0].tolist() == [True] * 8 + [False] * 2
    assert torch.equal(out[0, :3], memory.prompts[3]) and torch.equal(out[0, 6:], tokens[0])
    assert 0.5 < float(pull) <= 1.0


def test_replace_mode_leaves_no_query_token() -> None:
    memory = PromptMemory(small(prompts="replace", pool=5, top_n=2), torch.Generator().manual_seed(0))
    out, seen, _ = memory(torch.randn(2, 6), torch.randn(2, 4, 6), torch.ones(2, 4, dtype=torch.bool))
    assert out.shape == (2, 6, 6) and seen.all()


def test_keys_of_the_fixed_pool_learn_from_the_first_stage_on() -> None:
    memory = PromptMemory(small(prompts="prepend"), torch.Generator().manual_seed(0))
    _, _, pull = memory(torch.randn(3, 6), torch.randn(3, 4, 6), torch.ones(3, 4, dtype=torch.bool))
    (-pull.sum()).backward()
    assert memory.keys.grad is not None and float(memory.keys.grad.abs().sum()) > 0


def test_soft_mode_keys_are_the_stage_s_own_and_never_trained() -> None:
    memory = PromptMemory(small(stage_slots=2), torch.Generator().manual_seed(0))
    a, b = torch.eye(6)[0], torch.eye(6)[1]
    assert len(memory) == 0
    memory.open(torch.stack([a, a, b]), 0, torch.Generator().manual_seed(1))
    assert len(memory) == 2 and not memory.keys.requires_grad
    w = memory.weights(torch.stack([a, b]))
    assert float(w.max(1).values.min()) > 0.99 and w.argmax(1)[0] != w.argmax(1)[1]
    memory.close()
    memory.open(torch.eye(6)[2][None], 1, torch.Generator().manual_seed(2))
    assert memory.closed == 2 and len(memory) == 3 and memory.stage_of == [0, 0, 1]
    assert memory.routing(torch.eye(6)[2][None], [1])[1] == 1.0


def test_random_prompts_are_not_trained_and_off_changes_nothing() -> None:
    assert not any(p.requires_grad for p in PromptMemory(small(prompts="random"), torch.Generator()).parameters())
    memory = PromptMemory(small(prompts="off"), torch.Generator())
    tokens, mask = torch.randn(1, 4, 6), torch.ones(1, 4, dtype=torch.bool)
    out, seen, _ = memory(torch.randn(1, 6), tokens, mask)
    assert out is tokens and seen is mask


def test_kmeans_finds_separate_directions() -> None:
    x = torch.eye(4).repeat_interleave(5, 0)
    centres = spherical_kmeans(x, 4, torch.Generator().manual_seed(3))
    assert torch.allclose((x @ centres.T).max(1).values, torch.ones(20), atol=1e-6)


def test_key_index_agrees_with_the_matmul_and_refuses_other_keys() -> None:
    keys = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    index = KeyIndex(keys)
    query = keys[7:8] * 3
    scores, slots = index.search(query, 3)
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    assert slots[0].tolist() == np.argsort(-(unit @ unit[7]))[:3].tolist() and scores[0, 0] == pytest.approx(
        1.0, abs=1e-5
    )
    old = index.version
    index.refresh(keys[:10] * 2 + 1)
    with pytest.raises(VilcoError):
        index.search(query, 3, old)
    assert index.version == version_of(keys[:10] * 2 + 1)
    assert KeyIndex(np.zeros((0, 8))).search(query, 3)[1].shape == (1, 0)


# -- the whole


def test_an_untrained_network_ranks_by_the_zero_shot_curve() -> None:
    net = ViLCo(small()).eval()
    x, mask = torch.randn(1, 32, 10), torch.ones(1, 32, dtype=torch.bool)
    curve = torch.zeros(1, 32, 2)
    curve[0, 9] = 6.0
    with torch.inference_mode():
        code = net.code(torch.randn(1, 6), torch.randn(1, 3, 6), torch.ones(1, 3, dtype=torch.bool))
        pyramid, seen = net.video(x, mask)
        logits, distance = net.ground(pyramid, seen, code, pool_levels(curve, mask, 3))
    assert int(logits[0].argmax()) == 9 and (distance > 0).all() and logits.shape == (1, 56)


def test_the_same_seed_builds_the_same_network_and_leaves_chance_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a = ViLCo(small(seed=3))
    assert torch.equal(torch.rand(1), expected)
    b = ViLCo(small(seed=3))
    assert all(torch.equal(p, q) for p, q in zip(a.state_dict().values(), b.state_dict().values(), strict=True))
