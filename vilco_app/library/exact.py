"""Exact search over stored vectors: the reference, and the way for what no index holds yet."""

from __future__ import annotations

import numpy as np

from vilco_app.library.types import Stored

SLAB = 4096  # vectors per slab of a product: at 640 dimensions 10 MB as float32


def best_globals(stored: Stored, vectors: np.ndarray, top: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows and scores of the best `top` samples from row `first` on for each of vectors [Q, D] -> two [Q, <= top]."""
    return _best(
        len(stored) - first,
        lambda a, b: np.asarray(stored.globals[first + a : first + b], np.float32),
        vectors,
        top,
        first,
    )


def best_regions(stored: Stored, vectors: np.ndarray, top: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The same over region rows."""
    total = len(stored.region_scales)
    return _best(total - first, lambda a, b: stored.regions(first + a, first + b), vectors, top, first)


def _best(count: int, rows, vectors: np.ndarray, top: int, shift: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]
    scores = np.empty((len(vectors), max(count, 0)), np.float32)
    for a in range(0, count, SLAB):
        scores[:, a : a + SLAB] = vectors @ rows(a, min(count, a + SLAB)).T
    order = top_of(scores, top)
    return order + shift, np.take_along_axis(scores, order, axis=1)


def top_of(scores: np.ndarray, top: int) -> np.ndarray:
    """Indices of the `top` largest of each row of scores [Q, N], best first; ties by position -> [Q, min(top, N)]."""
    top = min(top, scores.shape[1])
    if top == 0:
        return np.zeros((len(scores), 0), np.int64)
    if top < scores.shape[1]:
        part = np.sort(np.argpartition(-scores, top - 1, axis=1)[:, :top], axis=1)
    else:
        part = np.broadcast_to(np.arange(top), (len(scores), top))
    order = np.argsort(-np.take_along_axis(scores, part, axis=1), axis=1, kind="stable")
    return np.take_along_axis(part, order, axis=1)
