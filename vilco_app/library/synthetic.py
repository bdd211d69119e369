"""Libraries of made-up vectors with the statistics of real ones, and the measuring of search on them (for `bench speed`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vilco_app.encoders.base import MAX_REGIONS, Features
from vilco_app.library.features import TakeWriter, folder_bytes
from vilco_app.library.library import Library
from vilco_app.library.records import FileRecord, IndexedRecord, VideoRecord
from vilco_app.library.types import Hits, Statistics

SCENE = 20  # samples in a row that look alike, 10 s at 2 fps
ALIKE = 0.8  # share of the variance that the samples of a scene have in common


class Source:
    """Gaussian vectors with given statistics, alike within a scene: harder for an index than real, clustered ones."""

    def __init__(self, statistics: Statistics, rng: np.random.Generator) -> None:
        values, directions = np.linalg.eigh(statistics.cov)
        self.spread = (directions * np.sqrt(np.maximum(values, 0))).T.astype(np.float32)  # [D, D], rows of unit noise
        self.mean, self.rng = statistics.mean.astype(np.float32), rng

    def draw(self, scenes: int, per_scene: int) -> np.ndarray:
        """[scenes * per_scene, D] float32."""
        dim = len(self.mean)
        common = np.repeat(self.rng.standard_normal((scenes, dim), np.float32), per_scene, axis=0)
        own = self.rng.standard_normal((scenes * per_scene, dim), np.float32)
        return (np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE) * own) @ self.spread + self.mean


def fill(
    library: Library, profile_id: str, hours: int, frames: Statistics, regions: Statistics, rate: float = 2.0,
    seed: int = 0, progress: Callable[[float, float, str], None] | None = None,
) -> None:  # fmt: skip
    """Put `hours` recordings of one hour each into an empty library, as indexing would have left them, and index them.

    frames, regions: statistics of real vectors of the profile (`Library.statistics`). Nothing is merged as near-still:
    8 regions for every sample, the most a profile gives.
    """
    rng = np.random.default_rng(seed)
    source, region_source = Source(frames, rng), Source(regions, rng)
    library.use_profile(profile_id)
    rows = round(3600 * rate)
    for hour in range(hours):
        video = f"{hour:012x}"
        path = str(library.home / f"synthetic-{hour}.mp4")
        record = VideoRecord(video, path, (path,), 3600.0, 1280, 720, None, "")
        library.catalogue.put_video(record, [FileRecord(path, 0, 0, video, video)])
        take = library.catalogue.new_take(video, profile_id, "full", rate, len(frames.mean), len(regions.mean))
        writer = TakeWriter(library.features_folder, take)
        for first in range(0, rows, 100 * SCENE):
            n = min(100 * SCENE, rows - first)
            scenes = -(-n // SCENE)
            corners = rng.uniform(0, 0.5, (n * MAX_REGIONS, 2)).astype(np.float32)
            features = Features(
                source.draw(scenes, SCENE)[:n], region_source.draw(scenes * MAX_REGIONS, SCENE)[: n * MAX_REGIONS],
                np.concatenate([corners, corners + 0.3], axis=1), np.full(n, MAX_REGIONS),
            )  # fmt: skip
            writer.append((first + np.arange(n)) / rate, np.full(n, 1 / rate), features)
        library.catalogue.commit_take(writer.sync())
        writer.close()
        library.catalogue.set_indexed(IndexedRecord(video, profile_id, "ready", rate, ""))
        library.publish(profile_id)
        if progress is not None:
            progress(hour + 1, hours, "synthetic hours")


@dataclass(frozen=True)
class SearchReport:
    """Warm search, both indexes per question. recall: share of the exact best `top` found, by kind. Times in ms.

    bytes_per_hour: features and indexes together.
    """

    hours: float
    median: float
    p95: float
    recall: dict[str, float]
    bytes_per_hour: float


def measure_search(library: Library, scenes: np.ndarray, things: np.ndarray, top: int = 100) -> SearchReport:
    """Ask each pair of scenes [Q, Dg] and things [Q, Dr], one at a time, after one warm round."""
    asked = list(zip(scenes, things, strict=True))
    for scene, thing in asked:
        library.search_globals(scene, top)
        library.search_regions(thing, top)
    times, found = [], []
    for scene, thing in asked:
        start = time.perf_counter()
        pair = library.search_globals(scene, top)[0], library.search_regions(thing, top)[0]
        times.append(1000 * (time.perf_counter() - start))
        found.append(pair)
    recall = {
        kind: float(np.mean([_recall(hits[i], kth) for hits, kth in zip(found, _kth(library, kind, vectors, top), strict=True)]))
        for i, (kind, vectors) in enumerate((("globals", scenes), ("regions", things)))
    }  # fmt: skip
    hours = sum(v.indexed_seconds for v in library.videos()) / 3600
    size = folder_bytes([library.features_folder, library.generations_folder])
    return SearchReport(
        hours, float(np.median(times)), float(np.percentile(times, 95)), recall, size / hours if hours else 0.0
    )


def _kth(library: Library, kind: str, vectors: np.ndarray, top: int) -> np.ndarray:
    """Score of the exact `top`-th best stored vector for each question [Q], by going through everything."""
    best = np.full((len(vectors), 0), -np.inf, np.float32)
    for video in library.videos():
        stored = library.stored(video.id)
        rows = np.asarray(stored.globals, np.float32) if kind == "globals" else stored.regions()
        best = np.concatenate([best, vectors.astype(np.float32) @ rows.T], axis=1)
        best = -np.sort(-best, axis=1)[:, :top]
    return best[:, -1] if best.shape[1] else np.full(len(vectors), -np.inf)


def _recall(hits: Hits, kth: float) -> float:
    """Share of the answers that belong to the exact best: those at least as good as the last of them."""
    return float((hits.scores >= kth - 1e-4 * max(1.0, abs(kth))).mean()) if len(hits.scores) else 0.0
