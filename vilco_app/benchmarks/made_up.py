"""A library of made-up features with the dimensions of a real profile: to time learning and grounding without a video."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.library.types import Stored
from vilco_app.values import AddReport, Video, VilcoError

GLOBAL, TEXT = 640, 384  # about the embedded profile's
EVENT_SECONDS = 12.0


def _direction(word: str, dim: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.blake2b(f"{dim}{word}".encode(), digest_size=4).digest(), "big")
    v = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    unit: np.ndarray = v / np.linalg.norm(v)
    return unit


class MadeUpProfile:
    """Aligned: a word's look is known to the zero-shot side, faintly."""

    id, aligned, short_side, window = "made-up@1", True, 64, 0.0
    global_dim, region_dim, text_dim = GLOBAL, 4, TEXT
    blocks = Blocks(("one", "two"), (384, GLOBAL), (0.5, 0.5))

    def text(self, text: str) -> TextVectors:
        words = text.lower().strip("?").split()
        tokens = np.stack([_direction(w, TEXT) for w in words])
        mean = tokens.mean(axis=0)
        return TextVectors(mean / np.linalg.norm(mean), tokens, _direction(words[-1], GLOBAL), None)


class MadeUpLibrary:
    """`count` recordings of `seconds` each at 2 samples a second; an event of a named thing every 40 s."""

    def __init__(self, count: int, seconds: float) -> None:
        self.seconds = seconds
        self.names = [f"made{k:03d}" for k in range(count)]
        self.jobs: Any = None
        self._kept: dict[str, Stored] = {}

    def use_profile(self, profile_id: str) -> None:
        """There is only one."""

    def add(self, paths: Any, profile: Any, **_: Any) -> AddReport:
        return AddReport()

    def videos(self) -> list[Video]:
        return [self.video(n) for n in self.names]

    def video(self, name: str) -> Video:
        return Video(name, name, self.seconds, "ready", self.seconds, MadeUpProfile.id)

    def resolve(self, ref: str | Path) -> Video:
        if Path(ref).name not in self.names:
            raise VilcoError("no-such-video", f"{ref}: not in this library.", "Name one of its recordings.")
        return self.video(Path(ref).name)

    def events(self, name: str) -> list[tuple[str, float, float]]:
        """(thing, start, end) in seconds."""
        k = self.names.index(name)
        return [
            (f"thing{(k * 7 + i) % 60}", 40.0 * i + 6, 40.0 * i + 6 + EVENT_SECONDS)
            for i in range(int(self.seconds // 40))
        ]

    def stored(self, video: str) -> Stored:
        if video not in self._kept:
            times = np.arange(0, self.seconds, 0.5)
            rng = np.random.default_rng(self.names.index(video))
            x = rng.standard_normal((len(times), GLOBAL)).astype(np.float32) / GLOBAL**0.5
            for word, start, end in self.events(video):
                x[(times >= start) & (times < end)] += 0.5 * _direction(word, GLOBAL)
            n = len(times)
            self._kept[video] = Stored(
                self.video(video), times, np.full(n, 0.5), x.astype(np.float16), np.arange(n), np.zeros(n + 1, np.int64),
                np.zeros((0, 4), np.int8), np.zeros(0, np.float32), np.zeros((0, 4), np.uint8),
            )  # fmt: skip
        return self._kept[video]

    def stage(self, name: str, examples: int, first: int = 0, held: int = 8) -> dict[str, Any]:
        """An nlq stage of `examples` training and `held` held-out questions, taken in turn from the recordings."""
        pool = [(v, e) for v in self.names for e in self.events(v)]
        rows = []
        for i in range(examples + held):
            video, (word, start, end) = pool[(first + i) % len(pool)]
            rows.append({
                "id": f"{name}-{i}", "video": video, "query": f"question {name} {i} where is the {word}",
                "windows": [[start, end]], "split": "train" if i < examples else "heldout",
            })  # fmt: skip
        return {"schema": 1, "name": name, "family": "nlq", "examples": rows}
