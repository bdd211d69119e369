"""Visual examples as samples: the picture's cells and dense maps of at most 16 frames, made by decoding them once.

What is kept is fp16 maps, never pictures: at most 4 MB an example. Cells are centred on the frames' mean cell (what every
cell has in common says nothing) and projected to a fixed width, so that the head fits every profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.learning.resolving import Resolved
from vilco_app.stages import Example
from vilco_app.values import TimedBox, VilcoError

FRAMES = 16  # half on the track, half elsewhere
SIDE = 448  # shorter side for dense maps, as answering
PICTURE = 160  # pixels of the picture's longer side
MOST_CELLS = 1000  # per frame: 16 * 1000 * 128 channels * 2 bytes = 4 MB
NEAR = 0.3  # seconds within which a box of the track stands for a frame


def picture_of(e: Example, resolved: Resolved, library: Any) -> np.ndarray:
    """The picture asked with, cut to its box: RGB [H, W, 3] uint8. Raises VilcoError naming the example."""
    from vilco_app.pictures import read_picture, visual_query

    try:
        if e.query_frame is not None:
            video = resolved.videos[e.query_frame.video]
            pixels, box = frames_of(library, video.id, [e.query_frame.time])[0], e.query_frame.box
        else:
            assert e.image is not None
            pixels, box = read_picture(resolved.stage.folder / Path(e.image).expanduser()), None
    except VilcoError as error:
        raise VilcoError(error.code, f"example {e.id}: {error.message}", error.remedy) from None
    cut: np.ndarray = visual_query(pixels, box, e.id).image
    return cut


def frames_of(library: Any, video: str, times: list[float], side: int | None = None) -> np.ndarray:
    """Frames [n, H, W, 3] displayed at times (s)."""
    from vilco_app.video import frames_at

    frames: np.ndarray = frames_at(library.recording(video), times, side).frames
    return frames


def chosen_times(e: Example, duration: float) -> tuple[list[float], list[TimedBox | None]]:
    """At most 16 times in order and the box there (None: the thing is not annotated there).

    Half spread over the track, half over the rest of the footage before `before`; frames within 1 s of the track are left
    out of the rest, where it may well be visible outside its annotation.
    """
    end = min(duration, e.before) if e.before is not None else duration
    track = list(e.track)
    pick: list[int] = []
    if track:
        spread = np.linspace(0, len(track) - 1, min(len(track), FRAMES // 2)).round().astype(int)
        pick = sorted(set(spread.tolist()))
    chosen: list[tuple[float, TimedBox | None]] = [(track[k].time, track[k]) for k in pick]
    free = [
        t for t in np.linspace(0.0, max(end - 0.1, 0.0), 4 * FRAMES).tolist()
        if not any(s - 1.0 <= t <= f + 1.0 for s, f in e.windows)
    ]  # fmt: skip
    wanted = min(FRAMES - len(chosen), len(free))
    for k in np.unique(np.linspace(0, len(free) - 1, wanted).round().astype(int)) if wanted else []:
        chosen.append((float(free[int(k)]), None))
    chosen.sort(key=lambda c: c[0])
    return [t for t, _ in chosen], [b for _, b in chosen]


def picture_sample(e: Example, resolved: Resolved, index: int, library: Any, profile: Any) -> Any:
    """The sample of a vq example: query [n, C], frames [F, h, w, C], boxes [F, 4], present [F]."""
    import torch

    from vilco_app.answering.matching import scaled
    from vilco_app.continual.protocols import Sample
    from vilco_app.network.visual import jl_projection

    video = resolved.video(e)
    times, boxes = chosen_times(e, video.duration)
    if not times:
        raise VilcoError(
            "bad-stage", f"example {e.id}: there is no frame to look at.", "Give a track, or longer footage."
        )
    pixels = frames_of(library, video.id, times, SIDE)
    maps = np.concatenate([profile.dense(pixels[k : k + 8]) for k in range(0, len(pixels), 8)]).astype(np.float32)
    while maps.shape[1] * maps.shape[2] > MOST_CELLS:
        h, w = maps.shape[1] // 2 * 2, maps.shape[2] // 2 * 2
        maps = maps[:, :h, :w].reshape(len(maps), h // 2, 2, w // 2, 2, -1).mean(axis=(2, 4))
    query = profile.dense(scaled(picture_of(e, resolved, library), PICTURE)[None])[0].astype(np.float32)
    h, w = query.shape[:2]
    query = query[h // 4 : h - h // 4, w // 4 : w - w // 4].reshape(-1, query.shape[-1])  # the rim is background
    mean = _unit(maps).mean(axis=(0, 1, 2))
    project = jl_projection(maps.shape[-1], 128).numpy() if maps.shape[-1] > 128 else np.eye(maps.shape[-1], 128)
    box = [[b.x1, b.y1, b.x2, b.y2] if b else [0.0, 0.0, 1.0, 1.0] for b in boxes]
    spans = tuple((video.id, max(0.0, t - 0.5), t + 0.5) for t in times)
    return Sample(
        id=f"{index}:{e.id}",
        features={
            "query": torch.from_numpy((_unit(_unit(query) - mean) @ project).astype(np.float16)),
            "frames": torch.from_numpy((_unit(_unit(maps) - mean) @ project).astype(np.float16)),
        },
        targets={
            "boxes": torch.tensor(box, dtype=torch.float32),
            "present": torch.tensor([b is not None for b in boxes]),
        },
        task=index,
        group=str(e.source.get("object_title") or f"stage {index}"),
        meta={"family": "vq", "text": str(e.source.get("object_title") or e.id), "video": video.id, "times": times},
        spans=spans,
    )


def _unit(x: np.ndarray) -> np.ndarray:
    unit: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-6)
    return unit
