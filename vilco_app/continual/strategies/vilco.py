"""ViLCo (Tang et al., NeurIPS 2024 Datasets and Benchmarks, section 3.3 and appendix C).

Short-term memory: a bounded buffer with floor(capacity / groups) random samples per query group, concatenated with the new
stage. Long-term memory: the prompt pool inside the network, opened and closed here. Self-supervision: InfoNCE over narrations,
with a few stored narrations of earlier stages as negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vilco_app.continual.buffers import Buffer, make_buffer
from vilco_app.continual.narrations import NarrationMemory
from vilco_app.continual.protocols import Cost, Ctx, HasPrompts, Result, Sample, Stage, Strategy
from vilco_app.continual.slots import FrozenRows


@dataclass(frozen=True)
class Options:
    """Defaults of ViLCo."""

    memory: int = 1010  # the paper's capacity, in samples
    policy: str = "balanced"  # equal shares per class or template, chosen at random, as released
    narrations: int = 64  # "a few narration examples": the paper gives no number
    pairs: int = 16  # narrations per step: one batch
    negatives: int = 32  # stored narrations per step: twice the batch
    narration_weight: float = 0.03  # the release's factor of the contrastive loss


class Method(Strategy):
    """Concatenated replay, prompt slots, narrations."""

    name = "vilco"
    rehearses = True
    saved = ("buffer", "told")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer: Buffer = make_buffer(options.policy, options.memory)
        self.told = NarrationMemory(options.narrations, options.pairs, options.negatives)
        self._rows = FrozenRows()

    def before_task(self, ctx: Ctx) -> None:
        if isinstance(ctx.learner, HasPrompts):
            ctx.learner.open_slots(ctx.task.index, ctx.samples, ctx.rng)

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        return [*samples, *self.buffer]

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        return self.told.term(ctx, self.options.narration_weight)

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage == "mask":
            self._rows.mask(ctx)

    def after_step(self, ctx: Ctx) -> None:
        self._rows.restore(ctx)

    def after_task(self, ctx: Ctx) -> None:
        if isinstance(ctx.learner, HasPrompts):
            ctx.learner.close_slots(ctx.task.index)
        self.buffer.add(ctx.samples, ctx.rng, ctx.learner.encode)
        self.told.keep(ctx)

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1, backwards=1)
