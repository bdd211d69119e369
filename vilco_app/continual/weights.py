"""Small operations on named weights that several strategies share: copies, growth, teachers, evaluation mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from vilco_app.continual.protocols import Batch, Learner, Output

Named = Mapping[str, Tensor]


def copy_of(named: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Detached clones by name."""
    return {name: p.detach().clone() for name, p in named.items()}


def fitted(old: Tensor, parameter: Tensor, fill: float = 0.0) -> Tensor:
    """`old` in the shape of a parameter that may have grown along dimension 0 (new rows get `fill`), on its device."""
    old = old.to(parameter)
    if old.shape == parameter.shape:
        return old
    grown = torch.full_like(parameter, fill)
    grown[: len(old)] = old
    return grown


def everything(learner: Learner, task: int) -> dict[str, nn.Parameter]:
    """Shared parameters and the heads of stages 0..task."""
    named = dict(learner.shared_parameters())
    for index in range(task + 1):
        named.update(learner.task_parameters(index))
    return named


@contextmanager
def swapped(named: Mapping[str, nn.Parameter], values: Named) -> Iterator[None]:
    """Inside, the parameters hold `values` (new rows of grown ones keep their own); afterwards exactly what they held."""
    held = {name: named[name].data for name in values if name in named}
    try:
        for name, mine in held.items():
            value = values[name].to(mine)
            if value.shape != mine.shape:
                value = torch.cat([value, mine[len(value) :]])
            named[name].data = value
        yield
    finally:
        for name, mine in held.items():
            named[name].data = mine


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """No dropout inside; every submodule's training flag is as before afterwards."""
    flags = {m: m.training for m in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for m, flag in flags.items():
            m.training = flag


@torch.no_grad()
def outputs_of(learner: Learner, batch: Batch, task: int, weights: Named | None = None) -> list[Output]:
    """Outputs on a batch without dropout and without gradient, by earlier weights if given. Collates the batch if needed."""
    if batch.data is None:
        batch.data = learner.collate(batch.samples)
    named = everything(learner, task) if weights else {}
    with evaluating(learner.module), swapped(named, weights or {}):
        return learner.outputs(batch, task)
