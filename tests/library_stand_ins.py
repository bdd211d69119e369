"""Small stand-ins for the floors below the library: a profile that reads pixels, footage that needs no decoder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vilco_app.encoders.base import Blocks, Features, ImageVectors, TextVectors
from vilco_app.values import VideoRefused
from vilco_app.video.types import Part, Recording, SampleBatch, VideoInfo

DIM, REGION_DIM = 16, 8


class TinyProfile:
    """Vectors that are a function of one pixel: the k-th sample of a made-up recording has its own direction.

    Sample k, seed s: the frame's first pixels hold k and s; global = noise(k, s); regions = two noises.
    """

    aligned, short_side, global_dim, region_dim, text_dim = True, 8, DIM, REGION_DIM, 4
    blocks = Blocks(("all",), (DIM,), (1.0,))

    def __init__(self, name: str = "tiny@1", window: float = 0.0) -> None:
        self.id, self.window = name, window
        self.encoded = 0
        self.gate: threading.Event | None = None

    def encode(self, frames: np.ndarray) -> Features:
        if self.gate is not None:
            self.gate.wait(30)
        self.encoded += len(frames)
        keys = [frame_key(f) for f in frames]
        return Features(
            np.stack([vector(k, "global", DIM) for k in keys]),
            np.concatenate([np.stack([vector(k, f"region{i}", REGION_DIM) for i in range(2)]) for k in keys]),
            np.tile(np.array([[0.1, 0.2, 0.5, 0.6], [0.4, 0.4, 0.9, 1.0]], np.float32), (len(frames), 1)),
            np.full(len(frames), 2),
        )

    def text(self, text: str) -> TextVectors:
        raise NotImplementedError

    def image(self, image: np.ndarray) -> ImageVectors:
        raise NotImplementedError

    def dense(self, frames: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def frame_key(frame: np.ndarray) -> tuple[int, int]:
    """(sample number, seed) that `make_frame` wrote."""
    a = frame[0, 0].astype(int), frame[0, 1].astype(int)
    return int(a[0][0] * 65536 + a[0][1] * 256 + a[0][2]), int(a[1][0])


def make_frame(number: int, seed: int) -> np.ndarray:
    frame = np.zeros((8, 8, 3), np.uint8)
    frame[0, 0] = number >> 16, number >> 8 & 255, number & 255
    frame[0, 1, 0] = seed
    return frame


def vector(key: tuple[int, int], what: str, dim: int) -> np.ndarray:
    """The unit vector a sample of this key gives."""
    rng = np.random.default_rng([*key, *what.encode()])
    v = rng.standard_normal(dim)
    return (v / np.linalg.norm(v)).astype(np.float32)


def write_video(path: Path, seconds: float, seed: int, **more: object) -> Path:
    """A made-up recording: JSON text under a video's name. more: readable_to, still (same frame throughout), slow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seconds": seconds, "seed": seed, **more}))
    return path


class TinyFootage:
    """Reads what `write_video` wrote; a key frame every two seconds."""

    def _load(self, path: Path) -> dict:  # type: ignore[type-arg]
        try:
            data = json.loads(path.read_text())
            return {"readable_to": data["seconds"], **data}
        except (ValueError, KeyError):
            raise VideoRefused("not-a-video", f"{path.name}: holds no video.", "Give a video file.") from None

    def probe(self, path: Path) -> VideoInfo:
        data = self._load(path)
        return VideoInfo(path, data["seconds"], "made-up", 8, 8, 0, 1.0, False, 0.0, 30.0, 2.0, None, ())

    def group_chapters(self, paths: Iterable[Path]) -> list[tuple[Path, ...]]:
        from vilco_app.video.chapters import group_chapters

        return group_chapters(paths)

    def open_recording(self, paths: Sequence[Path]) -> Recording:
        parts, offset = [], 0.0
        for path in paths:
            seconds = self._load(path)["seconds"]
            parts.append(Part(path, offset, seconds))
            offset += seconds
        return Recording(tuple(parts))

    def samples(
        self, recording: Recording, rate: float, short_side: int | None, start: float = 0.0,
        keyframes_only: bool = False, batch: int = 32,
    ) -> Iterator[SampleBatch]:  # fmt: skip
        step = max(2.0, 1 / rate) if keyframes_only else 1 / rate
        for part in recording.parts:
            data = self._load(part.path)
            count = int(np.ceil(min(data["readable_to"], part.duration) / step - 1e-9))
            numbers = [k for k in range(count) if part.offset + k * step >= start - 1e-9]
            for first in range(0, len(numbers), batch):
                some = numbers[first : first + batch]
                times = part.offset + np.array(some) * step
                ends = np.append(times[1:], min(times[-1] + step, part.offset + part.duration))
                frames = [make_frame(0 if data.get("still") else round(k * step * 1000), data["seed"]) for k in some]
                yield SampleBatch(times, ends - times, np.stack(frames))
