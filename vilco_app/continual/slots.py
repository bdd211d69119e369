"""Rows no step may move: prompt slots of finished stages inside a network (`HasPrompts.frozen_rows`)."""

from __future__ import annotations

import torch
from torch import Tensor

from vilco_app.continual.protocols import Ctx, HasPrompts


class FrozenRows:
    """Masks gradients of frozen rows and puts their values back after the step (weight decay and momentum move them)."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Tensor, Tensor]] = {}

    def mask(self, ctx: Ctx) -> None:
        """Call in after_backward("mask")."""
        self._held = {}
        if not isinstance(ctx.learner, HasPrompts):
            return
        named = ctx.learner.shared_parameters()
        for name, rows in ctx.learner.frozen_rows().items():
            parameter = named[name]
            rows = rows.to(parameter.device)
            self._held[name] = (rows, parameter.detach()[rows].clone())
            if parameter.grad is not None:
                parameter.grad[rows] = 0

    def restore(self, ctx: Ctx) -> None:
        """Call in after_step."""
        named = ctx.learner.shared_parameters()
        with torch.no_grad():
            for name, (rows, values) in self._held.items():
                named[name][rows] = values
