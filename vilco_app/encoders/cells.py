"""From a map of cells to at most eight region vectors with boxes: what one sample's objects are stored as.

Cells are grouped by k-means on feature and position, seeded deterministically by farthest-point search. The work is a few
small matrix products per frame; it must stay a fraction of the backbone's cost.
"""

from __future__ import annotations

import numpy as np

from vilco_app.encoders.base import MAX_REGIONS


def unit(x: np.ndarray) -> np.ndarray:
    """x / |x| along the last axis; zero vectors stay zero."""
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)


def cluster_cells(
    maps: np.ndarray, regions: int = MAX_REGIONS, position_weight: float = 0.5, rounds: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """maps [B, h, w, C] -> region vectors [B, R, C] (unit), boxes [B, R, 4] (fractions), sizes [B, R] (cells; 0: unused).

    position_weight: squared distance across the whole frame, in units of squared feature distance (unit vectors: 0 to 4).
    """
    b, h, w, c = maps.shape
    n = h * w
    cells = unit(maps.reshape(b, n, c).astype(np.float32))  # [B, n, C]
    ys, xs = np.divmod(np.arange(n), w)
    place = np.stack([(ys + 0.5) / h, (xs + 0.5) / w], -1).astype(np.float32)  # [n, 2]
    points = np.concatenate([cells, np.broadcast_to(place * np.sqrt(position_weight), (b, n, 2))], -1)  # [B, n, C + 2]
    k = min(regions, n)
    squares = (points**2).sum(-1)  # [B, n]
    rows = np.arange(b)
    # farthest-point seeds: first the cell farthest from the mean, then whatever is farthest from all seeds so far
    mean = points.mean(1, keepdims=True)
    seed = ((points - mean) ** 2).sum(-1).argmax(1)
    seeds = [seed]
    nearest = np.full((b, n), np.inf, np.float32)
    for _ in range(k - 1):
        chosen = points[rows, seed]  # [B, C + 2]
        distance = squares + squares[rows, seed][:, None] - 2 * np.einsum("bnc,bc->bn", points, chosen)
        nearest = np.minimum(nearest, distance)
        seed = nearest.argmax(1)
        seeds.append(seed)
    centres = points[rows[:, None], np.stack(seeds, 1)]  # [B, k, C + 2]
    for _ in range(rounds):
        scores = 2 * points @ centres.transpose(0, 2, 1) - (centres**2).sum(-1)[:, None]  # [B, n, k]
        label = scores.argmax(-1)
        member = (label[..., None] == np.arange(k)).astype(np.float32)  # [B, n, k]
        sizes = member.sum(1)
        centres = np.where(
            sizes[..., None] > 0, member.transpose(0, 2, 1) @ points / np.maximum(sizes, 1)[..., None], centres
        )
    vectors = unit(member.transpose(0, 2, 1) @ cells)
    inside = member.transpose(0, 2, 1).astype(bool)  # [B, k, n]
    x1 = np.where(inside, xs, w).min(-1) / w
    y1 = np.where(inside, ys, h).min(-1) / h
    x2 = (np.where(inside, xs, -1).max(-1) + 1) / w
    y2 = (np.where(inside, ys, -1).max(-1) + 1) / h
    return vectors, np.stack([x1, y1, x2, y2], -1).astype(np.float32), sizes.astype(np.int64)


def pack_regions(
    vectors: np.ndarray, boxes: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[B, R, C], [B, R, 4], [B, R] -> (vectors [M, C], boxes [M, 4], counts [B]) without the unused ones."""
    used = sizes > 0
    return vectors[used], boxes[used], used.sum(1)


def centre_pool(cells: np.ndarray, width: float = 0.25) -> np.ndarray:
    """cells [h, w, C] -> [C]: mean weighted by a Gaussian around the middle, for in a crop the border is background.

    width: standard deviation in fractions of each side.
    """
    h, w, _ = cells.shape
    y = np.exp(-((((np.arange(h) + 0.5) / h - 0.5) / width) ** 2) / 2)
    x = np.exp(-((((np.arange(w) + 0.5) / w - 0.5) / width) ** 2) / 2)
    weight = np.outer(y, x) / (y.sum() * x.sum())
    return np.tensordot(weight, cells, axes=2).astype(np.float32)
