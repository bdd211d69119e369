"""GDumb (Prabhu, Torr and Dokania 2020): greedily keep a balanced memory, then train from scratch on the memory alone.

Not a way to learn online but the test every replay method must pass: if it comes close, the memory does all the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.continual.buffers import Buffer, make_buffer
from vilco_app.continual.protocols import Ctx, Sample, Strategy


@dataclass(frozen=True)
class Options:
    """Defaults of GDumb."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    policy: str = "balanced"  # the paper's greedy balancing sampler


class Method(Strategy):
    """The new stage enters the memory first; what did not fit is never seen."""

    name = "gdumb"
    rehearses = True
    saved = ("buffer",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer: Buffer = make_buffer(options.policy, options.memory)

    def before_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng, ctx.learner.encode)
        if ctx.task.index > 0:
            ctx.learner.reset(ctx.plan.seed)

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        return list(self.buffer)
