"""A film of coloured things with dark rims, made here, and a profile and library that see only hue: for tests of what a picture
head learns. A thing reaches further than what looks most like its picture: the zero-shot match draws its box round the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np

from tests.answering_fakes import FakeLibrary, FakeProfile
from vilco_app.encoders.base import ImageVectors, TextVectors
from vilco_app.library.types import Stored
from vilco_app.values import Video, VilcoError

SIDE, WIDE, RATE = 192, 256, 4
COLOURS = {
    "red": (220, 30, 30), "yellow": (210, 210, 30), "green": (30, 200, 40), "cyan": (30, 200, 210), "blue": (40, 50, 220),
    "pink": (210, 40, 200), "orange": (225, 130, 20), "mint": (20, 205, 120),
}  # fmt: skip
SECONDS = 5.0 * len(COLOURS)
VIDEO = "c" * 12


def window(name: str) -> tuple[float, float]:
    """When a thing is in view (s)."""
    start = 5.0 * list(COLOURS).index(name) + 1.0
    return start, start + 3.0


def box(name: str, time: float) -> tuple[float, float, float, float]:
    """Where it is then, its dark rim included."""
    x = 0.1 + 0.04 * list(COLOURS).index(name) + 0.03 * (time - window(name)[0])
    return x, 0.2, x + 0.375, 0.8


def core(name: str, time: float) -> tuple[float, float, float, float]:
    """The bright middle of it: a third of its sides less on each."""
    x1, y1, x2, y2 = box(name, time)
    return x1 + (x2 - x1) / 4, y1 + (y2 - y1) / 4, x2 - (x2 - x1) / 4, y2 - (y2 - y1) / 4


def make_film(path: Path) -> np.ndarray:
    """Write the film; -> its frames [n, H, W, 3]."""
    rng, frames = np.random.default_rng(0), []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE, options={"crf": "8", "g": "8"})
        stream.width, stream.height, stream.pix_fmt = WIDE, SIDE, "yuv420p"
        for k in range(int(SECONDS * RATE)):
            time = k / RATE
            frame = np.full((SIDE, WIDE, 3), 90.0) + rng.normal(0, 3, (SIDE, WIDE, 1))
            for name, colour in COLOURS.items():
                if window(name)[0] <= time < window(name)[1]:
                    for place, shade in ((box(name, time), 0.4), (core(name, time), 1.0)):
                        x1, y1, x2, y2 = (round(v * s) for v, s in zip(place, (WIDE, SIDE) * 2, strict=True))
                        frame[y1:y2, x1:x2] = np.array(colour) * shade
            frames.append(np.clip(frame, 0, 255).astype(np.uint8))
            for packet in stream.encode(av.VideoFrame.from_ndarray(frames[-1], format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return np.stack(frames)


def seen(pixels: np.ndarray) -> np.ndarray:
    """pixels [..., 3] mean colours -> [..., 5]: grey, hue (three numbers), dark but coloured."""
    pixels = pixels.astype(np.float64)
    high, low = pixels.max(-1), pixels.min(-1)
    hue = pixels - pixels.mean(-1, keepdims=True)
    hue /= np.maximum(np.linalg.norm(hue, axis=-1, keepdims=True), 1e-6)
    coloured, dark = high - low > 0.35 * high, high < 130
    strength = np.where(coloured, np.where(dark, 0.2, 0.5), 0.0)  # a rim is half as like its core as is needed
    rim = np.where(coloured & dark, 0.5, 0.0)
    grey = np.ones_like(rim)
    return np.concatenate([grey[..., None], hue * strength[..., None], rim[..., None]], -1).astype(np.float32)


class HueProfile(FakeProfile):
    """Cells and regions are `seen` colours."""

    def __init__(self) -> None:
        super().__init__(5)

    def dense(self, frames: np.ndarray) -> np.ndarray:
        b, h, w, _ = frames.shape
        cut = frames[:, : h // 16 * 16, : w // 16 * 16].astype(np.float32)
        return seen(cut.reshape(b, h // 16, 16, w // 16, 16, 3).mean((2, 4)))

    def image(self, image: np.ndarray) -> ImageVectors:
        h, w = image.shape[:2]
        whole = seen(image[h // 4 : h - h // 4, w // 4 : w - w // 4].reshape(-1, 3).mean(0))
        return ImageVectors(whole, whole[None] / np.linalg.norm(whole))

    def text(self, text: str) -> TextVectors:
        return super().text(text)


class FilmLibrary(FakeLibrary):
    """The film, indexed at two samples a second; also what learning asks of a library."""

    def __init__(self, path: Path, frames: np.ndarray) -> None:
        picked = frames[:: RATE // 2]
        n = len(picked)
        tiles = seen(picked.reshape(n, 6, SIDE // 6, 8, WIDE // 8, 3).mean((2, 4)).reshape(n, 48, 3))
        best = np.argsort(-np.linalg.norm(tiles[..., 1:4], axis=-1), 1)[:, :8, None]  # the eight most coloured
        regions = np.take_along_axis(tiles, best, 1)
        regions = (regions / np.linalg.norm(regions, axis=-1, keepdims=True)).reshape(-1, 5)
        video = Video(VIDEO, str(path), SECONDS, "ready", SECONDS, "fake@1", (str(path),), WIDE, SIDE)
        stored = Stored(
            video, np.arange(n) / 2, np.full(n, 0.5), tiles.mean(1).astype(np.float16), np.arange(n),
            np.arange(n + 1) * 8, np.round(regions * 127).astype(np.int8), np.full(8 * n, 1 / 127, dtype=np.float32),
            np.tile(np.array([0, 0, 255, 255], dtype=np.uint8), (8 * n, 1)),
        )  # fmt: skip
        super().__init__([stored])
        self.profile = HueProfile()

    def use_profile(self, profile_id: str) -> None:
        pass

    def resolve(self, ref: str | Path) -> Video:
        if Path(ref).name not in (VIDEO, Path(self.all[VIDEO].video.path).name):
            raise VilcoError("no-such-video", f"{ref}: not in this library.", "Add it.")
        return self.all[VIDEO].video

    def recording(self, video: str) -> Any:
        from vilco_app.video import open_recording

        return open_recording([Path(self.all[video].video.path)])


def example(name: str, split: str = "train", **changes: Any) -> dict[str, Any]:
    """The thing of this colour as a vq example asked with its middle frame, labelled twice a second."""
    start, end = window(name)
    times = np.arange(start, end, 0.5)
    middle = start + 1.25
    return {
        "id": name, "video": VIDEO, "query_frame": {"video": VIDEO, "time": middle, "box": list(box(name, middle))},
        "track": [[float(t), *box(name, t)] for t in times], "split": split, **changes,
    }  # fmt: skip
