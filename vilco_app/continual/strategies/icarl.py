"""iCaRL (Rebuffi et al. 2017): herding, training on the union of new data and exemplars, distillation of the old outputs
(algorithm 3), nearest mean of exemplars at answer time (equation 2).

For localisation logits the nearest mean decides which class, the network's own best logit how sure; learners without classes
get replay by herding and distillation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vilco_app.continual.buffers import Herding
from vilco_app.continual.distil import Rule, divergence, flat_outputs, known_classes, known_only
from vilco_app.continual.protocols import Batch, Cost, Ctx, HasClasses, Learner, Result, Sample, Strategy
from vilco_app.continual.storing import class_rows
from vilco_app.continual.weights import copy_of, outputs_of


@dataclass(frozen=True)
class Options:
    """Defaults of iCaRL."""

    memory: int = 1010  # samples kept: the same capacity as every replay method here
    strength: float = 1.0  # of the distillation; the paper adds both losses
    temperature: float = 0.1  # of nearest-mean scores; only their order matters to R@k


class Method(Strategy):
    """Old weights teach on every batch; exemplars are ordered by herding."""

    name = "icarl"
    rehearses = True
    saved = ("buffer", "teacher", "means", "seen")
    views = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.buffer = Herding(options.memory)
        self.teacher: dict[str, Tensor] = {}
        self.means = torch.zeros(0, 0)  # [C, D], unit rows
        self.seen = torch.zeros(0, dtype=torch.bool)  # [C]: classes that have exemplars

    def before_task(self, ctx: Ctx) -> None:
        self.teacher = copy_of(ctx.parameters()) if ctx.task.index > 0 else {}

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        return [*samples, *self.buffer]

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        if self.teacher:
            outputs = outputs_of(ctx.learner, batch, ctx.task.index, self.teacher)
            batch.teacher["icarl"] = known_only(outputs, known_classes(ctx.learner, ctx.task.index))
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        assert ctx.batch is not None
        if "icarl" not in ctx.batch.teacher:
            return {}
        targets = flat_outputs(ctx.batch.teacher["icarl"], len(ctx.batch.samples))
        if ctx.learner.task_parameters(ctx.task.index):  # the old model knew nothing about a head that is new
            targets = [t if o == "replay" else {} for t, o in zip(targets, ctx.batch.origin, strict=True)]
        value = divergence(result.outputs, targets, Rule())
        return {} if value is None else {"distillation": self.options.strength * value}

    def after_task(self, ctx: Ctx) -> None:
        self.buffer.add(ctx.samples, ctx.rng, ctx.learner.encode)
        if isinstance(ctx.learner, HasClasses):
            self._average(ctx.learner)

    def _average(self, learner: Learner) -> None:
        assert isinstance(learner, HasClasses)
        _, embeddings, labels = class_rows(learner, self.buffer.samples)
        vectors, count = F.normalize(embeddings.float(), dim=-1), len(learner.class_task())
        total = vectors.new_zeros(count, vectors.shape[1]).index_add(0, labels, vectors)
        self.seen = torch.bincount(labels, minlength=count) > 0
        self.means = F.normalize(total, dim=-1)

    def nearest(self, logits: Tensor, embeddings: Tensor) -> Tensor:
        """logits [..., C], embeddings [..., D] -> logits whose order is that of the nearest exemplar means."""
        means, seen = self.means.to(logits), self.seen.to(logits.device)
        apart = torch.cdist(F.normalize(embeddings, dim=-1).reshape(-1, means.shape[1]), means) ** 2
        score = (-apart / self.options.temperature).masked_fill(~seen, -torch.inf).log_softmax(-1)
        score = (score - score.amax(-1, keepdim=True)).clamp(min=-30).reshape(*logits.shape[:-1], -1)
        return logits.amax(-1, keepdim=True) + F.pad(score, (0, logits.shape[-1] - score.shape[-1]), value=-30.0)

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        if not isinstance(learner, HasClasses) or not bool(self.seen.any()):
            yield
            return
        before, learner.class_view = learner.class_view, self.nearest
        try:
            yield
        finally:
            learner.class_view = before

    def cost(self) -> Cost:
        return super().cost() + Cost(forwards=1)
