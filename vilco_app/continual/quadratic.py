"""The quadratic penalty shared by L2, EWC, MAS and SI: strength x sum_j w_j (theta_j - anchor_j)^2.

One anchor (the weights at the end of the latest stage) and one importance summed over stages, as in Continual World. The
gradient is added analytically in `after_backward("add")`, so the penalty costs no autograd graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vilco_app.continual.protocols import Ctx, Result, Stage, Strategy
from vilco_app.continual.weights import copy_of, fitted


class QuadraticPenalty(Strategy):
    """Subclasses say what the importance of the finished stage is (`measure`)."""

    saved: tuple[str, ...] = ("importance", "anchor")

    def __init__(self, strength: float, decay: float = 1.0) -> None:
        """decay: factor of the importance so far when a stage's own is added (online EWC's gamma; 1: sum)."""
        self.strength, self.decay = strength, decay
        self.importance: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}

    def measure(self, ctx: Ctx) -> dict[str, Tensor]:
        """Importance of the stage just finished, by parameter name."""
        raise NotImplementedError

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        if not self.anchor:
            return {}
        total = torch.zeros(())
        with torch.no_grad():
            for name, parameter in ctx.learner.shared_parameters().items():
                if name in self.anchor:
                    weight, anchor = self._of(name, parameter)
                    total = total.to(parameter.device) + (weight * (parameter - anchor) ** 2).sum()
        return {"penalty": self.strength * total}

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage != "add" or not self.anchor:
            return
        with torch.no_grad():
            for name, parameter in ctx.learner.shared_parameters().items():
                if name in self.anchor and parameter.requires_grad:
                    weight, anchor = self._of(name, parameter)
                    pull = 2 * self.strength * weight * (parameter - anchor)
                    parameter.grad = pull if parameter.grad is None else parameter.grad + pull

    def after_task(self, ctx: Ctx) -> None:
        new = self.measure(ctx)
        with torch.no_grad():
            for name, parameter in ctx.learner.shared_parameters().items():
                own = fitted(new[name], parameter)
                if name in self.importance:
                    own = own + self.decay * fitted(self.importance[name], parameter)
                self.importance[name] = own
        self.anchor = copy_of(ctx.learner.shared_parameters())

    def _of(self, name: str, parameter: Tensor) -> tuple[Tensor, Tensor]:
        # rows that grew since weigh 0, so whatever their anchor is does not matter
        return fitted(self.importance[name], parameter), fitted(self.anchor[name], parameter)
