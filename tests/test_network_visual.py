"""The picture head by closed forms: what it reads, what it is taught, what it says untrained."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vilco_app.network.visual import BALANCE, SLOPE, VisualHead, cells_inside, frame_loss, frame_signs
from vilco_app.network.visual_maps import (
    ALIKE,
    BEST,
    CHANNELS,
    EVEN,
    FAR,
    HEAT,
    PART,
    STAND,
    STRETCH,
    USUAL,
    WIDE,
    correspondences,
    smoothed,
    standing,
)


def test_heat_stands_between_its_median_and_its_maximum() -> None:
    heat = np.array([[0.1, 0.2, 0.3], [0.2, 0.8, 0.2], [0.2, 0.2, 0.5]])
    found = standing(heat)
    assert found[0, 1] == pytest.approx(-0.5) and found[1, 1] == pytest.approx(0.5) and found[2, 2] == pytest.approx(0)
    assert np.isfinite(standing(np.full((2, 2), 0.3))).all()
    assert standing(np.array([[0.5, 0.5, 0.5, -0.9]])).min() == -2.0


def test_smoothing_is_the_mean_of_nine_with_the_rim_repeated() -> None:
    heat = np.zeros((3, 4))
    heat[0, 0] = 9.0
    found = smoothed(heat)
    assert found[1, 1] == pytest.approx(1.0) and found[0, 0] == pytest.approx(4.0) and found[2, 3] == 0


def test_correspondences_by_hand() -> None:
    axes = np.eye(4)
    cells = np.tile(axes[0], (3, 5, 1))
    cells[1, 3] = axes[1]  # the thing
    cells[2, 4] = 0.6 * axes[1] + 0.8 * axes[2]  # another part of it
    maps = correspondences(cells, cells @ axes[1], np.stack([axes[1], axes[2]]))
    assert maps.shape == (3, 5, CHANNELS) and maps.dtype == np.float32
    assert maps[1, 3, STAND] == pytest.approx(0.5) and maps[0, 0, STAND] == pytest.approx(-0.5)
    assert maps[2, 4, STAND] == pytest.approx(0.1)
    assert maps[1, 3, HEAT] == pytest.approx(STRETCH * (1 - EVEN))
    assert maps[2, 4, BEST] == pytest.approx(STRETCH * (0.8 - USUAL)) and maps[2, 4, PART] == pytest.approx(0.3)
    assert maps[1, 0, FAR] == pytest.approx(3 / 3) and maps[1, 3, FAR] == 0
    near = 0.5 * axes[1] + 0.1 * cells[2, 4]  # around the best place, by how far it stands out
    alike = cells @ near / np.linalg.norm(near)
    assert maps[..., ALIKE] == pytest.approx(standing(alike), abs=1e-5)
    assert maps[..., WIDE] == pytest.approx(smoothed(standing(cells @ axes[1])), abs=1e-5)


def test_an_untrained_head_says_what_the_match_says() -> None:
    heat = np.random.default_rng(0).uniform(-0.2, 0.7, (4, 6))
    cells = np.random.default_rng(1).normal(size=(4, 6, 8))
    maps = torch.from_numpy(correspondences(cells, heat, cells[0]))
    inside, shown = VisualHead()(maps[None])
    assert inside[0].detach().numpy() == pytest.approx(SLOPE * standing(heat), abs=1e-5)
    assert float(shown.detach()) == pytest.approx(20 * (heat.max() - EVEN), abs=1e-4)
    assert frame_signs(maps)[0] == pytest.approx(2.5 * STRETCH * (heat.max() - EVEN), abs=1e-4)


def test_cells_inside_a_box_and_the_one_cell_of_a_small_one() -> None:
    box = torch.tensor([[0.25, 0.0, 0.75, 0.5], [0.51, 0.51, 0.52, 0.52], [0.99, 0.99, 1.0, 1.0]])
    found = cells_inside(box, 4, 4)
    assert found[0].tolist() == [[False, True, True, False]] * 2 + [[False] * 4] * 2
    assert found[1].nonzero().tolist() == [[2, 2]] and found[2].nonzero().tolist() == [[3, 3]]


def test_the_loss_by_hand() -> None:
    cells = torch.zeros(1, 3, 2, 2)
    cells[0, 0, 0, 0] = 2.0
    shown = torch.tensor([[1.0, -2.0, 9.0]])
    boxes = torch.tensor([[[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]])
    real = torch.tensor([[True, True, False]])  # the third is padding
    score, where = frame_loss(cells, shown, boxes, torch.tensor([[True, False, False]]), real)
    right, wrong = np.log1p(np.exp(-1.0)), np.log1p(np.exp(-2.0))
    assert float(score) == pytest.approx((right + wrong) / 2, abs=1e-5)
    assert float(where) == pytest.approx(BALANCE * (np.log1p(np.exp(-2.0)) + 3 * np.log(2)) / 4, abs=1e-5)
    absent, nowhere = frame_loss(cells, shown, boxes, torch.zeros(1, 3, dtype=torch.bool), real)
    assert float(absent) == pytest.approx((np.log1p(np.exp(1.0)) + wrong) / 2, abs=1e-5) and float(nowhere) == 0
