"""Episodic: this project's own strategy, the parts that proved themselves elsewhere, joined.

L = (1 - s) l(new) + s l(replay) + a D(replayed outputs, stored ones) + c D(old classes on new samples, previous model)
Balanced replay of features; stored dense outputs matched, where the stored model was confident and weighted by how
right it was (DER++ with X-DER's lesson); an exponential moving average of the weights becomes the stage's result (LAE, Gao 2023).
The language-anchored matching head it relies on lives in the network. Options that did not pay for the ViLCo network, and so are
off: a slow trunk (SLCA, Zhang 2023), re-aligning the heads on balanced samples at stage end, teaching old classes on new clips.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vilco_app.continual.buffers import Balanced, Buffer, make_buffer
from vilco_app.continual.distil import Rule, divergence, flat_outputs, known_classes, known_only
from vilco_app.continual.loop import refit
from vilco_app.continual.narrations import NarrationMemory
from vilco_app.continual.protocols import Batch, Cost, Ctx, HasHeads, HasPrompts, Result, Stage, Strategy
from vilco_app.continual.slots import FrozenRows
from vilco_app.continual.storing import with_outputs
from vilco_app.continual.weights import copy_of, fitted, outputs_of


@dataclass(frozen=True)
class Options:
    """Defaults of episodic."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    policy: str = "balanced"  # a rare template is kept and rehearsed as often as a common one
    share: float = 0.5  # of the loss for replayed samples
    least: int = 8  # replayed samples per step at least, so that a stage of one example still rehearses
    stored: float = 0.5  # a: weight of the stored-output term
    squared: bool = True  # outputs compared as they are (DER): likelihoods saturate, 2 to 3 points less at 2 % memory
    current: float = 0.0  # c: the previous model's say on old classes in new samples: one more pass, no gain
    gate: float = 0.3  # least stored probability at a place for its boundary to be matched
    trunk: float = 1.0  # learning-rate factor of the trunk from the second stage on; 0.3 cost 3 points
    boundary: float = 1.0  # of the class-agnostic boundary head; as for the trunk
    ema: float = 0.99  # decay of the moving average, less in the first steps; stages have hundreds of steps
    realign: float = 0.0  # steps of head re-alignment, a share of the stage's; helps a class layer, not matching
    realign_rate: float = 0.3  # learning-rate factor of re-alignment: it corrects, it does not learn anew
    narrations: int = 64  # as vilco
    pairs: int = 16  # as vilco
    negatives: int = 32  # as vilco
    narration_weight: float = 0.03  # as vilco


class Method(Strategy):
    """Replay, stored outputs, moving average, re-alignment."""

    name = "episodic"
    rehearses = True
    saved = ("buffer", "told", "teacher", "average")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer: Buffer = make_buffer(options.policy, options.memory)
        self.told = NarrationMemory(options.narrations, options.pairs, options.negatives)
        self.teacher: dict[str, Tensor] = {}
        self.average: dict[str, Tensor] = {}
        self._rows = FrozenRows()

    def before_task(self, ctx: Ctx) -> None:
        if isinstance(ctx.learner, HasPrompts):
            ctx.learner.open_slots(ctx.task.index, ctx.samples, ctx.rng)
        known = known_classes(ctx.learner, ctx.task.index)
        self.teacher = copy_of(ctx.parameters()) if known and self.options.current > 0 else {}
        self.average = copy_of(ctx.parameters()) if self.options.ema > 0 else {}

    def batch_size(self, size: int, ctx: Ctx) -> int:
        # the batch is shared with replay: more and smaller steps learnt better than fewer, larger ones at the same cost
        return max(1, round(size * (1 - self.options.share))) if len(self.buffer) else size

    def lr_scale(self, name: str, ctx: Ctx) -> float:
        if ctx.task.index == 0 or not isinstance(ctx.learner, HasHeads):
            return 1.0
        if name in ctx.learner.boundary_names():
            return self.options.boundary
        heads = name in ctx.learner.head_names() or name not in ctx.learner.shared_parameters()
        return 1.0 if heads else self.options.trunk

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        count = max(len(batch.samples), self.options.least)
        new = len(batch.samples)
        batch = batch.join(self.buffer.sample(count, ctx.rng), self.options.share)
        if self.teacher:
            only_new = Batch.of(batch.samples[:new])
            outputs = outputs_of(ctx.learner, only_new, ctx.task.index, self.teacher)
            classes = [o for o in outputs if o.classes]
            batch.teacher["episodic"] = known_only(classes, known_classes(ctx.learner, ctx.task.index))
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        batch, options = ctx.batch, self.options
        assert batch is not None
        terms = self.told.term(ctx, options.narration_weight)
        replayed = [s.stored if o == "replay" else {} for s, o in zip(batch.samples, batch.origin, strict=True)]
        stored = divergence(
            result.outputs, replayed, Rule(squared=options.squared, gate=options.gate), [s.trust for s in batch.samples]
        )
        teacher = batch.teacher.get("episodic", [])
        new = batch.origin.count("new")
        targets = flat_outputs(teacher, new) if teacher else []
        current = divergence(result.outputs, targets, Rule()) if targets else None
        parts = [w * v for w, v in ((options.stored, stored), (options.current, current)) if v is not None]
        if parts:
            terms["distillation"] = torch.stack(parts).sum()
        return terms

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage == "mask":
            self._rows.mask(ctx)

    def after_step(self, ctx: Ctx) -> None:
        self._rows.restore(ctx)
        # rising decay: an average over few steps must not be dominated by where the stage began
        decay = min(self.options.ema, (1 + ctx.step) / (10 + ctx.step))
        with torch.no_grad():
            for name, parameter in ctx.parameters().items():
                if name in self.average:
                    self.average[name] = torch.lerp(parameter.detach(), fitted(self.average[name], parameter), decay)

    def after_task(self, ctx: Ctx) -> None:
        learner, options = ctx.learner, self.options
        with torch.no_grad():
            for name, parameter in ctx.parameters().items():
                if name in self.average:
                    parameter.copy_(self.average[name])
        if isinstance(learner, HasPrompts):
            learner.close_slots(ctx.task.index)
        steps = round(options.realign * ctx.steps)
        if ctx.task.index > 0 and steps and isinstance(learner, HasHeads):
            # old groups from memory, new ones from the whole stage: balanced, and not only what is about to be remembered
            pool = Balanced(len(self.buffer) + len(ctx.samples))
            pool.samples = [*self.buffer, *ctx.samples]
            chosen = pool.sample(steps * ctx.plan.batch_size, ctx.rng)
            refit(
                ctx, chosen, steps, learner.head_names(), lr=options.realign_rate * ctx.plan.lr,
                mask=lambda: self._rows.mask(ctx),
            )  # fmt: skip
        self.buffer.add(ctx.samples, ctx.rng, learner.encode)
        self.told.keep(ctx)
        self._remember(ctx)
        self.teacher, self.average = {}, {}

    def _remember(self, ctx: Ctx) -> None:
        new = {s.id for s in ctx.samples}
        mine = [s for s in self.buffer.samples if s.id in new]
        fresh = {s.id: s.compact() for s in with_outputs(ctx.learner, mine, ctx.task.index, judge=True)}
        self.buffer.samples = [fresh.get(s.id, s) for s in self.buffer.samples]

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=2.0 if self.options.current > 0 else 1.0, backwards=1)
