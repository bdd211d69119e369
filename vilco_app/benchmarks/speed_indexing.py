"""Indexing cost, first answers, memory, re-adding."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vilco_app.benchmarks.machine import best_of, in_child, measured
from vilco_app.benchmarks.rows import Row

if TYPE_CHECKING:
    from vilco_app.benchmarks.speed import Bench

RATE = 2.0  # samples per second: the product's default
QUESTION = "a parked bicycle"
MODULE = "vilco_app.benchmarks.speed_indexing"


def indexing_rows(bench: Bench) -> list[Row]:
    """CPU time of indexing 60 s of 1080p30 against decoding and scaling the same samples with the same skipping."""
    from vilco_app.encoders import load_profile
    from vilco_app.library import Library
    from vilco_app.video import open_recording, samples

    film = bench.film("1080p", 60, 1920, 1080)
    home = bench.home("indexing")
    profile = load_profile("embedded", home / "models")  # with the threads the product gives it
    for batch in samples(open_recording([film]), RATE, profile.short_side):
        profile.encode(batch.frames)  # warm up: first calls allocate
        break

    def decode() -> None:
        for _ in samples(open_recording([film]), RATE, profile.short_side):
            pass

    floor = best_of(3, decode)
    costs = []
    for round_ in range(3):
        with measured() as clock:
            Library(home / f"{round_}").add(film, profile, rate=RATE)
        costs.append(clock.cpu)
    cost = min(costs)
    return [
        Row("indexing: decode + scaling of the samples, per minute of 1080p30", floor.cpu, "CPU s"),
        Row("indexing: all of it, per minute of 1080p30", cost, "CPU s"),
        Row("indexing: cost against decode + scaling", cost / floor.cpu, "times", 1.5, "max"),
    ]


def first_answer_rows(bench: Bench) -> list[Row]:
    """Seconds from the job's start to the first answer with a moment, on a 10-minute 720p file (key frames every 2 s)."""
    film = bench.film("720p", 600, 1280, 720, gop=60)
    warm = in_child(MODULE, ["first", str(bench.home("first-warm")), str(film)])
    began = time.perf_counter()
    in_child(MODULE, ["first-cold", str(bench.home("first-cold")), str(film)], until="answered")
    cold = time.perf_counter() - began
    return [
        Row("first answer, 10 min of 720p, warm process", warm["seconds"], "s", 5.0, "max"),
        Row("first answer, 10 min of 720p, from starting the process", cold, "s", 12.0, "max"),
    ]


def readd_rows(bench: Bench, files: int = 1000) -> list[Row]:
    """Adding an unchanged folder of 1,000 files again (a stand-in encoder: it is not asked)."""
    from vilco_app.benchmarks.standin import StandIn
    from vilco_app.library import Library

    folder, home = bench.folder / "many", bench.folder / "readd"
    folder.mkdir()
    first = bench.film("tiny", 1, 64, 36)
    for number in range(files):
        path = folder / f"{number:04d}.mp4"
        shutil.copyfile(first, path)
        with path.open("ab") as file:  # a `free` box: other content, same picture
            file.write((16).to_bytes(4, "big") + b"free" + number.to_bytes(8, "big"))
    library, profile = Library(home), StandIn()
    library.add(folder, profile, rate=RATE)
    with measured() as warm:
        report = Library(home).add(folder, profile, rate=RATE)
    name = f"re-adding {len(report.unchanged)} unchanged files"
    return [Row(name, warm.wall, "s", 2.0, "max")]


def _first(home: Path, film: Path, warm: bool) -> None:
    import threading

    from vilco_app.memory import EpisodicMemory
    from vilco_app.values import VilcoError

    memory = EpisodicMemory(home, profile="embedded")
    if warm:
        import numpy as np

        side = memory.profile.short_side
        memory.profile.encode(np.zeros((4, side, side * 16 // 9 // 32 * 32, 3), np.uint8))
        memory.profile.text(QUESTION)
        memory.catalogue.videos()
    began = time.perf_counter()
    threading.Thread(target=memory.add, args=(film,), daemon=True).start()
    while True:
        try:
            if memory.videos() and memory.ask(QUESTION).moments:
                break
        except VilcoError:
            pass
        time.sleep(0.05)
    print(json.dumps({"answered": True, "seconds": time.perf_counter() - began}), flush=True)
    os._exit(0)  # the indexing thread has minutes to go; nothing it holds is wanted


if __name__ == "__main__":
    what, home_, film_ = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    _first(home_, film_, warm=what == "first")
