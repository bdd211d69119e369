"""Visual examples as samples: correspondence maps of at most 16 frames, made by decoding them once, as answers make them.

Same size, same mean cell, same zero-shot match as at answer time. Negatives are first of all the frames the finder itself
wrongly chooses for this picture. What is kept are fp16 maps of seven numbers a cell, never pictures: 0.3 MB an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.learning.resolving import Resolved
from vilco_app.stages import Example
from vilco_app.values import TimedBox, VilcoError

if TYPE_CHECKING:
    from vilco_app.answering.visual import PictureFinder


@dataclass(frozen=True)
class Defaults:
    """How picture examples are made and checked."""

    frames: int = 16  # of an example; half on the track at most, where the thing is known to be
    apart: float = 1.0  # seconds around the labelled windows left out: the thing may be seen outside its annotation
    doubtful: float = 0.03  # cosine; what the finder thinks as sure as labelled frames may be an unlabelled appearance
    kept: int = 128  # channels the picture's mean cell is projected to, by which the buffer tells examples apart
    probes: int = 16  # examples the finder is run for to choose the weight: 1.5 processor seconds each
    folds: int = 3  # trainings without a third of the new stage each, when held-out examples are fewer than `probes`


DEFAULTS = Defaults()


def picture_of(e: Example, resolved: Resolved, library: Any) -> np.ndarray:
    """The picture asked with, cut to its box: RGB [H, W, 3] uint8. Raises VilcoError naming the example."""
    from vilco_app.pictures import read_picture, visual_query

    try:
        if e.query_frame is not None:
            video = resolved.videos[e.query_frame.video]
            if any(a <= e.query_frame.time <= b for a, b in library.stored(video.id).forgotten):
                raise VilcoError(
                    "bad-stage", "its picture is a frame of footage that was forgotten.", "Ask with another frame."
                )
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


def finder_of(library: Any, profile: Any) -> PictureFinder:
    """The finder answers come from, zero-shot."""
    from vilco_app.answering.grounding import ZeroShotGrounder
    from vilco_app.answering.options import DEFAULTS as ANSWERING
    from vilco_app.answering.visual import PictureFinder

    return PictureFinder(library, profile, ANSWERING, ZeroShotGrounder(profile.blocks, ANSWERING))


def looked(e: Example, video: str, image: np.ndarray, finder: PictureFinder) -> Any:
    """What the finder looks at for this example (answering.matching.Sight), as it would for an answer; None: at nothing."""
    from vilco_app.answering.curve import passages_of

    passages = passages_of(finder.library.stored(video), e.before)
    if not passages:
        return None
    sight = finder.look(image, finder.region_query(image), passages)
    return sight if sight.picture is not None else None


def spread_times(windows: Sequence[tuple[float, float]], end: float, count: int) -> list[float]:
    """At most `count` times (s) spread over [0, end], none within DEFAULTS.apart of a window."""
    grid = np.linspace(0.0, max(end - 0.1, 0.0), 4 * DEFAULTS.frames).tolist()
    return _spread([float(t) for t in grid if not _near(windows, t)], count)


def picture_sample(
    e: Example, resolved: Resolved, index: int, library: Any, profile: Any, finder: PictureFinder | None = None
) -> Any:
    """The sample of a vq example: maps [F, h, w, CHANNELS], query [1, C], boxes [F, 4], present [F]."""
    import torch

    from vilco_app.continual.protocols import Sample
    from vilco_app.network.visual import jl_projection

    video, finder = resolved.video(e), finder or finder_of(library, profile)
    image = picture_of(e, resolved, library)
    sight = looked(e, video.id, image, finder)
    known = _spread(list(e.track), DEFAULTS.frames // 2)
    own = e.query_frame if e.query_frame and resolved.videos[e.query_frame.video].id == video.id else None
    if own is not None and known:  # the picture's own frame: one box more
        known.append(TimedBox(own.time, own.box.x1, own.box.y1, own.box.x2, own.box.y2))
    labelled = [*e.windows, *([(own.time, own.time)] if own else [])]
    seen = [*labelled, *library.stored(video.id).forgotten]  # of neither is anything to be shown as "not the thing"
    end = video.duration if e.before is None else min(video.duration, e.before)
    others = spread_times(seen, end, DEFAULTS.frames - len(known))
    if sight is None or not (known or others):
        raise VilcoError(
            "bad-stage", f"example {e.id}: there is no frame to look at.", "Give a track, or longer footage."
        )
    shown = [sight.picture.maps(m) for m in _dense(library, profile, video.id, [b.time for b in known])]
    wrong = _wrong(labelled, sight, shown)[: DEFAULTS.frames // 2]
    others = _spread(others, DEFAULTS.frames - len(known) - len(wrong))
    rest = [sight.picture.maps(m) for m in _dense(library, profile, video.id, others)]
    frames: list[tuple[float, TimedBox | None, np.ndarray]] = [
        *((b.time, b, m) for b, m in zip(known, shown, strict=True)),
        *((t, None, m) for t, m in wrong),
        *((t, None, m) for t, m in zip(others, rest, strict=True)),
    ]
    frames.sort(key=lambda f: f[0])
    box = [[b.x1, b.y1, b.x2, b.y2] if b else [0.0, 0.0, 1.0, 1.0] for _, b, _ in frames]
    direction = sight.picture.direction
    project = jl_projection(len(direction), DEFAULTS.kept).numpy()
    title = e.source.get("object_title")
    return Sample(
        id=f"{index}:{e.id}",
        features={
            "maps": torch.from_numpy(np.stack([m for _, _, m in frames]).astype(np.float16)),
            "query": torch.from_numpy((direction @ project)[None].astype(np.float16)),
        },
        targets={
            "boxes": torch.tensor(box, dtype=torch.float32),
            "present": torch.tensor([b is not None for _, b, _ in frames]),
        },
        task=index,
        group=str(title or f"stage {index}"),
        meta={
            "family": "vq", "text": str(title or e.id), "video": video.id, "times": [t for t, _, _ in frames],
            "aspect": float(sight.picture.aspect),
        },
        spans=tuple((video.id, max(0.0, t - 0.5), t + 0.5) for t, _, _ in frames),
    )  # fmt: skip


def _wrong(
    windows: Sequence[tuple[float, float]], sight: Any, shown: list[np.ndarray]
) -> list[tuple[float, np.ndarray]]:
    """(time, maps) of the finder's wrong candidates, most convincing first: its frames away from the labelled windows.

    Only one appearance may be labelled (VQ2D labels the last), so that frames as convincing as the labelled ones are left out;
    not so where the thing was said to be absent (shown: no frame).
    """
    from vilco_app.network.visual_maps import HEAT, STRETCH

    limit = max((float(m[..., HEAT].max()) for m in shown), default=np.inf) - STRETCH * DEFAULTS.doubtful
    found = []
    for p, row in sight.first:
        time = float(sight.passages[p].times[row])
        if not _near(windows, time):
            maps = sight.picture.maps(sight.maps[p, row])
            best = float(maps[..., HEAT].max())
            if best < limit:
                found.append((best, time, maps))
    found.sort(key=lambda f: -f[0])
    return [(t, m) for _, t, m in found]


def _near(windows: Sequence[tuple[float, float]], time: float) -> bool:
    return any(s - DEFAULTS.apart <= time <= f + DEFAULTS.apart for s, f in windows)


def _spread(things: list[Any], count: int) -> list[Any]:
    """At most `count` of a list, evenly."""
    if len(things) <= count:
        return things
    if count <= 0:
        return []
    return [things[int(k)] for k in np.unique(np.linspace(0, len(things) - 1, count).round())]


def _dense(library: Any, profile: Any, video: str, times: list[float]) -> list[np.ndarray]:
    """Dense maps [h, w, C] of the frames at times (s), decoded at the size answers are matched at."""
    from vilco_app.answering.options import DEFAULTS as ANSWERING

    if not times:
        return []
    pixels = frames_of(library, video, times, ANSWERING.picture_side)
    return [m for k in range(0, len(pixels), 8) for m in profile.dense(pixels[k : k + 8])]
