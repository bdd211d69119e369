"""Heads on the pyramid, shared by all levels: one-class score (NLQ), language-anchored score (MQ), boundaries (both)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from vilco_app.network.pyramid import level_lengths

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig


class Tower(nn.Module):
    """Two convolutions (k = 3) along time at each level apart. [B, P, D] -> [B, P, out]."""

    def __init__(self, width: int, out: int, levels: int, small: bool = True) -> None:
        super().__init__()
        self.levels = levels
        self.hidden = nn.Conv1d(width, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.final = nn.Conv1d(width, out, 3, padding=1)
        if small:  # near zero at the start, so that the zero-shot curve decides first
            nn.init.normal_(self.final.weight, std=0.005)
            nn.init.zeros_(self.final.bias)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        length = round(x.shape[1] / (2 - 0.5 ** (self.levels - 1)))
        out = []
        sizes = level_lengths(length, self.levels)
        for part, keep in zip(x.split(sizes, dim=1), mask.split(sizes, dim=1), strict=True):
            weight = keep[:, None].to(x.dtype)  # [B, 1, T]
            y = self.hidden(part.transpose(1, 2) * weight)
            y = F.gelu(self.norm(y.transpose(1, 2))).transpose(1, 2) * weight
            out.append(self.final(y).transpose(1, 2))
        return torch.cat(out, dim=1)


class ScoreHead(nn.Module):
    """NLQ: logit of "this cell lies in the middle of what is asked" [B, P]."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.tower = Tower(config.width, 1, config.levels)
        self.gain = nn.Parameter(torch.full((config.priors,), config.init_prior / max(1, config.priors)))
        self.bias = nn.Parameter(torch.tensor(config.prior_bias))

    def forward(self, x: torch.Tensor, mask: torch.Tensor, priors: torch.Tensor) -> torch.Tensor:
        return self.tower(x, mask)[..., 0] + priors @ self.gain + self.bias


class AnchorHead(nn.Module):
    """MQ: cosine of cells and category texts; any set of categories, no row per class.

    cells [B, P, D], categories [C, D] -> logits [B, P, C]. The background is the learnt threshold `bias`.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        d = config.width
        self.tower = Tower(d, d, config.levels, small=False)
        self.category = nn.Linear(d, d)
        self.scale = nn.Parameter(torch.tensor(config.anchor_scale))
        self.bias = nn.Parameter(torch.tensor(config.prior_bias))
        self.gain = nn.Parameter(torch.full((config.priors,), config.init_prior / max(1, config.priors)))

    def cells(self, pyramid: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Unit anchor vectors [B, P, D]."""
        return F.normalize(self.tower(pyramid, mask), dim=-1)

    def texts(self, pooled: torch.Tensor) -> torch.Tensor:
        """Unit category vectors [C, D]."""
        return F.normalize(self.category(pooled), dim=-1)

    def forward(self, cells: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
        return self.scale * (cells @ texts.transpose(-1, -2)) + self.bias


class BoundaryHead(nn.Module):
    """Distances to start and end [B, P, 2] in units of the level's cells, positive; knows no class."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.levels = config.levels
        self.tower = Tower(config.width, 2, config.levels)
        self.level_scale = nn.Parameter(torch.zeros(config.levels))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        length = round(x.shape[1] / (2 - 0.5 ** (self.levels - 1)))
        sizes = torch.tensor(level_lengths(length, self.levels), device=x.device)
        scale = torch.repeat_interleave(self.level_scale.exp(), sizes)[:, None]
        # + 1: an untrained cell proposes about two cells to either side
        return F.softplus(self.tower(x, mask) + 1.0) * scale
