"""Loss terms and declared outputs of collated nlq and mq samples, each per example."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vilco_app.continual.protocols import Output, Sample
from vilco_app.network.batch import Collated
from vilco_app.network.losses import diou_1d, focal


def localise(logits: torch.Tensor, distance: torch.Tensor, data: Collated) -> tuple[torch.Tensor, torch.Tensor]:
    """Focal and DIoU loss of each sample [B]: sums over its points divided by its number of positive points."""
    positive = data.positive.to(logits.dtype)
    count = positive.sum(1).clamp_min(1.0)
    score = (focal(logits, positive) * data.mask).sum(1) / count
    reach = (diou_1d(distance, data.distance) * positive).sum(1) / count
    return score, reach


def contrast(logits: torch.Tensor, data: Collated) -> torch.Tensor:
    """Where a moment is labelled, the other categories are wrong: focal loss of their logits there [B].

    Outside its windows nothing is said of other categories: there they may well happen, unlabelled.
    """
    c = logits.shape[-1]
    if c < 2:
        return torch.zeros(len(logits), device=logits.device)
    other = torch.ones_like(logits).scatter(
        -1, data.category.clamp_min(0)[:, None, None].expand(-1, logits.shape[1], 1), 0
    )
    wrong = (focal(logits, torch.zeros_like(logits)) * other).sum(-1)
    positive = data.positive.to(logits.dtype)
    return (wrong * positive).sum(1) / positive.sum(1).clamp_min(1.0)


def declare(
    name: str, logits: torch.Tensor, distance: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor, size: int
) -> list[Output]:
    """Outputs over the whole batch of `size` samples; rows of other families are masked out."""

    def full(x: torch.Tensor) -> torch.Tensor:
        if len(rows) == size:
            return x
        return torch.zeros(size, *x.shape[1:], dtype=x.dtype, device=x.device).index_copy(0, rows, x)

    return [
        Output(name, full(logits), "bernoulli", full(mask), classes=name == "mq"),
        # distances are taught by DIoU; as a likelihood, half a cell is the spread that matters
        Output(f"{name}_distance", full(distance), "gaussian", full(mask), scale=0.5, gate=name),
    ]


def inside_windows(data: Collated, samples: Sequence[Sample], levels: int) -> torch.Tensor:
    """[B, P] bool: points of the two finest levels inside each sample's windows."""
    from vilco_app.network.grid import points

    u, scale = (torch.as_tensor(a) for a in points(data.cells, levels))
    out = torch.zeros(len(samples), len(u), dtype=torch.bool)
    for i, s in enumerate(samples):
        for start, end in s.targets["windows"].tolist():
            out[i] |= (u >= start - 0.5 * scale) & (u <= end + 0.5 * scale) & (scale <= 2)
    return out.to(data.mask.device)
