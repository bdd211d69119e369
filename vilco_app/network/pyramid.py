"""The video side: projection, local-window transformer, feature pyramid. Knows no query, so it is computed once per video.

Follows ActionFormer (Zhang et al., ECCV 2022: local self-attention, a block per level, heads shared over levels) with two
changes: no absolute position (the same footage gives the same features wherever a clip is cut), and a top-down path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig


class LocalAttention(nn.Module):
    """Self-attention in which cell i sees cells i - window .. i + window. [B, T, D], mask [B, T] -> [B, T, D]."""

    def __init__(self, width: int, heads: int, window: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.window, self.dropout = heads, window, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        w, h = self.window, self.heads
        n = -(-t // w)  # blocks of w cells; block k sees blocks k-1, k, k+1
        pad = n * w - t
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        # queries [B, n, H, w, d/H]
        q = F.pad(q, (0, 0, 0, pad)).reshape(b, n, w, h, d // h).transpose(2, 3)
        k, v = (self._neighbours(F.pad(a, (0, 0, w, w + pad)), n, h) for a in (k, v))
        seen = F.pad(mask, (w, w + pad)).unfold(1, 3 * w, w)  # [B, n, 3w]
        i = torch.arange(w, device=x.device)[:, None] + w
        j = torch.arange(3 * w, device=x.device)[None]
        near = (i - j).abs() <= w  # [w, 3w]
        allowed = near & seen[:, :, None, None, :]
        # a cell always sees itself: rows with nothing to see would be NaN
        allowed = allowed | (i == j)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(2, 3).reshape(b, n * w, d)[:, :t]
        out: torch.Tensor = self.out(y)
        return out

    def _neighbours(self, a: torch.Tensor, blocks: int, heads: int) -> torch.Tensor:
        """[B, (n + 2) w, D] -> [B, n, H, 3w, D/H]: each block with both neighbours."""
        b, _, d = a.shape
        parts = a.unfold(1, 3 * self.window, self.window)[:, :blocks]  # [B, n, D, 3w]
        return parts.reshape(b, blocks, heads, d // heads, 3 * self.window).transpose(3, 4)


class Block(nn.Module):
    """Pre-norm block: depth-wise convolution (k = 3), local attention, MLP; residual branches scaled by a learnt vector."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        d = config.width
        self.mix = nn.Conv1d(d, d, 3, padding=1, groups=d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = LocalAttention(d, config.heads, config.window, config.dropout)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(2 * d, d))
        self.scale1 = nn.Parameter(torch.full((d,), config.layer_scale))
        self.scale2 = nn.Parameter(torch.full((d,), config.layer_scale))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        keep = mask[..., None].to(x.dtype)
        y = self.norm1(x) * keep
        y = y + self.mix(y.transpose(1, 2)).transpose(1, 2)
        x = x + self.scale1 * self.attention(y, mask)
        x = x + self.scale2 * self.mlp(self.norm2(x))
        out: torch.Tensor = x * keep
        return out


class VideoSide(nn.Module):
    """features [B, T, Dv], mask [B, T] bool -> pyramid [B, P, D] and its mask [B, P], levels one after the other.

    T must be a multiple of 2^(levels-1). The mean and scale of the features are buffers, set once from the first stage.
    """

    mean: torch.Tensor
    inverse: torch.Tensor

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        d = config.width
        self.register_buffer("mean", torch.zeros(config.video_dim))
        self.register_buffer("inverse", torch.ones(config.video_dim))
        self.project = nn.Linear(config.video_dim, d)
        self.embed = nn.Conv1d(d, d, 3, padding=1)
        self.norm = nn.LayerNorm(d)
        self.stem = nn.ModuleList(Block(config) for _ in range(config.stem_blocks))
        self.branch = nn.ModuleList(Block(config) for _ in range(config.levels - 1))
        self.lateral = nn.ModuleList(nn.Linear(d, d) for _ in range(config.levels))
        self.out = nn.ModuleList(nn.LayerNorm(d) for _ in range(config.levels))

    def set_statistics(self, mean: torch.Tensor, std: torch.Tensor) -> None:
        """Centre and scale of the features [Dv], from the first stage learnt."""
        self.mean.copy_(mean)
        self.inverse.copy_(1.0 / std.clamp_min(1e-4))

    def forward(self, features: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.project((features - self.mean) * self.inverse) * mask[..., None]
        x = self.norm(x + F.gelu(self.embed(x.transpose(1, 2))).transpose(1, 2)) * mask[..., None]
        return self.climb(x, mask)

    def climb(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Embedded cells [B, T, D] -> pyramid (early fusion enters here)."""
        for block in self.stem:
            x = block(x, mask)
        levels, masks = [x], [mask]
        for block in self.branch:
            x, mask = halve(x, mask)
            x = block(x, mask)
            levels.append(x)
            masks.append(mask)
        top = torch.zeros_like(levels[-1])
        out: list[torch.Tensor] = []
        for level in range(len(levels) - 1, -1, -1):
            if level < len(levels) - 1:
                top = top.repeat_interleave(2, dim=1)
            top = self.lateral[level](levels[level]) + top
            out.append(self.out[level](top) * masks[level][..., None])
        return torch.cat(out[::-1], dim=1), torch.cat(masks, dim=1)


def halve(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean of the valid ones of each pair of cells: [B, T, D] -> [B, T/2, D]; a pair is valid when one of it is."""
    b, t, d = x.shape
    pairs = x.reshape(b, t // 2, 2, d)
    valid = mask.reshape(b, t // 2, 2)
    weight = valid.to(x.dtype)
    mean = (pairs * weight[..., None]).sum(2) / weight.sum(2, keepdim=True).clamp_min(1.0)
    return mean, valid.any(2)


def level_lengths(length: int, levels: int) -> list[int]:
    """Cells of each level over `length` cells of level 0."""
    return [length // 2**level for level in range(levels)]


def pool_levels(curve: torch.Tensor, mask: torch.Tensor, levels: int) -> torch.Tensor:
    """Curves [B, T, K] at every level, one after the other [B, P, K]."""
    out = [curve]
    for _ in range(levels - 1):
        curve, mask = halve(curve, mask)
        out.append(curve)
    return torch.cat(out, dim=1)
