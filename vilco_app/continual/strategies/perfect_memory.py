"""Perfect memory (Continual World section 5): replay from a buffer that never evicts.

Replayed samples carry n_old / (n_old + n_new) of the loss, so every step is an unbiased estimate of the mean over all data
seen so far; unlike joint training the weights go on from the last stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from vilco_app.continual.buffers import Unlimited
from vilco_app.continual.protocols import Batch, Cost, Ctx, Strategy


@dataclass(frozen=True)
class Options:
    """Defaults of perfect memory."""

    factor: float = 2.0  # replayed samples per new one (Continual World needed batches four times larger)


class Method(Strategy):
    """Unlimited replay."""

    name = "perfect-memory"
    rehearses = True
    saved = ("buffer",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer = Unlimited()

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        old = len(self.buffer)
        count = max(1, round(self.options.factor * len(batch.samples)))
        return batch.join(self.buffer.sample(min(count, old), ctx.rng), old / (old + len(ctx.samples)))

    def after_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng)

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=self.options.factor, backwards=self.options.factor)
