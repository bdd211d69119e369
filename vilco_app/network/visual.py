"""Visual query head: correspondence maps of frames -> which cells show the thing, and whether the frame does.

A handful of numbers on top of the zero-shot match, and untrained it is that match. A head of convolutions with anchors and box
regression (as VQLoC, Jiang et al., NeurIPS 2023) has 50 000, which twenty examples cannot fix: taught on one list of clips, it
drew worse boxes on another than the match (IoU .35 against .52; docs/learning.md). Every rectangle of cells is an anchor here,
scored by the sum of its cells' evidence (`answering.matching.densest`); peak and track come from the finder.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from vilco_app.network.visual_maps import BEST, CHANNELS, HEAT, STAND, STRETCH

SIGNS = 4  # what tells of a whole frame: best heat, best part, how far the best stands out, how much of the frame stands out
PACE = 30.0  # Adam moves a number by the learning rate a step, whatever it means: 24 steps of 1e-3 shall reach 0.7
SLOPE = 4.0  # logit of a cell per unit of channel 0 at the start: between sure outside and sure inside
BALANCE = 5.0  # a thing covers a twentieth of a frame: the mean over cells is that much smaller than a frame's own loss
SURE = 20.0  # logit of a frame per unit of cosine at the start (answering.calibrate.picture_confidence)


class VisualHead(nn.Module):
    """maps [..., h, w, CHANNELS] (see visual_maps) -> (logits of cells [..., h, w], logits of frames [...])."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Parameter(torch.zeros(CHANNELS + 1))
        self.shown = nn.Parameter(torch.zeros(SIGNS + 1))

    def forward(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        signs = frame_signs(maps)
        cells = SLOPE * maps[..., STAND] + PACE * (maps @ self.cell[:-1] + self.cell[-1])
        best = maps[..., HEAT].flatten(-2).amax(-1) / STRETCH
        return cells, SURE * best + PACE * (signs @ self.shown[:-1] + self.shown[-1])


def frame_signs(maps: torch.Tensor) -> torch.Tensor:
    """maps [..., h, w, CHANNELS] -> [..., SIGNS], each about 0 in a usual frame and about 1 apart between good and bad."""
    heat = maps[..., HEAT].flatten(-2)
    best, middle = heat.amax(-1), heat.median(-1).values
    part = maps[..., BEST].flatten(-2).amax(-1)
    share = (maps[..., STAND] > 0).float().flatten(-2).mean(-1)
    return torch.stack([2.5 * best, part, best - middle - 1.5, 5.0 * share - 0.5], dim=-1)


def cells_inside(boxes: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """boxes [..., 4] x1 y1 x2 y2 (fractions) -> [..., rows, columns] bool: cells whose middle is inside, and the box's own
    middle, so that a thing smaller than a cell has one."""
    y, x = (torch.arange(n, device=boxes.device) for n in (rows, columns))
    x1, y1, x2, y2 = (boxes[..., k, None] for k in range(4))

    def along(at: torch.Tensor, low: torch.Tensor, high: torch.Tensor, count: int) -> torch.Tensor:
        own = ((low + high) / 2 * count).floor().clamp(0, count - 1)
        middle = (at + 0.5) / count
        return ((middle >= low) & (middle <= high)) | (at == own)

    return along(y, y1, y2, rows)[..., :, None] & along(x, x1, x2, columns)[..., None, :]


def frame_loss(
    cells: torch.Tensor, shown: torch.Tensor, boxes: torch.Tensor, present: torch.Tensor, real: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """cells [B, F, h, w], shown [B, F] logits; boxes [B, F, 4]; present, real [B, F] bool -> (shown loss [B], cell loss [B]).

    Cross-entropy of whether a frame shows the thing, over real frames, either sort counting half where both are there;
    and of which cells do, over frames that show it, times BALANCE.
    """
    inside = cells_inside(boxes, *cells.shape[-2:]).to(cells.dtype)
    here, absent = (present & real).to(cells.dtype), (~present & real).to(cells.dtype)
    each = F.binary_cross_entropy_with_logits(shown, present.to(shown.dtype), reduction="none")
    sides = [(each * m).sum(1) / m.sum(1).clamp_min(1) for m in (here, absent)]
    both = ((here.sum(1) > 0).to(cells.dtype) + (absent.sum(1) > 0).to(cells.dtype)).clamp_min(1)
    where = F.binary_cross_entropy_with_logits(cells, inside, reduction="none").mean((-2, -1))
    return (sides[0] + sides[1]) / both, BALANCE * (where * here).sum(1) / here.sum(1).clamp_min(1)


def jl_projection(channels: int, dim: int) -> torch.Tensor:
    """Fixed random projection [channels, dim] that keeps inner products on average (Johnson-Lindenstrauss); the same
    everywhere because its seed is part of the format."""
    rng = torch.Generator().manual_seed(20240613)
    return torch.randn(channels, dim, generator=rng) / dim**0.5
