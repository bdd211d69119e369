"""An in-memory library and a profile whose words are axes: "thing 3" looks along axis 3."""

from dataclasses import replace

import numpy as np

from vilco_app.encoders.base import Blocks, ImageVectors, TextVectors
from vilco_app.library.types import Hits, Statistics, Stored
from vilco_app.values import Concept, Video

RATE = 2.0


def make_stored(scene, forgotten=(), video="a" * 12, rate=RATE):
    """scene [N, D] one row per sample; samples inside forgotten spans are taken out, as the library does."""
    scene = np.asarray(scene, dtype=np.float16)
    times = np.arange(len(scene)) / rate
    duration = len(scene) / rate
    keep = np.ones(len(scene), dtype=bool)
    for a, b in forgotten:
        keep &= ~((times >= a) & (times < b))
    scene, times = scene[keep], times[keep]
    n = len(scene)
    info = Video(video, f"{video}.mp4", duration, "ready", duration, "fake@1")
    return Stored(
        info, times, np.full(n, 1 / rate), scene, np.arange(n), np.arange(n + 1),
        np.clip(np.round(scene.astype(np.float32) * 60), -127, 127).astype(np.int8), np.full(n, 1 / 60, dtype=np.float32),
        np.tile(np.array([0, 0, 255, 255], dtype=np.uint8), (n, 1)), tuple(forgotten),
    )  # fmt: skip


class FakeProfile:
    id = "fake@1"
    aligned = True
    short_side = 64
    window = 0.0

    def __init__(self, dim):
        self.global_dim = self.region_dim = self.text_dim = dim
        self.blocks = Blocks(("all",), (dim,), (1.0,))
        self.asked = []

    def text(self, text):
        self.asked.append(text)
        axis = np.zeros(self.global_dim, dtype=np.float32)
        digits = [int(w) for w in text.replace("?", "").split() if w.isdigit()]
        for i in digits:
            axis[i] = 1
        return TextVectors(axis, axis[None], axis, axis, tuple(Concept(f"thing {i}", 1.0) for i in digits))

    def image(self, image):
        mean = np.asarray(image, dtype=np.float32).reshape(-1, 3).mean(0)
        v = np.zeros(self.region_dim, dtype=np.float32)
        v[:3] = mean / (np.linalg.norm(mean) + 1e-9)
        return ImageVectors(v, v[None])


class FakeLibrary:
    """LibraryView over given recordings, exact search."""

    def __init__(self, stored):
        self.all = {s.video.id: s for s in stored}
        dim = next(iter(self.all.values())).globals.shape[1] if self.all else 4
        self.profile = FakeProfile(dim)
        self.said = []

    def videos(self):
        return [s.video for s in self.all.values()]

    def stored(self, video):
        return self.all[video]

    def _search(self, vectors, top, videos, rows_of):
        ids = list(videos) if videos is not None else list(self.all)
        out = []
        for q in np.atleast_2d(vectors):
            found = []
            for v in ids:
                s = self.all[v]
                scores, rows = rows_of(s, q)
                found += [(float(x), v, int(r)) for x, r in zip(scores, rows, strict=True)]
            found = sorted(found, key=lambda f: -f[0])[:top]
            out.append(
                Hits(
                    tuple(f[1] for f in found), np.array([f[2] for f in found], dtype=np.int64),
                    np.array([self.all[f[1]].times[f[2]] for f in found]), np.array([f[0] for f in found]),
                    np.tile(np.array([[0, 0, 1, 1]], dtype=np.float32), (len(found), 1)),
                )
            )  # fmt: skip
        return out

    def search_globals(self, vectors, top, videos=None):
        return self._search(vectors, top, videos, lambda s, q: (s.globals.astype(np.float32) @ q, np.arange(len(s))))

    def search_regions(self, vectors, top, videos=None):
        return self._search(vectors, top, videos, lambda s, q: (s.region_scores(q)[0], np.arange(len(s))))

    def statistics(self, kind):
        rows = np.concatenate(
            [s.globals.astype(np.float32) if kind == "globals" else s.regions() for s in self.all.values()]
        )
        return Statistics(len(rows), rows.mean(0), np.cov(rows.T))

    def corrections(self, key, videos):
        return [c for c in self.said if c.key == key and c.video in set(videos)]

    def renamed(self, video, **changes):
        s = self.all[video]
        self.all[video] = replace(s, video=replace(s.video, **changes))
