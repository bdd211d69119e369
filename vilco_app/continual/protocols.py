"""The two protocols of continual learning: a Learner (what is trained) and a Strategy (how it avoids forgetting).

`records` has what they exchange, `learner` the learner's side; both can be imported from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from vilco_app.continual.learner import (
    HasBatches,
    HasClasses,
    HasHeads,
    HasNarrations,
    HasPrompts,
    HasRidge,
    Learner,
)
from vilco_app.continual.records import Batch, Cost, Kind, Origin, Output, Result, Sample, Task

if TYPE_CHECKING:
    from vilco_app.continual.plan import Plan

__all__ = [
    "Batch",
    "Cost",
    "Ctx",
    "HasBatches",
    "HasClasses",
    "HasHeads",
    "HasNarrations",
    "HasPrompts",
    "HasRidge",
    "Kind",
    "Learner",
    "Origin",
    "Output",
    "Result",
    "Sample",
    "Stage",
    "Strategy",
    "Task",
]

Stage = Literal["add", "project", "mask"]


@dataclass
class Ctx:
    """Everything a hook may look at. samples, narrations: this stage's. rng: the only source of a strategy's chance (CPU).

    step, steps: of this stage. batch: of this step. optimizer: None until the loop has built it (after `before_task`).
    """

    learner: Learner
    task: Task
    samples: list[Sample]
    rng: torch.Generator
    plan: Plan
    narrations: list[Sample] = field(default_factory=list)
    step: int = 0
    steps: int = 0
    optimizer: torch.optim.Optimizer | None = None
    batch: Batch | None = None

    def trained(self) -> dict[str, nn.Parameter]:
        """Shared parameters and this stage's own head, by name."""
        return {**self.learner.shared_parameters(), **self.learner.task_parameters(self.task.index)}

    def parameters(self) -> dict[str, nn.Parameter]:
        """Shared parameters and the heads of all stages so far, by name: what the optimiser moves."""
        named = dict(self.learner.shared_parameters())
        for index in range(self.task.index + 1):
            named.update(self.learner.task_parameters(index))
        return named


class Strategy:
    """How a learner avoids forgetting. Every hook is optional; the loop calls them in the order they stand here.

    name: as in `make_strategy`. saved: attributes that make up the state (tensors, numbers, nested dicts and lists of them;
    objects with state_dict, such as buffers, are saved through it). Strategies draw chance from ctx.rng only and must bear a
    stage of one sample. trains: False when a stage needs no gradient steps at all (ridge).
    """

    name: str = "naive"
    saved: tuple[str, ...] = ()
    trains: bool = True
    views: bool = False  # True when `view` changes the learner: two such strategies cannot be composed
    rehearses: bool = False  # True when earlier stages' heads keep training; without replay only decay moves them

    def before_task(self, ctx: Ctx) -> None:
        """Anchors, teachers, new slots. The optimiser is built afterwards."""

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        """What this stage's epochs run over: the stage's samples, unless the strategy holds more (joint) or less (GDumb)."""
        return samples

    def batch_size(self, size: int, ctx: Ctx) -> int:
        """New samples per step, given the plan's batch size; fewer leave room for replay and make more steps."""
        return size

    def lr_scale(self, name: str, ctx: Ctx) -> float:
        """Factor of the learning rate of a parameter in this stage; 0 leaves it out of the optimiser."""
        return 1.0 if self.rehearses or name in ctx.trained() else 0.0

    def extra_parameters(self, ctx: Ctx) -> dict[str, nn.Parameter]:
        """Parameters of the strategy's own to optimise with the learner's."""
        return {}

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        """Replay mixing and teacher passes; the last hook before the forward pass."""
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        """Named scalars added to the loss: "distillation", "penalty", "narrations"."""
        return {}

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        """Edit gradients in place. Called with "add" (analytic penalties), "project", then the loop clips, then "mask"."""

    def after_step(self, ctx: Ctx) -> None:
        """Restore frozen weights, moving averages, path integrals."""

    def after_task(self, ctx: Ctx) -> None:
        """Importances, pruning, buffers, re-alignment. May train through `loop.refit`."""

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        """The model to evaluate or answer with. task: the stage if the query says which, else None."""
        yield

    def forget(self, video: str, start: float, end: float) -> int:
        """Remove every kept example cut from [start, end] s of a video; how many."""
        return sum(b.forget(video, start, end) for b in self._parts() if hasattr(b, "forget"))

    def supersede(self, ids: Collection[str]) -> int:
        """Remove kept examples that come again with another target, before the stage that brings them; how many."""
        return sum(b.drop(ids) for b in self._parts() if hasattr(b, "drop"))

    def cost(self) -> Cost:
        """Bytes of the saved state and extra passes; strategies add their passes to what is counted here."""
        return Cost(bytes=_bytes(self.state_dict()))

    def state_dict(self) -> dict[str, Any]:
        """Nested dicts and lists of tensors (cloned) and JSON values; `state.pack` makes files of it."""
        return {key: _save(getattr(self, key)) for key in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for key in self.saved:
            part = getattr(self, key)
            if hasattr(part, "load_state_dict"):
                part.load_state_dict(state[key])
            else:
                setattr(self, key, _save(state[key]))

    def _parts(self) -> list[Any]:
        return [getattr(self, key) for key in self.saved]


def _save(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if isinstance(value, Mapping):
        return {k: _save(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_save(v) for v in value)
    return value


def _bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(_bytes(v) for v in value.values())
    return sum(_bytes(v) for v in value) if isinstance(value, list | tuple) else 0
