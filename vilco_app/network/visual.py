"""Visual query head: dense maps of the query picture and of frames -> anchor scores and boxes, per frame.

As VQLoC (Jiang et al., NeurIPS 2023) in its parts (correspondence, anchors with probability and box regression, peak and
track), small enough for frozen dense features on two cores: the correspondence is the cosine of every frame cell with the
query's cells, and a few convolutions read it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

ASPECTS = (0.5, 1.0, 2.0)  # height / width of the anchors (VQLoC)
SIZES = (
    0.12,
    0.25,
    0.5,
)  # square root of the anchor's area in fractions of the frame: small thing, hand-held, close-up
ANCHORS = len(ASPECTS) * len(SIZES)


def anchor_boxes(rows: int, columns: int) -> torch.Tensor:
    """Anchors [rows, columns, A, 4] as centre x, centre y, width, height in fractions of the frame."""
    y, x = torch.meshgrid(
        (torch.arange(rows) + 0.5) / rows, (torch.arange(columns) + 0.5) / columns, indexing="ij"
    )  # cell middles
    shapes = torch.tensor([(s / a**0.5, s * a**0.5) for s in SIZES for a in ASPECTS])  # [A, 2]
    centre = torch.stack([x, y], -1)[:, :, None].expand(-1, -1, ANCHORS, -1)
    return torch.cat([centre, shapes.expand(rows, columns, -1, -1)], dim=-1)


def decode_boxes(deltas: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """Deltas [..., A, 4] on anchors (cx, cy, w, h) -> boxes x1, y1, x2, y2 clipped to the frame."""
    centre = anchors[..., :2] + deltas[..., :2] * anchors[..., 2:]
    size = anchors[..., 2:] * deltas[..., 2:].clamp(-3, 3).exp()
    return torch.cat([centre - size / 2, centre + size / 2], dim=-1).clamp(0, 1)


def box_iou(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """IoU and generalised IoU (Rezatofighi et al., CVPR 2019) of boxes [..., 4] x1 y1 x2 y2, elementwise with broadcasting."""
    area = lambda z: (z[..., 2] - z[..., 0]).clamp_min(0) * (z[..., 3] - z[..., 1]).clamp_min(0)  # noqa: E731
    corner = torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])
    overlap = corner.clamp_min(0).prod(-1)
    union = (area(a) + area(b) - overlap).clamp_min(1e-9)
    hull = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp_min(0).prod(-1)
    iou = overlap / union
    return iou, iou - (hull - union) / hull.clamp_min(1e-9)


class VisualHead(nn.Module):
    """query [B, n, C] cells of the picture (padded, mask [B, n]), frames [B, F, h, w, C] -> (logits [B, F, h, w, A],
    deltas [B, F, h, w, A, 4])."""

    def __init__(self, dim: int, width: int = 32) -> None:
        super().__init__()
        self.query, self.frame = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        for layer in (self.query, self.frame):  # near the identity: the untrained head already correlates
            nn.init.eye_(layer.weight)
        self.read = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU()
        )
        self.logit = nn.Conv2d(width, ANCHORS, 1)
        self.delta = nn.Conv2d(width, 4 * ANCHORS, 1)
        self.gain = nn.Parameter(torch.tensor(4.0))
        nn.init.normal_(self.logit.weight, std=0.01)
        nn.init.constant_(self.logit.bias, -3.0)  # type: ignore[arg-type]
        nn.init.normal_(self.delta.weight, std=0.01)
        nn.init.zeros_(self.delta.bias)  # type: ignore[arg-type]

    def forward(
        self, query: torch.Tensor, mask: torch.Tensor, frames: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        b, f, h, w, _c = frames.shape
        q = F.normalize(self.query(query), dim=-1)
        mean = F.normalize((q * mask[..., None]).sum(1), dim=-1)
        x = F.normalize(self.frame(frames), dim=-1)
        score = torch.einsum("bnc,bfhwc->bfhwn", q, x).masked_fill(~mask[:, None, None, None], -1.0)
        best, average = score.amax(-1), torch.einsum("bc,bfhwc->bfhw", mean, x)
        # three correspondence maps: best query cell, mean of the query, and how the cell stands out in its frame
        stand = average - average.mean((2, 3), keepdim=True)
        y = self.read(torch.stack([best, average, stand], 2).flatten(0, 1))  # [B * F, width, h, w]
        logits = self.logit(y).reshape(b, f, ANCHORS, h, w).permute(0, 1, 3, 4, 2)
        logits = logits + self.gain * stand[..., None]
        deltas = self.delta(y).reshape(b, f, ANCHORS, 4, h, w).permute(0, 1, 4, 5, 2, 3)
        return logits, deltas


def visual_targets(boxes: torch.Tensor, present: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Which anchors are taught each frame's box: IoU > 0.3, or the best one. boxes [F, 4], present [F] -> [F, h, w, A]."""
    a = anchor_boxes(rows, columns)
    corners = torch.cat([a[..., :2] - a[..., 2:] / 2, a[..., :2] + a[..., 2:] / 2], dim=-1)
    iou, _ = box_iou(boxes[:, None, None, None], corners[None])  # [F, h, w, A]
    best = iou.flatten(1).max(1).values[:, None, None, None]
    return ((iou > 0.3) | (iou >= best - 1e-6)) & present[:, None, None, None]


def jl_projection(channels: int, dim: int) -> torch.Tensor:
    """Fixed random projection [channels, dim] that keeps inner products on average (Johnson-Lindenstrauss); the same
    everywhere because its seed is part of the format."""
    rng = torch.Generator().manual_seed(20240613)
    return torch.randn(channels, dim, generator=rng) / dim**0.5
