"""The score matrix and every forgetting number that is computed from it: pure functions, each named with its variant.

a[i][j] = score on stage j after learning stage i, both from 0, T stages; higher is better. Only i >= j is needed unless said;
unset cells are NaN and a function that needs one returns NaN. Published tables use different variants under one name:
`cw_forgetting` averages over all T stages (the last contributes 0), `chaudhry_forgetting` and `bwf_vilco` over T - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vilco_app.values import VilcoError

Array = np.ndarray


@dataclass
class ScoreMatrix:
    """Scores with the raw per-query values behind them. stages: names in the order learnt (columns = rows).

    hits[(i, j)]: value of every held-out query of stage j after stage i (0/1 for recall), the same queries in the same
    order for every i, so that intervals can be paired.
    """

    metric: str
    stages: list[str] = field(default_factory=list)
    hits: dict[tuple[int, int], Array] = field(default_factory=dict)

    def set(self, i: int, j: int, hits: Sequence[float] | Array) -> None:
        """Record the per-query values of stage j after stage i. Raises VilcoError when their number changed."""
        values = np.asarray(hits, dtype=np.float64)
        for (_, column), known in self.hits.items():
            if column == j and len(known) != len(values):
                raise VilcoError(
                    "queries-changed", f"stage {j} was scored on {len(known)} queries before and on {len(values)} now.",
                    "Score every stage on the same held-out queries.",
                )  # fmt: skip
        self.hits[(i, j)] = values

    def values(self) -> Array:
        """a [T, T] float64; NaN where nothing was measured."""
        a = np.full((len(self.stages), len(self.stages)), np.nan)
        for (i, j), hits in self.hits.items():
            a[i, j] = hits.mean() if len(hits) else np.nan
        return a

    def counts(self) -> Array:
        """[T] held-out queries of each stage."""
        n = np.zeros(len(self.stages))
        for (_, j), hits in self.hits.items():
            n[j] = len(hits)
        return n

    def to_json(self) -> dict[str, Any]:
        """{"metric", "stages", "values"}, unset cells null."""
        rows = [[None if np.isnan(v) else round(float(v), 6) for v in row] for row in self.values()]
        return {"metric": self.metric, "stages": list(self.stages), "values": rows}

    def state_dict(self) -> dict[str, Any]:
        """to_json with the per-query values, for a snapshot."""
        cells = [{"after": i, "on": j, "hits": hits.tolist()} for (i, j), hits in sorted(self.hits.items())]
        return {"metric": self.metric, "stages": list(self.stages), "cells": cells}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ScoreMatrix:
        matrix = cls(state["metric"], list(state["stages"]))
        for cell in state["cells"]:
            matrix.set(int(cell["after"]), int(cell["on"]), cell["hits"])
        return matrix


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


# what is known at the end


def acc(a: Array) -> float:
    """Average final score, ViLCo's P_T and GEM's ACC: mean_j a[T-1][j]."""
    return _mean(np.asarray(a)[-1])


def acc_weighted(a: Array, counts: Array) -> float:
    """Average final score over queries: sum_j n_j a[T-1][j] / sum n_j."""
    return float(np.average(np.asarray(a)[-1], weights=counts))


def average_incremental(a: Array) -> float:
    """Mean over i of mean_{j<=i} a[i][j]: the headline of PyCIL and L2P; hides the end."""
    return _mean(np.array([np.mean(row[: i + 1]) for i, row in enumerate(np.asarray(a))]))


def relative_gap(a: Array, joint: Array) -> float:
    """(mean joint score - acc) / mean joint score."""
    return float((np.mean(joint) - acc(a)) / np.mean(joint))


# what was lost


def bwt(a: Array) -> float:
    """Backward transfer (GEM): mean_{j<T-1} (a[T-1][j] - a[j][j]); negative is forgetting; NaN for one stage."""
    a = np.asarray(a)
    return _mean(a[-1, :-1] - np.diag(a)[:-1])


def bwf_vilco(a: Array, after: int | None = None) -> float:
    """Backward forgetting, ViLCo section 3.4: mean_{j<i} (a[j][j] - a[i][j]), i = after (the last stage if None)."""
    a = np.asarray(a)
    i = len(a) - 1 if after is None else after
    return _mean(np.diag(a)[:i] - a[i, :i])


def bwf_vilco_weighted(a: Array, weights: Array, after: int | None = None) -> float:
    """Backward forgetting as ViLCo's released MQ code computes it: the stages' terms weighted.

    The release's weights are the cumulative number of classes, 22 (j + 1); pass those to reproduce its numbers.
    """
    a = np.asarray(a)
    i = len(a) - 1 if after is None else after
    return float(np.average((np.diag(a) - a[i])[:i], weights=np.asarray(weights)[:i])) if i else float("nan")


def average_vilco_weighted(a: Array, weights: Array, after: int | None = None) -> float:
    """ViLCo's released P_i: sum_{j<=i} w_j a[i][j] / sum w_j."""
    a = np.asarray(a)
    i = len(a) - 1 if after is None else after
    return float(np.average(a[i, : i + 1], weights=np.asarray(weights)[: i + 1]))


def cw_forgetting(a: Array) -> float:
    """Continual World's forgetting: mean over all T stages of a[j][j] - a[T-1][j]; the last stage contributes 0."""
    a = np.asarray(a)
    return _mean(np.diag(a) - a[-1])


def chaudhry_forgetting(a: Array) -> float:
    """Chaudhry et al. 2018: mean_{j<T-1} (max_{j<=i<T-1} a[i][j] - a[T-1][j]); never below `bwf_vilco`."""
    a = np.asarray(a)
    last = len(a) - 1
    return _mean(np.array([np.max(a[j:last, j]) - a[last, j] for j in range(last)]))


# what was not learnt, and what helped


def intransigence(a: Array, joint: Array) -> float:
    """mean_j (joint[j] - a[j][j]): failure to learn the new stage as well as joint training would."""
    return _mean(np.asarray(joint) - np.diag(a))


def plasticity(a: Array, single: Array) -> float:
    """mean_j (a[j][j] - single[j]), single = a model trained on stage j alone."""
    return _mean(np.diag(a) - np.asarray(single))


def plasticity_slope(a: Array) -> float:
    """Least-squares slope of a[j][j] over j: below 0 the model learns ever worse."""
    own = np.diag(a)
    return float(np.polyfit(np.arange(len(own)), own, 1)[0]) if len(own) > 1 else float("nan")


def fwt_gem(a: Array, untrained: Array) -> float:
    """Forward transfer (GEM): mean_{j>=1} (a[j-1][j] - untrained[j]); needs scores on stages not yet learnt (i = j - 1)."""
    a = np.asarray(a)
    return _mean(np.diag(a, 1) - np.asarray(untrained)[1:])


# inside stages: curves [K] of one old stage's score at K moments


def stability_gap(before: float, curve: Array) -> float:
    """De Lange et al. 2023: score of an old stage before a new one minus its minimum while the new one is learnt."""
    return float(before - np.min(curve))


def min_acc(curves: Sequence[Array]) -> float:
    """min-ACC: mean over old stages of the running minimum of each one's curve since it was learnt."""
    return _mean(np.array([np.min(c) for c in curves]))


def wc_acc(current: float, curves: Sequence[Array]) -> float:
    """WC-ACC: current / k + (1 - 1/k) min-ACC, k = stages seen; `curves` are those of the k - 1 old ones."""
    k = len(curves) + 1
    return float(current / k + (1 - 1 / k) * min_acc(curves)) if curves else float(current)


def anytime(scores: Sequence[Array]) -> float:
    """Mean over moments of the mean over the stages seen by then; scores: one array of those stages per moment."""
    return _mean(np.array([np.mean(s) for s in scores]))


def forward_transfer_cw(curve: Array, reference: Array, guard: float = 0.1) -> float:
    """Continual World's FT of one stage: (AUC - AUC_b) / (1 - AUC_b), AUC = mean of the evaluations while it is learnt.

    reference: the same of a model trained on the stage alone from scratch. NaN when 1 - AUC_b < guard (nothing left to gain).
    """
    auc, base = float(np.mean(curve)), float(np.mean(reference))
    return (auc - base) / (1 - base) if 1 - base >= guard else float("nan")


def learning_gain_cw(curve: Array, reference: Array) -> float:
    """FT of one stage without the division, AUC - AUC_b: what to report where `forward_transfer_cw` is NaN."""
    return float(np.mean(curve)) - float(np.mean(reference))


def forward_transfer_cw_mean(curves: Sequence[Array], references: Sequence[Array], guard: float = 0.1) -> float:
    """Continual World's FT: mean over stages of `forward_transfer_cw`, those with nothing left to gain left out; NaN if all are."""
    each = [forward_transfer_cw(c, r, guard) for c, r in zip(curves, references, strict=True)]
    return _mean(np.array([v for v in each if not np.isnan(v)]))


def reference_transfer_cw(pairs: Array) -> float:
    """Continual World's RT: (1/N) sum_{j>=1} max_{i<j} pairs[i][j], pairs[i][j] = FT on stage j after stage i alone.

    What picking the best predecessor for each stage would give; the first stage has none and counts 0.
    """
    a = np.asarray(pairs)
    return float(sum(np.max(a[:j, j]) for j in range(1, len(a))) / len(a))
