"""A process of its own on a library: `python -m tests.library_process HOME add|ask ...`; started and killed by tests."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from tests.library_stand_ins import DIM, TinyFootage, TinyProfile
from vilco_app.library import Library
from vilco_app.library.generations import GenerationDefaults
from vilco_app.library.indexing import IndexingDefaults
from vilco_app.library.library import LibraryDefaults
from vilco_app.library.segments import SegmentDefaults


class SlowProfile(TinyProfile):
    """Takes its time, so that a kill finds it at work."""

    def encode(self, frames: np.ndarray):  # type: ignore[no-untyped-def]
        time.sleep(0.004 * len(frames))
        return super().encode(frames)


def open_library(home: Path) -> Library:
    defaults = LibraryDefaults(
        IndexingDefaults(batch=8, commit_seconds=0.02, publish_rows=150), SegmentDefaults(scanned=0),
        GenerationDefaults(tail=100, growth=2, largest=10_000),
    )  # fmt: skip
    return Library(home, "tiny@1", loader=lambda _: SlowProfile(), footage=TinyFootage(), defaults=defaults)


def main(home: Path, what: str, paths: list[str]) -> None:
    if what == "add":
        report = open_library(home).add(paths, SlowProfile())
        print(json.dumps(report.to_json()))
        return
    library, asked = open_library(home), 0
    rng = np.random.default_rng(1)
    while not Path(paths[0]).exists():  # the test says when it is enough
        (hits,) = library.search_globals(rng.standard_normal(DIM), 10)
        assert len(set(zip(hits.videos, hits.rows.tolist(), strict=True))) == len(hits.rows)
        for video in library.videos():
            assert (np.diff(library.stored(video.id).times) > 0).all()
        asked += 1
    print(json.dumps({"asked": asked}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
