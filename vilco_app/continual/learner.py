"""The Learner protocol (what is trained) and what some learners can do beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from vilco_app.continual.records import Batch, Output, Result, Sample


class Learner(Protocol):
    """What is trained. The ViLCo network is one; a policy is another. Names, not positions, are a parameter's identity."""

    module: nn.Module

    def shared_parameters(self) -> dict[str, nn.Parameter]:
        """Everything a strategy may protect, by name. May grow along dimension 0 (new rows start unprotected)."""
        ...

    def task_parameters(self, task: int) -> dict[str, nn.Parameter]:
        """Parameters of one stage's own head ({} where heads are shared)."""
        ...

    def collate(self, samples: Sequence[Sample]) -> Any:
        """Samples -> whatever `loss` reads. Samples with `stored` must not be cropped at random: their outputs line up."""
        ...

    def loss(self, batch: Batch, task: int) -> Result:
        """Losses and outputs of a collated batch (batch.data) while stage `task` is learnt; a sample with a head of its own
        stage (`sample.task`) goes through that head. Per-sample terms must not depend on the other samples."""
        ...

    def outputs(self, batch: Batch, task: int) -> list[Output]:
        """Outputs only."""
        ...

    def encode(self, sample: Sample) -> Tensor:
        """[D]: a summary from frozen features (never from trained weights); herding chooses by it."""
        ...

    def reset(self, seed: int) -> None:
        """Back to untrained weights (joint and GDumb train from scratch)."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class HasBatches(Protocol):
    """A learner with its own way to group samples into steps (all queries of one video together)."""

    def batches(self, samples: Sequence[Sample], size: int, rng: torch.Generator) -> list[list[int]]: ...


@runtime_checkable
class HasHeads(Protocol):
    """Which parameters are trunk and head. Names of `shared_parameters`; what is in neither is the trunk."""

    def head_names(self) -> set[str]:
        """The matching / classification path: forgets most, learns fast, re-aligned at stage end."""
        ...

    def boundary_names(self) -> set[str]:
        """The class-agnostic boundary path: forgets least, kept slow."""
        ...


@runtime_checkable
class HasPrompts(Protocol):
    """Episodic prompt memory inside the network: slots are opened before a stage and frozen after it."""

    def open_slots(self, task: int, samples: Sequence[Sample], rng: torch.Generator) -> None: ...

    def close_slots(self, task: int) -> None: ...

    def frozen_rows(self) -> dict[str, Tensor]:
        """Parameter name -> bool [rows]: rows of closed slots, which no step may move."""
        ...


@runtime_checkable
class HasNarrations(Protocol):
    """Self-supervision from narrations (ViLCo appendix C)."""

    def narration_loss(self, pairs: Sequence[Sample], negatives: Sequence[Sample]) -> Tensor:
        """Scalar InfoNCE both ways over the pairs, with `negatives` (earlier stages' narrations) as further texts."""
        ...


@runtime_checkable
class HasClasses(Protocol):
    """Class logits over a growing list of classes: what BiC corrects and what iCaRL replaces by nearest means.

    class_view: installed by a strategy's `view`: (logits [..., C], embeddings [..., D]) -> logits [..., C]; None: as they are.
    """

    class_view: Callable[[Tensor, Tensor], Tensor] | None

    def class_task(self) -> list[int]:
        """[C]: the stage that brought each class."""
        ...

    def class_rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(logits [n, C] before any view, trained embeddings [n, D], labels [n] in 0..C-1) of labelled places of a batch."""
        ...


@runtime_checkable
class HasRidge(Protocol):
    """Rows for a closed-form matching head on frozen features. ridge_view: installed by `view`: x [n, D] -> scores [n, K]."""

    ridge_view: Callable[[Tensor], Tensor] | None

    def ridge_rows(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """(x [n, D], y [n, K]) of one sample, from frozen features only; K may grow."""
        ...
