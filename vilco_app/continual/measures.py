"""What the network itself shows beside its scores: plasticity, prompt routing, cost. Pure functions of arrays (NumPy only).

A network can hold its scores while it loses the ability to learn: its features fall into few directions (`effective_rank`),
units stop answering (`dormant_share`), weights grow (`weight_norm`). `matrix.plasticity` is the same seen from the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

Array = np.ndarray
K = TypeVar("K")


def effective_rank(features: Array, centre: bool = False) -> float:
    """exp(entropy of the normalised singular values) of features [n, D] (Roy and Vetterli 2007, definition 3).

    Between 1 (all rows in one direction) and min(n, D) (all directions alike); 0 where everything is 0. centre: of the rows
    minus their mean, so that a common offset does not count as a direction.
    """
    x = np.asarray(features, dtype=np.float64)
    if centre:
        x = x - x.mean(0)
    share = np.linalg.svd(x, compute_uv=False)
    if share.sum() <= 0:
        return 0.0
    share = share[share > 0] / share.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def feature_rank(features: Array, delta: float = 0.01) -> int:
    """srank: least k whose k largest singular values hold 1 - delta of their sum (Kumar et al. 2021, section 3)."""
    values = np.linalg.svd(np.asarray(features, dtype=np.float64), compute_uv=False)
    if values.sum() <= 0:
        return 0
    return int(np.searchsorted(np.cumsum(values) / values.sum(), 1 - delta - 1e-12) + 1)


def dormant_share(layers: Sequence[Array], tau: float = 0.025) -> float:
    """Share of dormant units (Sokar et al. 2023, definition 1) over layers of activations [n, units].

    A unit's score is its mean |activation| over the mean of its layer; it is dormant at tau or below. NaN without layers.
    """
    dormant = total = 0
    for layer in layers:
        size = np.abs(np.asarray(layer, dtype=np.float64)).mean(0)
        mean = size.mean()
        dormant += int((size <= tau * mean).sum()) if mean > 0 else len(size)  # a silent layer is dormant whole
        total += len(size)
    return dormant / total if total else float("nan")


def weight_norm(parameters: Sequence[Array]) -> float:
    """Root mean square of all weights: sqrt(sum_j theta_j^2 / J), comparable while a network grows."""
    flat = [np.asarray(p, dtype=np.float64).ravel() for p in parameters]
    count = sum(len(p) for p in flat)
    return float(np.sqrt(sum(float(p @ p) for p in flat) / count)) if count else float("nan")


# prompt and adapter pools: weights [Q, m] of m slots for Q queries, rows sum to 1; owners [m]: the stage of each slot


def routed(weights: Array, owners: Sequence[int]) -> Array:
    """[Q] the stage each query is sent to: owner of its heaviest slot (the first of equals)."""
    return np.asarray(owners)[np.asarray(weights).argmax(1)]


def routing_accuracy(weights: Array, owners: Sequence[int], stages: Sequence[int]) -> float:
    """Share of queries whose heaviest slot was opened by their own stage: 1 - task-identity error. NaN without slots."""
    if not len(owners) or not len(stages):
        return float("nan")
    return float((routed(weights, owners) == np.asarray(stages)).mean())


def routing_confusion(weights: Array, owners: Sequence[int], stages: Sequence[int], count: int) -> Array:
    """[count, count]: of the queries of stage i, the share of slot weight that stage j's slots have; rows sum to 1."""
    weights, owner, stage = np.asarray(weights, dtype=np.float64), np.asarray(owners), np.asarray(stages)
    out = np.full((count, count), np.nan)
    for i in range(count):
        mine = weights[stage == i]
        if len(mine):
            out[i] = [mine[:, owner == j].sum(1).mean() for j in range(count)]
    return out


def usage_entropy(weights: Array) -> float:
    """Entropy of the mean slot weights in nats, over log m: 1 all slots used alike, 0 one slot for everybody (m > 1)."""
    usage = np.asarray(weights, dtype=np.float64).mean(0)
    if len(usage) < 2:
        return float("nan")
    used = usage[usage > 0]
    return float(-(used * np.log(used)).sum() / np.log(len(usage)))


def relative_cost(values: Mapping[K, float], base: K) -> dict[K, float]:
    """Seconds or bytes of every strategy over those of fine-tuning, as Continual World reports them."""
    return {name: value / values[base] for name, value in values.items()}
