"""Synaptic intelligence (Zenke, Poole and Ganguli 2017, equations 3 to 5).

omega_j = - sum over steps of g_j dtheta_j (the share of the loss drop weight j is owed), Omega_j += max(omega_j, 0) /
((theta_j(end) - theta_j(start))^2 + damping), L += strength sum_j Omega_j (theta_j - theta*_j)^2. No extra pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vilco_app.continual.protocols import Ctx, Stage
from vilco_app.continual.quadratic import QuadraticPenalty
from vilco_app.continual.weights import copy_of, fitted


@dataclass(frozen=True)
class Options:
    """Defaults of SI."""

    # best on the network of 1, 30, 1000 (docs/continual.md); the paper's c of 0.1 to 1 forgets more
    strength: float = 30.0
    damping: float = 0.1  # the paper's xi: weights that hardly moved get no infinite importance


class Method(QuadraticPenalty):
    """Importance = path integral of the task loss."""

    name = "si"
    saved = ("importance", "anchor", "path", "start")

    def __init__(self, options: Options) -> None:
        super().__init__(options.strength)
        self.options = options
        self.path: dict[str, Tensor] = {}
        self.start: dict[str, Tensor] = {}
        self._gradient: dict[str, Tensor] = {}
        self._before: dict[str, Tensor] = {}

    def before_task(self, ctx: Ctx) -> None:
        self.start = copy_of(ctx.learner.shared_parameters())
        self.path = {name: torch.zeros_like(p) for name, p in self.start.items()}

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage == "add":
            # the task loss's own gradient: before the penalty is added and before clipping, or the integral would not be
            # the drop of the loss
            shared = {n: p for n, p in ctx.learner.shared_parameters().items() if p.grad is not None}
            self._gradient = {n: p.grad.detach().clone() for n, p in shared.items() if p.grad is not None}
            self._before = copy_of(shared)
        super().after_backward(stage, ctx)

    def after_step(self, ctx: Ctx) -> None:
        with torch.no_grad():
            for name, parameter in ctx.learner.shared_parameters().items():
                if name in self._gradient:
                    moved = parameter - self._before[name]
                    self.path[name] = fitted(self.path[name], parameter) - self._gradient[name] * moved

    def measure(self, ctx: Ctx) -> dict[str, Tensor]:
        values = {}
        with torch.no_grad():
            for name, parameter in ctx.learner.shared_parameters().items():
                moved = parameter - fitted(self.start[name], parameter)
                values[name] = fitted(self.path[name], parameter).clamp(min=0) / (moved**2 + self.options.damping)
        return values
