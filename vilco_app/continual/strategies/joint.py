"""Joint training: from scratch on the data of all stages so far. The ceiling, and not an online method."""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.continual.buffers import Unlimited
from vilco_app.continual.protocols import Ctx, Sample, Strategy


@dataclass(frozen=True)
class Options:
    """Defaults of the ceiling."""

    restart: bool = True  # from untrained weights: what a person would do with all the data at hand


class Method(Strategy):
    """Keeps everything and trains on the union; epochs of the plan are epochs of the union."""

    name = "joint"
    rehearses = True
    saved = ("buffer",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer = Unlimited()

    def before_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng)
        if self.options.restart and ctx.task.index > 0:
            ctx.learner.reset(ctx.plan.seed)

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        return list(self.buffer)
