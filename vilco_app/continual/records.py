"""What a learner and a strategy hand each other: samples, batches, declared outputs, losses.

An `Output` declares what a tensor of the network *means* (its likelihood), which is all that EWC, MAS, LwF, DER++ or cloning need
to know about a learner; so one file per strategy serves a localisation network and a policy alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

Kind = Literal["bernoulli", "categorical", "gaussian", "gaussian-logstd", "raw"]
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


@dataclass
class Cost:
    """What a strategy adds. bytes: kept between steps; forwards, backwards: extra passes per step, in passes of one batch."""

    bytes: int = 0
    forwards: float = 0.0
    backwards: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.forwards + other.forwards, self.backwards + other.backwards)
