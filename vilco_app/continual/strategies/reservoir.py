"""Experience replay from a reservoir (Chaudhry et al. 2019, "On tiny episodic memories"; Vitter 1985 for the sampling).

L = (1 - s) mean_new l + s mean_replay l, with s the replay share: a small new stage cannot drown a large memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.continual.buffers import Buffer, make_buffer
from vilco_app.continual.protocols import Batch, Cost, Ctx, Strategy


@dataclass(frozen=True)
class Options:
    """Defaults of plain replay."""

    memory: int = 1010  # samples kept: the paper's capacity
    share: float = 0.5  # of the loss for replayed samples: equal say of old and new is ER's usual setting
    least: int = 8  # replayed samples per step at least, so that a stage of one example still rehearses
    policy: str = "reservoir"  # or balanced, herding: the buffer's policy


class Method(Strategy):
    """Mixes as many replayed samples as new ones into every step; the stage enters the buffer when it ends."""

    name = "reservoir"
    rehearses = True
    saved = ("buffer",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer: Buffer = make_buffer(options.policy, options.memory)

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        count = max(len(batch.samples), self.options.least)
        return batch.join(self.buffer.sample(count, ctx.rng), self.options.share)

    def after_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng, ctx.learner.encode)

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1, backwards=1)
