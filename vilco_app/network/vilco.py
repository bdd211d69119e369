"""The assembled network: video side, prompt memory, query side, late fusion, three heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from vilco_app.network.fusion import CrossAttention, Fusion, QuerySide
from vilco_app.network.heads import AnchorHead, BoundaryHead, ScoreHead
from vilco_app.network.prompts import PromptMemory
from vilco_app.network.pyramid import VideoSide
from vilco_app.network.visual import VisualHead

if TYPE_CHECKING:
    from vilco_app.network.config import NetworkConfig


@dataclass
class Code:
    """A query ready to meet videos. memory [B, S, D], mask [B, S], pooled [B, D], pull [B] (key similarity, see prompts)."""

    memory: torch.Tensor
    mask: torch.Tensor
    pooled: torch.Tensor
    pull: torch.Tensor

    def rows(self, index: torch.Tensor) -> Code:
        return Code(self.memory[index], self.mask[index], self.pooled[index], self.pull[index])


class ViLCo(nn.Module):
    """Knows features, not files: any profile's dimensions, any device.

    The path of a question: `code` once, `video` once per video (cached), then `ground` per (query, video) for NLQ, or
    `anchors` + `classify` + `boundaries` for MQ.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        rng = torch.Generator().manual_seed(config.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            self.video_side = VideoSide(config)
            self.query_side = QuerySide(config)
            self.fusion = Fusion(config)
            self.early = CrossAttention(config.width, config.heads) if config.fusion == "early" else None
            self.score = ScoreHead(config)
            self.anchor = AnchorHead(config)
            self.boundary = BoundaryHead(config)
            self.visual = VisualHead()
            self.narrated = nn.Linear(config.width, config.width)  # joint space of video and narration (SSL)
            self.told = nn.Linear(config.width, config.width)
        self.prompts = PromptMemory(config, rng)

    def code(self, sentence: torch.Tensor, tokens: torch.Tensor, mask: torch.Tensor) -> Code:
        """sentence [B, Dt], tokens [B, S, Dt], mask [B, S] -> Code."""
        tokens, mask, pull = self.prompts(sentence, tokens, mask)
        if self.config.prompts == "replace":  # the chosen prompts stand for the query altogether
            sentence = tokens.mean(1)
        memory, pooled = self.query_side(tokens, mask, self.prompts.bent(sentence))
        return Code(memory, mask, pooled, pull)

    def video(self, features: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """features [V, T, Dv], mask [V, T] -> pyramid [V, P, D], mask [V, P]."""
        out: tuple[torch.Tensor, torch.Tensor] = self.video_side(features, mask)
        return out

    def video_early(self, features: torch.Tensor, mask: torch.Tensor, code: Code) -> tuple[torch.Tensor, torch.Tensor]:
        """The paper's early fusion: one video side per (query, video) pair, the query attending before the trunk."""
        assert self.early is not None
        side = self.video_side
        x = side.norm(side.project((features - side.mean) * side.inverse)) * mask[..., None]
        x = (x + self.early(x, code.memory, code.mask)) * mask[..., None]
        return side.climb(x, mask)

    def ground(
        self, pyramid: torch.Tensor, mask: torch.Tensor, code: Code, priors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """NLQ. pyramid [B, P, D], mask [B, P], priors [B, P, K] -> (logits [B, P], distances [B, P, 2] in level cells)."""
        fused = self.fusion(pyramid, code.memory, code.mask, code.pooled, priors)
        return self.score(fused, mask, priors), self.boundary(fused, mask)

    def anchors(self, pyramid: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """MQ. Unit vectors of the cells [B, P, D], once per video."""
        return self.anchor.cells(pyramid, mask)

    def classify(self, cells: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """MQ. cells [B, P, D], pooled category codes [C, D] -> logits [B, P, C], without the zero-shot prior."""
        out: torch.Tensor = self.anchor(cells, self.anchor.texts(pooled))
        return out

    def boundaries(self, pyramid: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """MQ. Distances [B, P, 2] in level cells, the same for every category."""
        out: torch.Tensor = self.boundary(pyramid, mask)
        return out
