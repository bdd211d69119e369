"""A tiny aligned profile and a library of made-up features, for tests of learning: no decoding, no encoder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.library.types import Stored
from vilco_app.values import AddReport, Video, VilcoError

DIM, TEXT = 24, 16


def direction(word: str, dim: int, salt: str = "") -> np.ndarray:
    """A unit vector that depends on nothing but the word."""
    seed = int.from_bytes(hashlib.blake2b(f"{salt}{word}".encode(), digest_size=4).digest(), "big")
    v = np.random.default_rng(seed).standard_normal(dim)
    return (v / np.linalg.norm(v)).astype(np.float32)


class TinyProfile:
    """Words are vectors; the last word of a question is what it asks for. blind: the zero-shot directions are wrong."""

    id, aligned, short_side, window = "tiny@1", True, 64, 0.0
    global_dim, region_dim, text_dim = DIM, 4, TEXT
    blocks = Blocks(("one",), (DIM,), (1.0,))

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def text(self, text: str) -> TextVectors:
        words = text.lower().strip("?").split()
        tokens = np.stack([direction(w, TEXT, "t") for w in words])
        mean = tokens[-1] + 0.2 * tokens.mean(0)
        look = direction(words[-1], DIM, "blind" if self.blind else "v")
        return TextVectors(mean / np.linalg.norm(mean), tokens, look, None)


class TinyLibrary:
    """videos: id -> (seconds, [(word, start, end), ...]); two samples a second."""

    def __init__(self, videos: dict[str, tuple[float, list[tuple[str, float, float]]]]) -> None:
        self.contents, self.forgotten = videos, {v: () for v in videos}
        self.jobs: Any = None

    def use_profile(self, profile_id: str) -> None:
        pass

    def resolve(self, ref: str | Path) -> Video:
        name = Path(ref).name
        if name not in self.contents:
            raise VilcoError("no-such-video", f"{ref}: not in this library.", "Add it.")
        return self.video(name)

    def video(self, name: str) -> Video:
        seconds = self.contents[name][0]
        return Video(name, f"/nowhere/{name}", seconds, "ready", seconds, "tiny@1")

    def videos(self) -> list[Video]:
        return [self.video(v) for v in self.contents]

    def corrections(self, key: str, videos: Any) -> list[Any]:
        """Nobody has corrected anything."""
        return []

    def add(self, paths: Any, profile: Any, **_: Any) -> AddReport:
        return AddReport()

    def stored(self, video: str) -> Stored:
        if video not in self.contents:
            raise VilcoError("no-such-video", f"{video}: not in this library.", "Add it.")
        seconds, events = self.contents[video]
        times = np.arange(0, seconds, 0.5)
        rng = np.random.default_rng(len(video) + int(seconds))
        x = rng.standard_normal((len(times), DIM)).astype(np.float32) * 0.3
        for word, start, end in events:
            x[(times >= start) & (times < end)] += 2.0 * direction(word, DIM, "v")
        n = len(times)
        return Stored(
            self.video(video), times, np.full(n, 0.5), x.astype(np.float16), np.arange(n), np.zeros(n + 1, dtype=np.int64),
            np.zeros((0, 4), np.int8), np.zeros(0, np.float32), np.zeros((0, 4), np.uint8), self.forgotten[video],
        )  # fmt: skip
