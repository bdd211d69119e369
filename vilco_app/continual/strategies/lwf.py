"""Learning without forgetting (Li and Hoiem 2016, equation 2): the network before the stage teaches on the stage's own inputs.

L += strength D(outputs, outputs of the old weights). For localisation the old network is right about what it recognised and
silent about the rest, so by default only places where it is confident are distilled; else "background" would be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vilco_app.continual.distil import Rule, divergence, flat_outputs, known_classes, known_only
from vilco_app.continual.protocols import Batch, Cost, Ctx, Result, Strategy
from vilco_app.continual.weights import copy_of, outputs_of


@dataclass(frozen=True)
class Options:
    """Defaults of LwF."""

    strength: float = 1.0  # the paper's lambda_o, and best on the network of 1, 3, 10 (docs/continual.md)
    temperature: float = 2.0  # the paper's T, for categorical outputs
    gate: float = 0.3  # least old probability at a place for its score and boundary to be distilled


class Method(Strategy):
    """Old weights are kept; one extra forward pass per step."""

    name = "lwf"
    saved = ("teacher",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.teacher: dict[str, Tensor] = {}
        self._asked: Batch | None = None  # this step's inputs through an old head

    def before_task(self, ctx: Ctx) -> None:
        self.teacher = copy_of(ctx.parameters()) if ctx.task.index > 0 else {}

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        if self.teacher:
            asked = self._old_heads(batch, ctx)
            outputs = outputs_of(ctx.learner, asked, ctx.task.index, self.teacher)
            batch.teacher["lwf"] = known_only(outputs, known_classes(ctx.learner, ctx.task.index))
            self._asked = asked if asked is not batch else None
        return batch

    def _old_heads(self, batch: Batch, ctx: Ctx) -> Batch:
        """Where stages have heads of their own it is an old head that must not change: one per step, at random."""
        old = [t for t in range(ctx.task.index) if ctx.learner.task_parameters(t)]
        if not old:
            return batch
        chosen = old[int(torch.randint(len(old), (1,), generator=ctx.rng))]
        return Batch.of([replace(s, task=chosen) for s in batch.samples])

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        assert ctx.batch is not None
        if "lwf" not in ctx.batch.teacher:
            return {}
        targets = flat_outputs(ctx.batch.teacher["lwf"], len(ctx.batch.samples))
        rule = Rule(temperature=self.options.temperature, gate=self.options.gate, gate_scores=True)
        outputs = result.outputs if self._asked is None else ctx.learner.outputs(self._asked, ctx.task.index)
        value = divergence(outputs, targets, rule)
        return {} if value is None else {"distillation": self.options.strength * value}

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1)
