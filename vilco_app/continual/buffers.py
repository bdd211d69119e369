"""Replay buffers: bounded sets of samples with a policy of their own. Strategies receive one, they do not own its policy.

All keep `Sample.compact()` copies (features fp16, targets exact), replace a sample that comes again under the same id, and
give back what a person wants forgotten. Chance comes from the generator handed in, so a run can be repeated and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from vilco_app.continual.protocols import Sample
from vilco_app.values import VilcoError

Encode = Callable[[Sample], Tensor]


class Buffer:
    """Base: keeps everything. capacity: samples at most; None: no limit. Also named `Unlimited`."""

    kind = "unlimited"

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise VilcoError(
                "bad-memory", f"memory is {capacity} samples.", "Give at least 1, or choose the strategy naive."
            )
        self.capacity = capacity
        self.samples: list[Sample] = []

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def groups(self) -> dict[str, list[int]]:
        """Positions of the kept samples by group, in order of first appearance."""
        where: dict[str, list[int]] = {}
        for i, sample in enumerate(self.samples):
            where.setdefault(sample.group, []).append(i)
        return where

    def add(self, samples: Sequence[Sample], rng: torch.Generator, encode: Encode | None = None) -> None:
        """Offer samples in the order they came. encode: `learner.encode`, needed by herding."""
        known = {s.id for s in self.samples}
        for sample in samples:
            place = (
                next((i for i, s in enumerate(self.samples) if s.id == sample.id), None) if sample.id in known else None
            )
            if place is not None:
                self.samples[place] = sample.compact()
            else:
                self._offer(sample.compact(), rng)
            known.add(sample.id)
        self.rebalance(rng, encode)

    def _offer(self, sample: Sample, rng: torch.Generator) -> None:
        self.samples.append(sample)

    def rebalance(self, rng: torch.Generator, encode: Encode | None = None) -> None:
        """Bring the buffer back under its policy (after additions, or when groups or capacity changed)."""

    def sample(self, n: int, rng: torch.Generator) -> list[Sample]:
        """n samples, uniformly; without repetition as long as the buffer has that many."""
        if not self.samples or n <= 0:
            return []
        rounds = [torch.randperm(len(self.samples), generator=rng) for _ in range(-(-n // len(self.samples)))]
        return [self.samples[int(i)] for i in torch.cat(rounds)[:n]]

    def forget(self, video: str, start: float, end: float) -> int:
        """Remove every sample cut from footage that overlaps [start, end] s of a video; how many were removed."""
        kept = [s for s in self.samples if not any(v == video and a < end and b > start for v, a, b in s.spans)]
        removed = len(self.samples) - len(kept)
        self._forgotten(removed)
        self.samples = kept
        return removed

    def _forgotten(self, removed: int) -> None:
        """Called before `forget` removes samples."""

    def drop(self, ids: Collection[str]) -> int:
        """Remove samples by id (a newer version of them is about to be learnt); how many were removed."""
        kept = [s for s in self.samples if s.id not in ids]
        removed, self.samples = len(self.samples) - len(kept), kept
        return removed

    def nbytes(self) -> int:
        """Bytes of all tensors kept."""
        return sum(s.nbytes() for s in self.samples)

    def state_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "capacity": self.capacity, "samples": [s.state_dict() for s in self.samples]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises VilcoError when the state is another policy's."""
        if state["kind"] != self.kind:
            raise VilcoError(
                "wrong-buffer", f"the saved buffer is {state['kind']!r}, this strategy keeps {self.kind!r}.",
                "Continue with the strategy the snapshot was learnt with.",
            )  # fmt: skip
        self.capacity = state["capacity"]
        self.samples = [Sample.from_state(s) for s in state["samples"]]


Unlimited = Buffer


class Reservoir(Buffer):
    """Every sample of the stream so far is kept with equal probability capacity / seen (Vitter 1985, algorithm R).

    After `forget`, places are refilled by random pairing (Gemulla 2006): each new sample stands in for a forgotten one, which had
    been in the buffer (`holes`) or not (`missed`), so what comes after a deletion is not favoured.
    """

    kind = "reservoir"

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.seen = self.holes = self.missed = 0

    def _offer(self, sample: Sample, rng: torch.Generator) -> None:
        assert self.capacity is not None
        self.seen += 1
        if self.holes + self.missed:
            if int(torch.randint(self.holes + self.missed, (1,), generator=rng)) < self.holes:
                self.samples.append(sample)
                self.holes -= 1
            else:
                self.missed -= 1
        elif len(self.samples) < self.capacity:
            self.samples.append(sample)
        else:
            place = int(torch.randint(self.seen, (1,), generator=rng))
            if place < self.capacity:
                self.samples[place] = sample

    def _forgotten(self, removed: int) -> None:
        if removed:
            # the forgotten share of the buffer estimates the forgotten share of the stream
            stream = round(self.seen * removed / len(self.samples))
            self.seen -= stream
            self.holes += removed
            self.missed += max(0, stream - removed)

    def drop(self, ids: Collection[str]) -> int:
        removed = super().drop(ids)
        self.seen -= removed
        self.holes += removed
        return removed

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "seen": self.seen, "holes": self.holes, "missed": self.missed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen, self.holes, self.missed = int(state["seen"]), int(state["holes"]), int(state["missed"])


class Balanced(Buffer):
    """Equal shares per group (class, template): when full, a random member of the largest group goes (GDumb's sampler).

    No group falls below capacity // groups while another has more. `sample` draws the groups evenly too, so that a rare
    template is rehearsed as often as a common one.
    """

    kind = "balanced"

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)

    def rebalance(self, rng: torch.Generator, encode: Encode | None = None) -> None:
        assert self.capacity is not None
        groups = self.groups()
        gone: set[int] = set()
        while len(self.samples) - len(gone) > self.capacity:
            largest = max(len(members) for members in groups.values())
            fullest = [members for members in groups.values() if len(members) == largest]
            members = fullest[int(torch.randint(len(fullest), (1,), generator=rng))]
            gone.add(members.pop(int(torch.randint(len(members), (1,), generator=rng))))
        self.samples = [s for i, s in enumerate(self.samples) if i not in gone]

    def sample(self, n: int, rng: torch.Generator) -> list[Sample]:
        """n samples, as even over groups as n allows, members at random."""
        groups = list(self.groups().values())
        if not groups or n <= 0:
            return []
        chosen: list[Sample] = []
        queues: list[list[int]] = [[] for _ in groups]
        while len(chosen) < n:
            for g in torch.randperm(len(groups), generator=rng).tolist()[: n - len(chosen)]:
                if not queues[g]:
                    queues[g] = [groups[g][i] for i in torch.randperm(len(groups[g]), generator=rng).tolist()]
                chosen.append(self.samples[queues[g].pop()])
        return chosen


class Herding(Buffer):
    """Per group the samples whose running mean stays closest to the group's mean (iCaRL, Rebuffi 2017, algorithm 4).

    Each group keeps capacity // groups samples in the order chosen, so shrinking a group drops its least important ones
    (algorithm 5). Features are `learner.encode`, which is frozen: no choice ever goes stale.
    """

    kind = "herding"

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)

    def rebalance(self, rng: torch.Generator, encode: Encode | None = None) -> None:
        assert self.capacity is not None
        groups = self.groups()
        if not groups:
            return
        each = max(1, self.capacity // len(groups))
        kept: list[Sample] = []
        for members in groups.values():
            samples = [self.samples[i] for i in members]
            if len(samples) > each and encode is not None:
                vectors = torch.stack([encode(s).detach().float().cpu() for s in samples])
                samples = [samples[i] for i in herd(vectors, each)]
            kept.extend(samples[:each])
        self.samples = kept[: self.capacity]


def herd(vectors: Tensor, count: int) -> list[int]:
    """Indices of `count` rows of vectors [N, D] chosen greedily: step k adds the row that brings the mean of the chosen k
    closest to the mean of all (iCaRL algorithm 4, on unit-length vectors)."""
    vectors = torch.nn.functional.normalize(vectors, dim=1)
    mean, total = vectors.mean(0), torch.zeros_like(vectors[0])
    chosen: list[int] = []
    for k in range(1, min(count, len(vectors)) + 1):
        distance = (mean - (total + vectors) / k).norm(dim=1)
        distance[chosen] = torch.inf
        chosen.append(int(distance.argmin()))
        total = total + vectors[chosen[-1]]
    return chosen


def make_buffer(policy: str, capacity: int | None) -> Buffer:
    """policy: "reservoir", "balanced", "herding" or "unlimited"."""
    if policy == "unlimited":
        return Unlimited()
    kinds: dict[str, type[Buffer]] = {k.kind: k for k in (Reservoir, Balanced, Herding)}
    if policy not in kinds or capacity is None:
        raise VilcoError(
            "no-buffer",
            f"there is no buffer {policy!r} of capacity {capacity}.",
            f"Choose one of {', '.join(kinds)}, unlimited.",
        )
    return kinds[policy](capacity)
