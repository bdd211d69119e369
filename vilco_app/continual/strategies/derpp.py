"""Dark experience replay++ (Buzzega et al. 2020, equation 6).

L = l(new) + alpha ||z - z_stored||^2 + beta l(replayed), both over one replayed batch; z_stored are the outputs at the
time the sample entered the memory: all valid entries, boundary offsets only where the old score was high.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vilco_app.continual.buffers import Buffer, make_buffer
from vilco_app.continual.distil import Rule, divergence
from vilco_app.continual.protocols import Batch, Cost, Ctx, Result, Strategy
from vilco_app.continual.storing import with_outputs


@dataclass(frozen=True)
class Options:
    """Defaults of DER++."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    alpha: float = 0.5  # of the stored-output term; the paper's grids choose 0.1 to 0.5
    beta: float = 0.5  # of the replay loss; the paper's grids choose 0.5 to 1
    least: int = 8  # replayed samples per step at least
    gate: float = 0.3  # least stored probability at a place for its boundary to be matched
    policy: str = "reservoir"  # the paper's


class Method(Strategy):
    """Replayed samples serve both terms (the paper draws two batches; one has the same expectation at half the cost)."""

    name = "derpp"
    rehearses = True
    saved = ("buffer",)

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer: Buffer = make_buffer(options.policy, options.memory)

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        if not len(self.buffer):
            return batch
        count = max(len(batch.samples), self.options.least)
        # weights: mean over new + beta x mean over replayed, up to a common factor
        beta = self.options.beta
        return batch.join(self.buffer.sample(count, ctx.rng), beta / (1 + beta))

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        assert ctx.batch is not None
        targets = [s.stored if o == "replay" else {} for s, o in zip(ctx.batch.samples, ctx.batch.origin, strict=True)]
        value = divergence(result.outputs, targets, Rule(squared=True, gate=self.options.gate))
        # the loss above is a mean (factor 1 / (1 + beta)), so this term is scaled alike
        return {} if value is None else {"distillation": self.options.alpha / (1 + self.options.beta) * value}

    def after_task(self, ctx: Ctx) -> None:
        self.buffer.add(with_outputs(ctx.learner, ctx.samples, ctx.task.index), ctx.rng, ctx.learner.encode)

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1, backwards=1)
