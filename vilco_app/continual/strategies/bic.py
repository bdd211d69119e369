"""BiC, large scale incremental learning (Wu et al. 2019, equations 1 to 4).

Stage 1: new data and exemplars, L = (1 - l) L_task + l L_distil with l = n / (n + m), n old and m new classes, the teacher's logits
already corrected. Stage 2: on a balanced split held out of both, the two numbers of the bias layer q_k = alpha z_k + beta (new
classes k; old logits stay) are fitted by cross-entropy. (In the ViLCo release the bias layers are never optimised.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vilco_app.continual.buffers import Balanced
from vilco_app.continual.distil import Rule, divergence, flat_outputs, known_classes, known_only
from vilco_app.continual.protocols import Batch, Cost, Ctx, HasClasses, Learner, Output, Result, Sample, Strategy
from vilco_app.continual.storing import class_rows
from vilco_app.continual.weights import copy_of, outputs_of


@dataclass(frozen=True)
class Options:
    """Defaults of BiC."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    held: float = 0.1  # share of new data and exemplars for the bias layer: the paper's 9:1
    temperature: float = 2.0  # the paper's T
    damping: float = 1e-3  # pulls alpha to 1 and beta to 0: a separable split would send them to infinity


class Method(Strategy):
    """bias: {stage: (alpha, beta)} of the newest stage's classes, or {} when there was nothing to balance."""

    name = "bic"
    rehearses = True
    saved = ("buffer", "teacher", "bias", "validation")
    views = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer = Balanced(options.memory)
        self.teacher: dict[str, Tensor] = {}
        self.bias: dict[str, Tensor] = {}
        self.validation: list[str] = []

    def before_task(self, ctx: Ctx) -> None:
        later = ctx.task.index > 0
        self.teacher = copy_of(ctx.parameters()) if later else {}
        self.validation = self._hold([*ctx.samples, *self.buffer]) if later and self._classes(ctx.learner) else []

    def _hold(self, samples: list[Sample]) -> list[str]:
        groups: dict[str, list[str]] = {}
        for sample in samples:
            groups.setdefault(sample.group, []).append(sample.id)
        # a group of one is trained on; larger ones lend one at least
        counts = {g: max(1, int(self.options.held * len(ids))) if len(ids) > 1 else 0 for g, ids in groups.items()}
        return [i for g, ids in groups.items() for i in ids[len(ids) - counts[g] :]]

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        held = set(self.validation)
        return [s for s in [*samples, *self.buffer] if s.id not in held] or samples

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        if self.teacher:
            outputs = outputs_of(ctx.learner, batch, ctx.task.index, self.teacher)
            outputs = known_only(outputs, known_classes(ctx.learner, ctx.task.index))
            batch.teacher["bic"] = [self._corrected(o, ctx.learner) for o in outputs]
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        assert ctx.batch is not None
        if "bic" not in ctx.batch.teacher:
            return {}
        targets = flat_outputs(ctx.batch.teacher["bic"], len(ctx.batch.samples))
        if ctx.learner.task_parameters(ctx.task.index):  # the old model knew nothing about a head that is new
            targets = [t if o == "replay" else {} for t, o in zip(targets, ctx.batch.origin, strict=True)]
        value = divergence(result.outputs, targets, Rule(temperature=self.options.temperature))
        stages = self._classes(ctx.learner)
        old = known_classes(ctx.learner, ctx.task.index)
        new = len(stages) - old if old is not None else 1
        # l / (1 - l) = n / m: the task loss keeps factor 1, which is the same up to a common factor
        ratio = (old if old is not None else ctx.task.index) / max(1, new)
        return {} if value is None else {"distillation": ratio * value}

    def after_task(self, ctx: Ctx) -> None:
        held, self.bias = set(self.validation), {}
        if held and isinstance(ctx.learner, HasClasses):
            self._fit(ctx.learner, [s for s in [*ctx.samples, *self.buffer] if s.id in held], ctx.task.index)
        self.buffer.add(ctx.samples, ctx.rng)

    def _fit(self, learner: Learner, samples: list[Sample], task: int) -> None:
        assert isinstance(learner, HasClasses)
        logits, _, labels = class_rows(learner, samples)
        new = torch.tensor([t == task for t in learner.class_task()], device=logits.device)
        if not bool(new[labels].any()) or bool(new[labels].all()):
            return  # nothing to balance against
        share = 1.0 / torch.bincount(labels, minlength=len(new)).clamp(min=1)[labels]
        self.bias[str(task)] = fit_bias(logits.float(), labels, new, share, self.options.damping).cpu()

    def correct(self, logits: Tensor, stages: list[int]) -> Tensor:
        """logits [..., C] with alpha z + beta for the classes of the newest stage (older logits were taught corrected)."""
        if not self.bias:
            return logits
        pairs = [self.bias.get(str(t), torch.tensor([1.0, 0.0])) for t in stages[: logits.shape[-1]]]
        scale, shift = torch.stack(pairs).to(logits).unbind(1)
        return logits * scale + shift

    def _corrected(self, output: Output, learner: Learner) -> Output:
        if output.classes and isinstance(learner, HasClasses):
            output.tensor = self.correct(output.tensor, learner.class_task())
        return output

    def _classes(self, learner: Learner) -> list[int]:
        return learner.class_task() if isinstance(learner, HasClasses) else []

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        if not isinstance(learner, HasClasses) or not self.bias:
            yield
            return
        before, stages = learner.class_view, learner.class_task()
        learner.class_view = lambda logits, _: self.correct(logits, stages)
        try:
            yield
        finally:
            learner.class_view = before

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1)


def fit_bias(logits: Tensor, labels: Tensor, new: Tensor, share: Tensor, damping: float) -> Tensor:
    """(alpha, beta) [2] minimising the class-balanced cross-entropy of logits [n, C] with alpha z + beta on `new` [C] classes.

    labels [n]; share [n]: weight of each row. Convex in (alpha, beta), solved by L-BFGS.
    """
    pair = torch.tensor([1.0, 0.0], device=logits.device, requires_grad=True)
    rest = torch.tensor([1.0, 0.0], device=logits.device)
    solver = torch.optim.LBFGS([pair], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        fixed = torch.where(new, logits * pair[0] + pair[1], logits)
        loss = (F.cross_entropy(fixed, labels, reduction="none") * share).sum() / share.sum()
        loss = loss + damping * ((pair - rest) ** 2).sum()
        loss.backward()
        return loss

    solver.step(closure)
    return pair.detach()
