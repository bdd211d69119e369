"""PackNet (Mallya and Lazebnik 2018, section 3), as Continual World uses it, exact under Adam with weight decay.

After a stage with r stages left, in each kernel the smallest r / (r + 1) of the stage's own weights are zeroed and handed to
the next, the kept ones are retrained for a while and then never move again: their gradients are masked and their values put
back after every step, because momentum and weight decay move weights that have no gradient. `view(task)` zeroes what later
stages own. Biases and normalisation are frozen after the first stage; task heads are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vilco_app.continual.loop import refit
from vilco_app.continual.protocols import Ctx, Learner, Stage, Strategy
from vilco_app.continual.weights import fitted, swapped


@dataclass(frozen=True)
class Options:
    """Defaults of PackNet."""

    keep: float = 0.5  # share a stage keeps of its weights when nobody knows how many stages there will be
    retrain: float = 0.25  # steps of retraining after pruning, as a share of the stage's steps


class Method(Strategy):
    """owner[name]: which stage owns each weight of a kernel; weights of stage -1 do not exist."""

    name = "packnet"
    saved = ("owner",)
    views = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.owner: dict[str, Tensor] = {}
        self._held: dict[str, Tensor] = {}

    def before_task(self, ctx: Ctx) -> None:
        now = ctx.task.index
        for name, p in ctx.learner.shared_parameters().items():
            if name in self.owner:
                self.owner[name] = fitted(self.owner[name], p, now).short()
            else:
                self.owner[name] = torch.full_like(p, now, dtype=torch.int16)

    def own(self, name: str, parameter: Tensor, task: int) -> Tensor:
        """Bool mask of the weights stage `task` may move."""
        return self.owner[name].to(parameter.device) == task

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage == "mask":
            self._mask(ctx)
            self._hold(ctx)

    def after_step(self, ctx: Ctx) -> None:
        self._restore(ctx)

    def after_task(self, ctx: Ctx) -> None:
        now, total = ctx.task.index, ctx.task.total
        left = None if total is None else max(0, total - now - 1)
        drop = 1 - self.options.keep if left is None else left / (left + 1)
        with torch.no_grad():
            for name, p in ctx.learner.shared_parameters().items():
                mine = self.own(name, p, now)
                if p.dim() < 2 or not p.requires_grad:
                    continue  # biases and norms stay with the stage that first trained them
                values = p[mine].abs()
                gone = round(drop * values.numel())
                if gone:
                    flat = torch.nonzero(mine.flatten())[:, 0][values.argsort(stable=True)[:gone]]
                    p.flatten()[flat] = 0  # a parameter is contiguous, so this is a view
                    self.owner[name] = self.owner[name].to(p.device)
                    self.owner[name].flatten()[flat] = now + 1
        steps = round(self.options.retrain * ctx.steps)
        refit(ctx, ctx.samples, steps, set(ctx.trained()), mask=lambda: self._mask(ctx))

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        """Weights of stages after `task` are zero; None (nobody says which stage): all weights, the union of the masks."""
        named = learner.shared_parameters()
        if task is None:
            yield
            return
        cut = {n: p.detach() * (fitted(self.owner[n], p, 32767) <= task) for n, p in named.items() if n in self.owner}
        with swapped(named, cut):
            yield

    def _shared(self, ctx: Ctx) -> dict[str, nn.Parameter]:
        return ctx.learner.shared_parameters()

    def _mask(self, ctx: Ctx) -> None:
        for name, p in self._shared(ctx).items():
            if p.grad is not None:
                p.grad.mul_(self.own(name, p, ctx.task.index))

    def _hold(self, ctx: Ctx) -> None:
        self._held = {n: p.detach().clone() for n, p in self._shared(ctx).items()}

    def _restore(self, ctx: Ctx) -> None:
        with torch.no_grad():
            for name, p in self._shared(ctx).items():
                p.copy_(torch.where(self.own(name, p, ctx.task.index), p, self._held[name]))
