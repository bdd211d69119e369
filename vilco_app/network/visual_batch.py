"""Visual examples as tensors, their loss and declared outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from vilco_app.continual.protocols import Output, Sample
from vilco_app.network.visual import VisualHead, frame_loss
from vilco_app.network.visual_maps import CHANNELS, correspondences


@dataclass
class VisualCollated:
    """maps [B, F, h, w, CHANNELS]; boxes [B, F, 4]; present, real [B, F] bool."""

    maps: torch.Tensor
    boxes: torch.Tensor
    present: torch.Tensor
    real: torch.Tensor


def collate_visual(samples: Sequence[Sample], device: torch.device) -> VisualCollated:
    """Samples with features maps [F, h, w, CHANNELS] and targets boxes [F, 4], present [F]."""
    all_maps = [maps_of(s) for s in samples]
    frames = max(len(x) for x in all_maps)
    shape = [max(x.shape[k] for x in all_maps) for k in (1, 2)]
    out: dict[str, list[torch.Tensor]] = {k: [] for k in ("maps", "boxes", "present", "real")}
    for s, x in zip(samples, all_maps, strict=True):
        f = len(x)
        if list(x.shape[1:3]) != shape:  # maps of differently shaped videos meet at the larger grid
            x = F.interpolate(x.permute(0, 3, 1, 2), size=shape, mode="bilinear", align_corners=False)
            x = x.permute(0, 2, 3, 1)
        out["maps"].append(F.pad(x, (0, 0, 0, 0, 0, 0, 0, frames - f)))
        out["boxes"].append(F.pad(s.targets["boxes"].float(), (0, 0, 0, frames - f)))
        out["present"].append(F.pad(s.targets["present"].bool(), (0, frames - f)))
        out["real"].append(torch.arange(frames) < f)
    return VisualCollated(**{k: torch.stack(v).to(device) for k, v in out.items()})


def maps_of(sample: Sample) -> torch.Tensor:
    """Correspondence maps [F, h, w, CHANNELS] float32 of a sample.

    Samples kept by versions before these maps hold cells of the picture [n, C] and of the frames [F, h, w, C].
    """
    if "maps" in sample.features:
        return sample.features["maps"].float()
    query = F.normalize(sample.features["query"].float(), dim=-1)
    frames = F.normalize(sample.features["frames"].float(), dim=-1)
    heat = frames @ F.normalize(query.mean(0), dim=-1)
    made = [correspondences(x.numpy(), z.numpy(), query.numpy()) for x, z in zip(frames, heat, strict=True)]
    return torch.stack([torch.from_numpy(m) for m in made]) if made else torch.zeros(0, 1, 1, CHANNELS)


def visual_result(
    head: VisualHead, data: VisualCollated, rows: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor, list[Output]]:
    """(loss of frames [b], of cells [b], outputs over the batch of `size` samples)."""
    cells, shown = head(data.maps)
    score, reach = frame_loss(cells, shown, data.boxes, data.present, data.real)
    mask = data.real[:, :, None, None].expand_as(cells).flatten(1)

    def full(x: torch.Tensor) -> torch.Tensor:
        if len(rows) == size:
            return x
        return torch.zeros(size, *x.shape[1:], dtype=x.dtype, device=x.device).index_copy(0, rows, x)

    declared = [
        Output("vq", full(cells.flatten(1)), "bernoulli", full(mask)),
        Output("vq_shown", full(shown), "bernoulli", full(data.real)),
    ]
    return score, reach, declared
