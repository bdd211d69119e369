"""Averaged gradient episodic memory (Chaudhry et al. 2019, equation 11).

g_ref = gradient of the loss on a replayed batch; if g . g_ref < 0 then g <- g - (g . g_ref / ||g_ref||^2) g_ref: a step may not
raise the average loss of the memory to first order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vilco_app.continual.buffers import Buffer, make_buffer
from vilco_app.continual.protocols import Batch, Cost, Ctx, Stage, Strategy


@dataclass(frozen=True)
class Options:
    """Defaults of A-GEM."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    reference: int = 32  # replayed samples per step: less gives a noisy reference, more costs a longer pass
    policy: str = "balanced"  # equal shares of the stages' groups, as the paper's per-task memory


@dataclass
class Method(Strategy):
    """One extra forward and backward per step from the second stage on."""

    options: Options
    name = "agem"
    rehearses = True
    saved = ("buffer",)
    buffer: Buffer = field(init=False)
    projected: int = field(default=0, init=False)  # steps of this process that were projected, for the training panel

    def __post_init__(self) -> None:
        self.buffer = make_buffer(self.options.policy, self.options.memory)

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage != "project" or not len(self.buffer):
            return
        named = ctx.parameters()
        mine = {n: p.grad for n, p in named.items() if p.grad is not None}
        batch = Batch.of(self.buffer.sample(self.options.reference, ctx.rng), "replay")
        batch.data = ctx.learner.collate(batch.samples)
        loss = ctx.learner.loss(batch, ctx.task.index).total(batch.weights)
        tensors = [p for p in named.values() if p.requires_grad]
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
        names = [n for n, p in named.items() if p.requires_grad]
        reference = {n: g for n, g in zip(names, grads, strict=True) if g is not None}
        for name, value in project(mine, reference).items():
            named[name].grad = value
            self.projected += name == next(iter(mine))

    def after_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng, ctx.learner.encode)

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1, backwards=1)


def project(gradient: dict[str, Tensor], reference: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradient with its component against the reference removed, over all parameters as one vector; {} if none is."""
    dot = torch.stack(
        [(gradient[n] * g).sum() for n, g in reference.items() if n in gradient] or [torch.zeros(())]
    ).sum()
    norm = torch.stack([(g**2).sum() for g in reference.values()]).sum()
    if float(dot) >= 0 or float(norm) == 0:
        return {}
    zero = {n: torch.zeros_like(g) for n, g in reference.items()}
    return {
        n: {**zero, **gradient}[n] - dot / norm * reference.get(n, torch.zeros(())).to(dot)
        for n in {**gradient, **zero}
    }
