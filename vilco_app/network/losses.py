"""Losses of localisation, each per example, so that no example's loss depends on its neighbours in the batch."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def focal(logits: torch.Tensor, targets: torch.Tensor, alpha: float = 0.25, gamma: float = 2.0) -> torch.Tensor:
    """Focal loss of each entry (Lin et al., ICCV 2017): -a_t (1 - p_t)^gamma log p_t. Same shape as logits."""
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    a_t = alpha * targets + (1 - alpha) * (1 - targets)
    return a_t * (1 - p_t) ** gamma * ce


def diou_1d(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """1 - IoU + (centre distance / enclosing length)^2 of windows around the same point [..., 2] -> [...].

    Both are (left, right) distances >= 0 from the point (Zheng et al., AAAI 2020, in one dimension).
    """
    left, right = predicted.unbind(-1)
    goal_left, goal_right = target.unbind(-1)
    overlap = torch.minimum(left, goal_left) + torch.minimum(right, goal_right)
    union = left + right + goal_left + goal_right - overlap
    enclosing = torch.maximum(left, goal_left) + torch.maximum(right, goal_right)
    centre = 0.5 * (right - left - goal_right + goal_left)
    return 1 - overlap / union.clamp_min(1e-6) + (centre / enclosing.clamp_min(1e-6)) ** 2


def info_nce(
    video: torch.Tensor, text: torch.Tensor, negatives: torch.Tensor | None = None, temperature: float = 0.07
) -> torch.Tensor:
    """Symmetric InfoNCE (ViLCo-Bench, appendix C, eq. 1-3), scalar.

    video, text [B, D]: row i of both is a pair. negatives [M, D]: further texts (narrations of earlier stages), wrong for
    every video. The paper has no temperature (1.0); on unit vectors that hardly separates, so the reference code's 0.07.
    """
    video, text = F.normalize(video, dim=-1), F.normalize(text, dim=-1)
    scores = video @ text.T / temperature  # [B, B]
    own = torch.arange(len(video), device=video.device)
    rows = scores
    if negatives is not None and len(negatives):
        rows = torch.cat([scores, video @ F.normalize(negatives, dim=-1).T / temperature], dim=1)
    return F.cross_entropy(rows, own) + F.cross_entropy(scores.T, own)


def assign(
    windows: torch.Tensor, u: torch.Tensor, scale: torch.Tensor, ranges: list[tuple[float, float]], radius: float = 1.5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which points are taught a window, and which distances (ActionFormer's centre sampling).

    windows [n, 2] and points u [P] in cells, scale [P] cells of the point's level, ranges: per level (cells).
    -> (positive [P] bool, distances [P, 2] in units of the level's cells). A point is positive for a window when it is
    within `radius` level cells of its middle and inside it, and the longer distance is in the level's range; of several
    windows the shortest counts. A window no point qualifies for is taught to the nearest point of the best level.
    """
    p = len(u)
    positive = torch.zeros(p, dtype=torch.bool)
    distance = torch.zeros(p, 2)
    if len(windows) == 0:
        return positive, distance
    level = torch.log2(scale).round().long()
    low = torch.tensor([a for a, _ in ranges])[level]
    high = torch.tensor([b for _, b in ranges])[level]
    start, end = windows[:, 0, None], windows[:, 1, None]  # [n, 1]
    left, right = u - start, end - u  # [n, P]
    middle = (start + end) / 2
    longest = torch.maximum(left, right)
    good = (left >= 0) & (right >= 0) & ((u - middle).abs() <= radius * scale) & (longest >= low) & (longest <= high)
    for k in torch.nonzero(~good.any(1))[:, 0].tolist():  # shorter than a cell, or between two points
        fits = ((end - start)[k] / 2 >= low) & ((end - start)[k] / 2 <= high)
        gap = (u - middle[k]).abs() + torch.where(fits, 0.0, 1e6)
        good[k, int(gap.argmin())] = True
    length = (end - start).expand(-1, p).masked_fill(~good, float("inf"))
    owner = length.argmin(0)  # [P]
    positive = good.any(0)
    pick = torch.arange(p)
    distance = torch.stack([left[owner, pick], right[owner, pick]], dim=-1).clamp_min(0.0) / scale[:, None]
    return positive, torch.where(positive[:, None], distance, torch.zeros(()))
