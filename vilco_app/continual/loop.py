"""The training loop: calls a strategy's hooks in the right order, for any learner; stops, and resumes bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vilco_app.continual.chance import get_random, seeded, set_random
from vilco_app.continual.plan import FitResult, Plan, StepRecord
from vilco_app.continual.protocols import Batch, Ctx, HasBatches, Learner, Sample, Strategy, Task
from vilco_app.continual.state import with_samples, without_samples
from vilco_app.values import VilcoError

__all__ = ["FitResult", "Plan", "StepRecord", "fit", "make_optimizer", "refit", "seeded", "split", "step"]


def make_optimizer(strategy: Strategy, ctx: Ctx, plan: Plan) -> torch.optim.Optimizer:
    """One group per (rate factor, decayed or not); parameters with factor 0 are left out."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in ctx.parameters().items():
        scale = strategy.lr_scale(name, ctx)
        if scale > 0 and parameter.requires_grad:
            groups.setdefault((scale, parameter.dim() > 1), []).append(parameter)
    for parameter in strategy.extra_parameters(ctx).values():
        groups.setdefault((1.0, False), []).append(parameter)
    if not groups:
        raise VilcoError(
            "nothing-to-train", "the learner has no trainable parameter.", "Check the strategy's lr_scale."
        )
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    return kinds[plan.optimizer](
        [
            {"params": members, "lr": plan.lr * scale, "base": plan.lr * scale,
             "weight_decay": plan.weight_decay if decayed else 0.0}
            for (scale, decayed), members in groups.items()
        ]
    )  # fmt: skip


def step(learner: Learner, strategy: Strategy, samples: Sequence[Sample], ctx: Ctx) -> StepRecord:
    """One gradient step with every hook in its place. For callers with a loop of their own (a policy's update)."""
    assert ctx.optimizer is not None
    start = Batch.of(samples)
    start.origin = ["replay" if s.task < ctx.task.index else "new" for s in samples]  # training sets may hold both
    batch = strategy.compose_batch(start, ctx)
    if batch.data is None:  # a teacher pass may have collated already, and student and teacher see the same crop
        batch.data = learner.collate(batch.samples)
    ctx.batch = batch
    result = learner.loss(batch, ctx.task.index)
    total = result.total(batch.weights)
    extra = strategy.penalty(result, ctx)
    objective = torch.stack([total, *extra.values()]).sum()
    ctx.optimizer.zero_grad(set_to_none=True)
    objective.backward()
    strategy.after_backward("add", ctx)
    strategy.after_backward("project", ctx)
    parameters = [p for g in ctx.optimizer.param_groups for p in g["params"] if p.grad is not None]
    norm = nn.utils.clip_grad_norm_(parameters, ctx.plan.clip if ctx.plan.clip else float("inf"))
    strategy.after_backward("mask", ctx)
    ctx.optimizer.step()
    strategy.after_step(ctx)
    new, replay = split(result.per_sample(), batch)
    return StepRecord(
        ctx.step, ctx.steps, float(objective.detach()), new, replay,
        {k: float(v.detach()) for k, v in extra.items()}, float(norm),
    )  # fmt: skip


def split(losses: Tensor | None, batch: Batch) -> tuple[float | None, float | None]:
    """Mean per-sample loss of new and of replayed samples; None where there are none."""
    if losses is None:
        return None, None
    values = losses.detach().float().cpu()
    replayed = torch.tensor([o == "replay" for o in batch.origin])
    new = float(values[~replayed].mean()) if bool((~replayed).any()) else None
    return new, float(values[replayed].mean()) if bool(replayed.any()) else None


def epoch_batches(learner: Learner, samples: Sequence[Sample], size: int, rng: torch.Generator) -> list[list[int]]:
    """Index lists of one epoch: the learner's grouping if it has one, else a random permutation cut in pieces."""
    if isinstance(learner, HasBatches):
        return learner.batches(samples, size, rng)
    order = torch.randperm(len(samples), generator=rng).tolist()
    return [order[i : i + size] for i in range(0, len(order), size)]


def fit(
    learner: Learner,
    strategy: Strategy,
    samples: Sequence[Sample],
    task: Task,
    plan: Plan | None = None,
    narrations: Sequence[Sample] = (),
    resume: Mapping[str, Any] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    checkpoint: Callable[[dict[str, Any]], None] | None = None,
    checkpoint_every: int = 100,
) -> FitResult:
    """Train one stage and call after_task.

    resume: a state from `FitResult.state` or `checkpoint`, of the same samples and plan; the rest of the run is then the same bit
    for bit as if it had not been interrupted. The strategy must be as it was when the stage began (a checkpoint does not repeat
    the samples of buffers the stage has not changed). should_stop is asked before every step; when true the state is returned and
    after_task has not run. The process's random state is left as it was found.
    Raises VilcoError when the stage has no samples or a loss is not finite.
    """
    plan = plan or Plan()
    if not samples:
        raise VilcoError("empty-stage", f"stage {task.name or task.index!r} has no training example.", "Add one.")
    with seeded(plan.seed * 1009 + task.index):
        rng = torch.Generator().manual_seed(plan.seed * 1009 + task.index)
        ctx = Ctx(learner, task, list(samples), rng, plan, list(narrations))
        state: dict[str, Any] | None = None
        start = strategy.state_dict()
        if resume is None:
            strategy.supersede({s.id for s in samples})  # or replay would go on teaching what was corrected
            strategy.before_task(ctx)
        else:
            learner.load_state_dict(resume["learner"])
            strategy.load_state_dict(with_samples(resume["strategy"], start))
            rng.set_state(resume["rng"])
        training = strategy.training_set(ctx.samples, ctx)
        losses: list[StepRecord] = []
        if strategy.trains and training:
            watch = _Watch(on_step, should_stop, checkpoint, checkpoint_every)
            losses, state = _epochs(strategy, training, ctx, start, resume, watch)
        if state is not None:
            return FitResult(False, losses, state)
        strategy.after_task(ctx)
    return FitResult(True, losses)


@dataclass(frozen=True)
class _Watch:
    """Whoever follows a run."""

    on_step: Callable[[StepRecord], None] | None
    should_stop: Callable[[], bool] | None
    checkpoint: Callable[[dict[str, Any]], None] | None
    every: int


def _epochs(
    strategy: Strategy,
    training: list[Sample],
    ctx: Ctx,
    start: Mapping[str, Any],
    resume: Mapping[str, Any] | None,
    watch: _Watch,
) -> tuple[list[StepRecord], dict[str, Any] | None]:
    """(records, None) of a finished run or (records, state) of a stopped one. start: the strategy's state before the stage."""
    learner = ctx.learner
    plan = ctx.plan
    losses: list[StepRecord] = []
    size = strategy.batch_size(plan.batch_size, ctx)
    ctx.optimizer = make_optimizer(strategy, ctx, plan)
    if resume is None:
        queue = epoch_batches(learner, training, size, ctx.rng)
        ctx.steps = max(plan.epochs * len(queue), plan.min_steps)
        ctx.steps = min(ctx.steps, plan.max_steps) if plan.max_steps else ctx.steps
    else:
        ctx.optimizer.load_state_dict(resume["optimizer"])
        queue, ctx.step, ctx.steps = [list(b) for b in resume["queue"]], int(resume["step"]), int(resume["steps"])
        set_random(resume["random"])

    def state() -> dict[str, Any]:
        assert ctx.optimizer is not None
        return {
            "task": ctx.task.index, "step": ctx.step, "steps": ctx.steps, "queue": [list(b) for b in queue],
            "rng": ctx.rng.get_state(), "random": get_random(), "learner": _clone(learner.state_dict()),
            "strategy": without_samples(strategy.state_dict(), start), "optimizer": _clone(ctx.optimizer.state_dict()),
        }  # fmt: skip

    learner.module.train()
    while ctx.step < ctx.steps:
        if watch.should_stop is not None and watch.should_stop():
            return losses, state()
        if not queue:
            queue = epoch_batches(learner, training, size, ctx.rng)
        for group in ctx.optimizer.param_groups:
            group["lr"] = group["base"] * plan.rate(ctx.step, ctx.steps)
        record = step(learner, strategy, [training[i] for i in queue.pop(0)], ctx)
        ctx.step += 1
        if not torch.isfinite(torch.tensor(record.total)):
            raise VilcoError(
                "diverged", f"the loss became {record.total} at step {record.step} of stage {ctx.task.name or ctx.task.index!r}.",
                "Nothing was saved; lower the learning rate or look for broken features in the stage.",
            )  # fmt: skip
        losses.append(record)
        if watch.on_step is not None:
            watch.on_step(record)
        if watch.checkpoint is not None and ctx.step % watch.every == 0:
            watch.checkpoint(state())
    learner.module.eval()
    return losses, None


def refit(
    ctx: Ctx,
    samples: Sequence[Sample],
    steps: int,
    names: set[str] | None = None,
    lr: float | None = None,
    mask: Callable[[], None] | None = None,
) -> None:
    """Extra training inside after_task on the plain loss: `steps` steps on samples, moving only the named parameters.

    A fresh optimiser of the plan's kind, no weight decay, no penalty. mask is called after backward; with neither decay nor
    momentum from before, a gradient of zero leaves a weight alone. Chance comes from ctx.rng.
    """
    learner, plan = ctx.learner, ctx.plan
    named = {n: p for n, p in ctx.parameters().items() if names is None or n in names}
    if not named or not samples or steps <= 0:
        return
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    optimizer = kinds[plan.optimizer](list(named.values()), lr=plan.lr if lr is None else lr, weight_decay=0.0)
    learner.module.train()
    queue: list[list[int]] = []
    for _ in range(steps):
        queue = queue or epoch_batches(learner, samples, plan.batch_size, ctx.rng)
        batch = Batch.of([samples[i] for i in queue.pop(0)], "replay")
        batch.data = learner.collate(batch.samples)
        loss = learner.loss(batch, ctx.task.index).total(batch.weights)
        learner.module.zero_grad(set_to_none=True)
        loss.backward()
        if plan.clip:
            nn.utils.clip_grad_norm_(list(named.values()), plan.clip)
        if mask is not None:
            mask()
        optimizer.step()
    learner.module.zero_grad(set_to_none=True)
    learner.module.eval()


def _clone(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {k: _clone(v) for k, v in value.items()}
    return type(value)(_clone(v) for v in value) if isinstance(value, list | tuple) else value
