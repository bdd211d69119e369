"""The query side and its meeting with the video, late: at every pyramid level, after the video side is done.

SnAG (Mu et al., CVPR 2024) argues for it: the costly part is shared by all queries of a video, at training and at answer
time. The paper's early fusion (the query attends inside the trunk) is kept as an option and costs a video side per query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig


class QuerySide(nn.Module):
    """tokens [B, S, Dt], mask [B, S], sentence [B, Dt] -> (memory [B, S, D], pooled [B, D])."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        d = config.width
        self.token = nn.Sequential(
            nn.LayerNorm(config.text_dim), nn.Linear(config.text_dim, d), nn.GELU(), nn.Linear(d, d)
        )
        self.sentence = nn.Linear(config.text_dim, d)
        self.norm = nn.LayerNorm(d)

    def forward(
        self, tokens: torch.Tensor, mask: torch.Tensor, sentence: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        memory = self.token(tokens)
        weight = mask[..., None].to(memory.dtype)
        mean = (memory * weight).sum(1) / weight.sum(1).clamp_min(1.0)
        # sentence vectors are unit length: scaled so that both parts count alike
        return memory, self.norm(mean + self.sentence(sentence) * tokens.shape[-1] ** 0.5)


class CrossAttention(nn.Module):
    """Cells [B, P, D] attend to query tokens [B, S, D] (mask [B, S])."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, p, d = x.shape
        h = self.heads
        q = self.query(self.norm(x)).reshape(b, p, h, d // h).transpose(1, 2)
        k, v = (
            a.reshape(b, -1, h, d // h).transpose(1, 2) for a in self.key_value(memory).chunk(2, dim=-1)
        )  # [B, H, S, D/H]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        out: torch.Tensor = self.out(y.transpose(1, 2).reshape(b, p, d))
        return out


class Fusion(nn.Module):
    """One query against the pyramid of its video.

    pyramid [B, P, D], memory [B, S, D], mask [B, S], pooled [B, D], priors [B, P, K] -> fused cells [B, P, D].
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        d = config.width
        self.attend = CrossAttention(d, config.heads)
        self.norm = nn.LayerNorm(d)
        self.modulate = nn.Linear(d, 2 * d)
        self.prior = nn.Linear(config.priors, d) if config.priors else None
        nn.init.normal_(self.modulate.weight, std=0.02)
        nn.init.zeros_(self.modulate.bias)

    def forward(
        self,
        pyramid: torch.Tensor,
        memory: torch.Tensor,
        mask: torch.Tensor,
        pooled: torch.Tensor,
        priors: torch.Tensor,
    ) -> torch.Tensor:
        x = pyramid + self.attend(pyramid, memory, mask)
        scale, shift = self.modulate(pooled)[:, None].chunk(2, dim=-1)
        x = self.norm(x) * (1 + scale) + shift
        if self.prior is not None:
            x = x + self.prior(priors)
        return x
