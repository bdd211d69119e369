"""From cell scores and distances to windows: candidates, Gaussian soft-NMS. Pure numpy."""

from __future__ import annotations

import numpy as np


def candidates(
    scores: np.ndarray, distance: np.ndarray, u: np.ndarray, scale: np.ndarray, most: int = 400, least: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
    """scores [P] in (0, 1), distance [P, 2] in level cells, u, scale [P] -> (windows [n, 2] in cells, scores [n]), best first."""
    order = np.argsort(-scores, kind="stable")[:most]
    order = order[scores[order] > least]
    reach = distance[order] * scale[order, None]
    windows = np.stack([u[order] - reach[:, 0], u[order] + reach[:, 1]], axis=1)
    return windows, scores[order]


def iou_1d(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of windows a [n, 2] with b [m, 2] -> [n, m]."""
    overlap = np.minimum(a[:, None, 1], b[None, :, 1]) - np.maximum(a[:, None, 0], b[None, :, 0])
    overlap = np.maximum(overlap, 0.0)
    union = (a[:, 1] - a[:, 0])[:, None] + (b[:, 1] - b[:, 0])[None] - overlap
    return overlap / np.maximum(union, 1e-9)


def soft_nms(
    windows: np.ndarray, scores: np.ndarray, top: int = 50, sigma: float = 0.5, least: float = 1e-4
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian soft-NMS (Bodla et al., ICCV 2017): each pick multiplies the others' scores by exp(-IoU^2 / sigma).

    -> (windows [n, 2], decayed scores [n]), best first, at most `top`, none below `least`.
    """
    windows, left = np.asarray(windows, dtype=np.float64), np.asarray(scores, dtype=np.float64).copy()
    kept, out = [], []
    for _ in range(min(top, len(left))):
        i = int(np.argmax(left))
        if left[i] < least:
            break
        kept.append(i)
        out.append(left[i])
        left *= np.exp(-(iou_1d(windows[i : i + 1], windows)[0] ** 2) / sigma)
        left[kept] = -1.0
    return windows[kept].reshape(-1, 2), np.asarray(out)
