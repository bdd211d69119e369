"""Visual examples as tensors, their loss and declared outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from vilco_app.continual.protocols import Output, Sample
from vilco_app.network.losses import focal
from vilco_app.network.visual import VisualHead, anchor_boxes, box_iou, decode_boxes, visual_targets


@dataclass
class VisualCollated:
    """query [B, n, C] and query_mask [B, n]; frames [B, F, h, w, C]; boxes [B, F, 4]; present, real [B, F] bool."""

    query: torch.Tensor
    query_mask: torch.Tensor
    frames: torch.Tensor
    boxes: torch.Tensor
    present: torch.Tensor
    real: torch.Tensor


def collate_visual(samples: Sequence[Sample], device: torch.device) -> VisualCollated:
    """Samples with features query [n, C], frames [F, h, w, C] and targets boxes [F, 4], present [F]."""
    cells = max(s.features["query"].shape[0] for s in samples)
    frames = max(s.features["frames"].shape[0] for s in samples)
    shape = [max(s.features["frames"].shape[k] for s in samples) for k in (1, 2)]
    out: dict[str, list[torch.Tensor]] = {k: [] for k in ("query", "query_mask", "frames", "boxes", "present", "real")}
    for s in samples:
        q, x = s.features["query"].float(), s.features["frames"].float()
        n, f = q.shape[0], x.shape[0]
        if list(x.shape[1:3]) != shape:  # maps of differently shaped videos meet at the larger grid
            x = F.interpolate(x.permute(0, 3, 1, 2), size=shape, mode="bilinear", align_corners=False).permute(
                0, 2, 3, 1
            )
        out["query"].append(F.pad(q, (0, 0, 0, cells - n)))
        out["query_mask"].append(torch.arange(cells) < n)
        out["frames"].append(F.pad(x, (0, 0, 0, 0, 0, 0, 0, frames - f)))
        out["boxes"].append(F.pad(s.targets["boxes"].float(), (0, 0, 0, frames - f)))
        out["present"].append(F.pad(s.targets["present"].bool(), (0, frames - f)))
        out["real"].append(torch.arange(frames) < f)
    return VisualCollated(**{k: torch.stack(v).to(device) for k, v in out.items()})


def visual_result(
    head: VisualHead, data: VisualCollated, rows: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor, list[Output]]:
    """(score loss [b], box loss [b], outputs over the batch of `size` samples). Boxes: L1 + 0.3 (1 - GIoU), as VQLoC."""
    logits, deltas = head(data.query, data.query_mask, data.frames)
    b, _f, h, w, _ = logits.shape
    positive = torch.stack([visual_targets(data.boxes[i].cpu(), data.present[i].cpu(), h, w) for i in range(b)]).to(
        logits.device
    )  # [b, F, h, w, A]
    anchors = anchor_boxes(h, w).to(logits.device)
    real = data.real[:, :, None, None, None].to(logits.dtype)
    count = positive.flatten(1).sum(1).clamp_min(1).to(logits.dtype)
    score = (focal(logits, positive.to(logits.dtype)) * real).flatten(1).sum(1) / count
    boxes = decode_boxes(deltas, anchors)
    goal = data.boxes[:, :, None, None, None].expand_as(boxes)
    _, giou = box_iou(boxes, goal)
    wrong = (boxes - goal).abs().sum(-1) + 0.3 * (1 - giou)
    reach = (wrong * positive).flatten(1).sum(1) / count
    mask = data.real[:, :, None, None, None].expand_as(logits).flatten(1)

    def full(x: torch.Tensor) -> torch.Tensor:
        if len(rows) == size:
            return x
        return torch.zeros(size, *x.shape[1:], dtype=x.dtype, device=x.device).index_copy(0, rows, x)

    declared = [
        Output("vq", full(logits.flatten(1)), "bernoulli", full(mask)),
        Output("vq_box", full(deltas.flatten(1, 4)), "gaussian", full(mask), scale=0.2, gate="vq"),
    ]
    return score, reach, declared
