"""The two protocols of continual learning: a Learner (what is trained) and a Strategy (how it avoids forgetting).

They meet in three records. A `Sample` is one example as it may be kept (features, query, targets: never pictures). A `Batch`
is a list of samples with their origin. An `Output` declares what a tensor of the network *means* (its likelihood), which is
all that EWC, MAS, LwF, DER++ or cloning need to know about a learner, so that one file per strategy serves a localisation
network and a policy alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from vilco_app.continual.loop import Plan

Kind = Literal["bernoulli", "categorical", "gaussian", "gaussian-logstd", "raw"]
Stage = Literal["add", "project", "mask"]
Origin = Literal["new", "replay"]


@dataclass(frozen=True)
class Sample:
    """One example as it is trained on and as a replay buffer may keep it.

    id: stable name; a sample added again under the same id replaces the old one in a buffer. task: index of its stage.
    group: what a balanced buffer balances (query template, category, object). features: inputs, kept as fp16 in buffers
    (video [T, D], query [L, Dt], dense maps ...). targets: kept exactly (windows in seconds, class indices, boxes).
    meta: JSON values. spans: (video id, start s, end s) of the footage the features were cut from; `forget` removes by it.
    stored: outputs of an earlier model on this sample, by output name: the valid entries in row order (see `flat`).
    trust: weight in [0, 1] of `stored` (0: the earlier model was wrong there).
    """

    id: str
    features: Mapping[str, Tensor]
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    task: int = 0
    group: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    spans: tuple[tuple[str, float, float], ...] = ()
    stored: Mapping[str, Tensor] = field(default_factory=dict)
    trust: float = 1.0

    def trim(self) -> Sample:
        """The part of it a buffer keeps, before outputs are stored with it; a whole long video need not be remembered."""
        return self

    def compact(self) -> Sample:
        """A copy for a buffer: detached, on the CPU, floating features and stored outputs as fp16, targets exact."""
        return replace(
            self,
            features={k: _half(v) for k, v in self.features.items()},
            targets={k: v.detach().cpu().clone() for k, v in self.targets.items()},
            stored={k: _half(v) for k, v in self.stored.items()},
        )

    def nbytes(self) -> int:
        """Bytes of its tensors."""
        every = (*self.features.values(), *self.targets.values(), *self.stored.values())
        return sum(t.numel() * t.element_size() for t in every)

    def state_dict(self) -> dict[str, Any]:
        return {
            "id": self.id, "task": self.task, "group": self.group, "meta": dict(self.meta), "spans": [[v, float(a), float(b)] for v, a, b in self.spans],
            "features": dict(self.features), "targets": dict(self.targets), "stored": dict(self.stored), "trust": self.trust,
        }  # fmt: skip

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Sample:
        spans = tuple((str(v), float(a), float(b)) for v, a, b in state["spans"])
        return cls(**{**state, "spans": spans})


def _half(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().cpu()
    return tensor.to(torch.float16) if tensor.is_floating_point() else tensor.clone()


@dataclass
class Batch:
    """B samples of one step. origin [B]: "new" (this stage) or "replay". weights [B]: each sample's share of the loss.

    data: `learner.collate(samples)`, filled by the loop when composition is done. teacher: outputs of earlier models on
    this very batch, by strategy name.
    """

    samples: list[Sample]
    origin: list[Origin]
    weights: Tensor
    data: Any = None
    teacher: dict[str, list[Output]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Sequence[Sample], origin: Origin = "new") -> Batch:
        return cls(list(samples), [origin] * len(samples), torch.ones(len(samples)))

    def join(self, samples: Sequence[Sample], share: float | None = None) -> Batch:
        """This batch and replayed samples. share: fraction of the loss the replayed ones carry; None: every sample counts 1."""
        if not samples:
            return self
        old, new = torch.ones(len(samples)), self.weights
        if share is not None:
            old = old * (share / len(samples))
            new = new / new.sum() * (1 - share)
        origin: list[Origin] = [*self.origin, *(["replay"] * len(samples))]  # type: ignore[list-item]
        return Batch([*self.samples, *samples], origin, torch.cat([new, old]), None, self.teacher)

    @property
    def tasks(self) -> list[int]:
        return [s.task for s in self.samples]


@dataclass
class Output:
    """A tensor of the network and the likelihood it parametrises.

    tensor [B, ...]; kind: "bernoulli" (independent logits), "categorical" (logits, last dimension), "gaussian" (means, with
    standard deviation `scale`), "gaussian-logstd" (last dimension = K means then K log standard deviations), "raw" (unit
    Gaussian). mask: bool, its leading dimensions equal tensor's, valid entries; None: all. weight: factor of the log-likelihood
    (the loss's own weighting). gate: name of the bernoulli/categorical output whose confidence says where this one matters
    (boundary offsets matter where the teacher saw something). classes: the last dimension is a growing list of classes.
    """

    name: str
    tensor: Tensor
    kind: Kind
    mask: Tensor | None = None
    weight: float = 1.0
    scale: float | Tensor = 1.0
    gate: str | None = None
    classes: bool = False

    def flat(self, index: int) -> Tensor:
        """Valid entries of sample `index` in row order: [n, ...]; the same whatever the batch was padded to."""
        row = self.tensor[index]
        return row if self.mask is None else row[self.mask[index]]

    def valid(self) -> Tensor:
        """mask broadcast to tensor's shape, as tensor's dtype (ones where there is no mask)."""
        if self.mask is None:
            return torch.ones_like(self.tensor)
        mask = self.mask.reshape(*self.mask.shape, *([1] * (self.tensor.dim() - self.mask.dim())))
        return mask.expand_as(self.tensor).to(self.tensor)


@dataclass
class Result:
    """What a learner says of a batch. terms: named losses, each [B] (per sample) or a scalar of the whole batch."""

    terms: dict[str, Tensor]
    outputs: list[Output]

    def per_sample(self) -> Tensor | None:
        """[B]: sum of the per-sample terms; None when there are none."""
        rows = [t for t in self.terms.values() if t.dim() == 1]
        return torch.stack(rows).sum(0) if rows else None

    def total(self, weights: Tensor) -> Tensor:
        """Scalar: weighted mean over samples of the per-sample terms, plus the scalar terms."""
        scalars = [t for t in self.terms.values() if t.dim() == 0]
        rows = self.per_sample()
        if rows is not None:
            weights = weights.to(rows)
            scalars.append((rows * weights).sum() / weights.sum())
        return torch.stack(scalars).sum()


@dataclass(frozen=True)
class Task:
    """One stage. index: 0, 1, ...; total: how many there will be, None when nobody knows (corrections keep coming)."""

    index: int
    name: str = ""
    total: int | None = None


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


@dataclass
class Cost:
    """What a strategy adds. bytes: kept between steps; forwards, backwards: extra passes per step, in passes of one batch."""

    bytes: int = 0
    forwards: float = 0.0
    backwards: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.forwards + other.forwards, self.backwards + other.backwards)


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
    rehearses: bool = (
        False  # True when earlier stages' own heads keep training; without replay only weight decay moves them
    )

    def before_task(self, ctx: Ctx) -> None:
        """Anchors, teachers, new slots. The optimiser is built afterwards."""

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        """What this stage's epochs run over: the stage's samples, unless the strategy holds more (joint) or less (GDumb)."""
        return samples

    def lr_scale(self, name: str, ctx: Ctx) -> float:
        """Factor of the learning rate of a parameter in this stage; 0 leaves it out of the optimiser."""
        return 1.0 if self.rehearses or name in ctx.trained() else 0.0

    def extra_parameters(self) -> dict[str, nn.Parameter]:
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
