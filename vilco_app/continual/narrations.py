"""The few narrations a strategy keeps: negatives for the contrastive loss of later stages (ViLCo section 3.3, appendix C)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from vilco_app.continual.buffers import Reservoir
from vilco_app.continual.protocols import Ctx, HasNarrations


class NarrationMemory:
    """A reservoir of narration samples of earlier stages, and the loss term of a step."""

    def __init__(self, capacity: int, pairs: int, negatives: int) -> None:
        """capacity: narrations kept; pairs, negatives: of this stage and of earlier stages per step."""
        self.buffer, self.pairs, self.negatives = Reservoir(capacity), pairs, negatives

    def term(self, ctx: Ctx, weight: float) -> dict[str, Tensor]:
        """{"narrations": weight x InfoNCE} for this step; {} without narrations, weight or a learner that reads them."""
        if weight <= 0 or not ctx.narrations or not isinstance(ctx.learner, HasNarrations):
            return {}
        order = torch.randperm(len(ctx.narrations), generator=ctx.rng)[: self.pairs].tolist()
        negatives = self.buffer.sample(min(self.negatives, len(self.buffer)), ctx.rng)
        return {"narrations": weight * ctx.learner.narration_loss([ctx.narrations[i] for i in order], negatives)}

    def keep(self, ctx: Ctx) -> None:
        """Offer this stage's narrations."""
        self.buffer.add(ctx.narrations, ctx.rng)

    def forget(self, video: str, start: float, end: float) -> int:
        return self.buffer.forget(video, start, end)

    def drop(self, ids: Collection[str]) -> int:
        return self.buffer.drop(ids)

    def state_dict(self) -> dict[str, Any]:
        return self.buffer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.buffer.load_state_dict(state)
