"""Bootstrap intervals: over queries (one run, paired) and over seeds (a benchmark). Percentile method, fixed seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vilco_app.continual.matrix import ScoreMatrix
from vilco_app.values import VilcoError

Statistic = Callable[[np.ndarray], float]


class Interval(NamedTuple):
    """A statistic of what was measured, with the bounds of its bootstrap interval."""

    value: float
    low: float
    high: float


def over_queries(
    matrix: ScoreMatrix, statistic: Statistic, level: float = 0.9, rounds: int = 2000, seed: int = 0
) -> Interval:
    """Interval of statistic(a) when each stage's held-out queries are drawn again.

    Paired: in a round the same drawn queries give every cell of a stage's column, so what all snapshots find hard cancels
    in differences such as forgetting.
    """
    values = np.array([statistic(a) for a in _resampled(matrix, rounds, np.random.default_rng(seed))])
    return _interval(statistic(matrix.values()), values, level)


def difference_over_queries(
    one: ScoreMatrix, other: ScoreMatrix, statistic: Statistic, level: float = 0.9, rounds: int = 2000, seed: int = 0
) -> Interval:
    """Interval of statistic(one) - statistic(other) on the same queries, drawn together. Beyond 0: one is really better.

    Raises VilcoError when the two were scored on different numbers of queries.
    """
    if not np.array_equal(one.counts(), other.counts()):
        raise VilcoError(
            "not-paired", "the two runs were scored on different queries.", "Score both on the same held-out part."
        )
    first = _resampled(one, rounds, np.random.default_rng(seed))
    second = _resampled(other, rounds, np.random.default_rng(seed))
    values = np.array([statistic(a) - statistic(b) for a, b in zip(first, second, strict=True)])
    return _interval(statistic(one.values()) - statistic(other.values()), values, level)


def over_seeds(runs: Sequence[float] | np.ndarray, level: float = 0.9, rounds: int = 4000, seed: int = 0) -> Interval:
    """Interval of the mean over runs [S] when runs are drawn again (Continual World: 90 %, 4,000 rounds)."""
    values = np.asarray(runs, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(len(values), size=(rounds, len(values)))
    return _interval(float(values.mean()), values[picks].mean(1), level)


def transfer_over_seeds(
    curves: np.ndarray, references: Sequence[np.ndarray], level: float = 0.9, rounds: int = 4000, seed: int = 0,
    guard: float = 0.1,
) -> Interval:  # fmt: skip
    """Interval of Continual World's forward transfer.

    curves [S, N]: area under each of N stages' own learning curve in S continual runs. references: N arrays [R_j] of the same
    area in single-stage runs. Both are drawn again independently; seed means first, then the ratio per stage, then the mean.
    Stages whose references leave less than `guard` to gain are left out, as in `matrix.forward_transfer_cw`; NaN if all are.
    """
    rng = np.random.default_rng(seed)
    curves = np.asarray(curves, dtype=np.float64)
    refs = [np.asarray(r, dtype=np.float64) for r in references]
    open_ended = [i for i, r in enumerate(refs) if 1 - r.mean() >= guard]
    if not open_ended:
        return Interval(float("nan"), float("nan"), float("nan"))
    curves, refs = curves[:, open_ended], [refs[i] for i in open_ended]

    def transfer(auc: np.ndarray, base: np.ndarray) -> np.ndarray:
        return ((auc - base) / (1 - base)).mean(-1)

    auc = curves[rng.integers(len(curves), size=(rounds, len(curves)))].mean(1)  # [rounds, N]
    base = np.stack([r[rng.integers(len(r), size=(rounds, len(r)))].mean(1) for r in refs], 1)  # [rounds, N]
    value = float(transfer(curves.mean(0), np.array([r.mean() for r in refs])))
    return _interval(value, transfer(auc, base), level)


def _interval(value: float, values: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(value), float(low), float(high))


def _resampled(matrix: ScoreMatrix, rounds: int, rng: np.random.Generator) -> np.ndarray:
    """[rounds, T, T]: the matrix on redrawn queries, one draw per stage and round."""
    size = len(matrix.stages)
    a = np.full((rounds, size, size), np.nan)
    for j in range(size):
        rows = [(i, hits) for (i, column), hits in sorted(matrix.hits.items()) if column == j and len(hits)]
        if not rows:
            continue
        count = len(rows[0][1])
        picks = rng.integers(count, size=(rounds, count))
        for i, hits in rows:
            a[:, i, j] = hits[picks].mean(1)
    return a
