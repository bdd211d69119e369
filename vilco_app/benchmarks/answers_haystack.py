"""Distractor footage for the haystack, made at run time from pictures and videos that ship with installed packages.

It is real pixels but not hours of real life: stretches of 3 to 20 s, each a slow pan over a random cut of a photo or of a
video's frames, flipped and re-lit at random. So it is more uniform than a real day; what it does test is whether answers
survive hours of other things in the same library.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Progress = Callable[[int, int, str], None]
RATE = 2  # frames per second: what the library samples
WIDTH, HEIGHT = 448, 256
FILE_SECONDS = 1800.0


@dataclass(frozen=True)
class Made:
    """videos: ids in the library; seconds of footage; description for the report. new: ids that were not there before.

    known: whether it is known what the footage shows, so that what is not in the cases is not in it either.
    """

    videos: list[str]
    seconds: float
    description: str
    new: list[str] = field(default_factory=list)
    known: bool = False


def sources() -> list[np.ndarray]:
    """Pictures [H, W, 3] uint8: photos and a few frames of each video of the packages that are installed."""
    from PIL import Image

    found: list[np.ndarray] = []
    for path in _asset_files():
        if path.suffix in (".jpg", ".jpeg", ".png"):
            with Image.open(path) as image:
                found.append(np.asarray(image.convert("RGB")))
        else:
            found += list(_frames(path))
    return [f for f in found if min(f.shape[:2]) >= 200]


def _asset_files() -> list[Path]:
    folders = (
        ("gradio", "media_assets/images"),
        ("gradio", "media_assets/videos"),
        ("sklearn", "datasets/images"),
        ("skimage", "data"),
    )
    files: list[Path] = []
    for package, inner in folders:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            files += sorted((Path(spec.origin).parent / inner).glob("*"))
    return [f for f in files if f.suffix in (".jpg", ".jpeg", ".png", ".mp4") and "logo" not in f.name]


def _frames(path: Path) -> Iterator[np.ndarray]:
    from vilco_app.values import VilcoError
    from vilco_app.video import frames_at, open_recording, probe

    try:
        length = probe(path).duration
        yield from frames_at(open_recording([path]), [length * k / 8 for k in range(8)], 360).frames
    except VilcoError:
        return


def stretches(pictures: Sequence[np.ndarray], seconds: float, seed: int) -> Iterator[np.ndarray]:
    """Frames [HEIGHT, WIDTH, 3] uint8 of `seconds` of footage at RATE, made from the pictures."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    left = int(seconds * RATE)
    while left > 0:
        count = min(left, int(rng.integers(3 * RATE, 20 * RATE)))
        left -= count
        picture = pictures[int(rng.integers(len(pictures)))]
        if rng.random() < 0.5:
            picture = picture[:, ::-1]
        light, tint = rng.uniform(0.6, 1.3), rng.uniform(0.85, 1.15, size=3)
        height, width = picture.shape[:2]
        share = rng.uniform(0.35, 0.9)
        crop_w = int(min(width, height * WIDTH / HEIGHT) * share)
        crop_h = int(crop_w * HEIGHT / WIDTH)
        begin, end = rng.uniform(size=2), rng.uniform(size=2)
        for k in range(count):
            x, y = (begin + (end - begin) * k / count) * (width - crop_w, height - crop_h)
            cut = picture[int(y) : int(y) + crop_h, int(x) : int(x) + crop_w]
            frame = np.asarray(Image.fromarray(np.ascontiguousarray(cut)).resize((WIDTH, HEIGHT)), dtype=np.float32)
            yield np.clip(frame * light * tint, 0, 255).astype(np.uint8)


def write_footage(path: Path, frames: Iterator[np.ndarray], seconds: float) -> None:
    """One H.264 file of the next `seconds` of frames at RATE."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264", rate=RATE, options={"crf": "23", "preset": "ultrafast", "threads": "1"}
        )
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in itertools.islice(frames, int(seconds * RATE)):
            for packet in stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def add_distractors(memory: Any, folder: Path, hours: float, progress: Progress | None = None) -> Made:
    """Make `hours` of distractor footage from packaged pictures in folder/haystack and index it."""
    pictures = sources()
    ids = _fill(
        memory, folder / "haystack", hours * 3600.0, lambda seed, length: stretches(pictures, length, seed), progress
    )
    return Made(
        ids,
        hours * 3600.0,
        f"made footage (pans over {len(pictures)} photos and film frames of installed packages)",
        ids,
        known=True,
    )


def add_given(memory: Any, folder: Path, files: Sequence[Path], hours: float, progress: Progress | None = None) -> Made:
    """Index the person's own distractor files and, where they last less than `hours`, variations of them (made in folder)."""
    from vilco_app.benchmarks.answers_distractors import seconds_of, varied

    before = {v.id for v in memory.videos()}
    report = memory.add(list(files))
    refused = {Path(r.path).resolve() for r in report.refused}
    used = [f for f in files if f.resolve() not in refused]
    own = [memory.resolve(f).id for f in used]
    length = seconds_of(used)
    missing = max(0.0, hours * 3600.0 - length) if used else 0.0
    made = _fill(memory, folder, missing, lambda seed, _: varied(used, seed), progress)
    said = f"{len(used)} videos given ({length:.0f} s)"
    if made:
        said += f", the rest the same mirrored, sped up or slowed, cut and re-lit ({missing / length:.0f} times over)"
    return Made([*own, *made], length + missing, said, [v for v in [*own, *made] if v not in before])


def _fill(
    memory: Any,
    folder: Path,
    seconds: float,
    frames: Callable[[int, float], Iterator[np.ndarray]],
    progress: Progress | None,
) -> list[str]:
    """Write and index films of together `seconds`; frames(seed, length) makes each -> ids."""
    folder.mkdir(parents=True, exist_ok=True)
    left, ids, seed = seconds, [], 0
    while left > 1:
        length = min(left, FILE_SECONDS)
        path = folder / f"distractors-{seed}-{length:.0f}.mp4"
        if not path.exists():
            if progress:
                progress(int(seconds - left), int(seconds), "making distractor footage")
            unfinished = path.with_suffix(".part.mp4")
            write_footage(unfinished, frames(seed, length), length)
            unfinished.replace(path)
        memory.add(path)
        ids.append(memory.resolve(path).id)
        left -= length
        seed += 1
    return ids
