"""Asking: cold from the command line, warm over many hours, with a picture."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from vilco_app.benchmarks.machine import measured
from vilco_app.benchmarks.rows import Row
from vilco_app.benchmarks.speed_indexing import QUESTION

if TYPE_CHECKING:
    from vilco_app.benchmarks.speed import Bench

QUESTIONS = (
    QUESTION, "a man in a suit", "cars in a street", "where did I put the scissors?", "washing dishes", "a red bus",
    "someone rides past", "a dog on a sofa", "reading a book", "the front door",
)  # fmt: skip


def ask_rows(bench: Bench) -> list[Row]:
    """`vilco ask` as a person runs it, on an indexed library: process start to answer, best of three."""
    from vilco_app.memory import EpisodicMemory

    home = bench.home("ask")
    EpisodicMemory(home, profile="embedded").add(bench.film("street", 60, 640, 360))
    command = [sys.executable, "-m", "vilco_app.cli", "ask", QUESTION, "--json", "--home", str(home)]
    clocks = []
    for _ in range(4):  # the first one reads the files from disk
        with measured() as clock:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
        clocks.append(clock)
    return [
        Row("cold `vilco ask` on an indexed library", min(c.wall for c in clocks[1:]), "s", 3.0, "max"),
        Row("cold `vilco ask`, CPU time of it", min(c.cpu for c in clocks[1:]), "CPU s"),
    ]


def visual_rows(bench: Bench) -> list[Row]:
    """A picture asked of a 10-minute video, warm, median of five."""
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(bench.home("visual"), profile="embedded")
    film = bench.film("720p", 600, 1280, 720, gop=60)
    memory.add(film)
    picture = memory.frame(film, 8.5)
    clocks = []
    for _ in range(6):
        with measured() as clock:
            memory.find(picture, box=(0.5, 0.2, 0.9, 0.8))
        clocks.append(clock)
    return [
        Row("visual query in 10 min of 720p, warm", sorted(c.wall for c in clocks[1:])[2], "s", 2.0, "max"),
        Row("visual query, CPU time of it", sorted(c.cpu for c in clocks[1:])[2], "CPU s"),
    ]


def scale_rows(bench: Bench, hours: int, target: float) -> list[Row]:
    """Warm text queries over a synthetic library: vectors with the statistics of real ones, 8 regions per sample.

    target: ms at the 95th percentile. The whole answer is timed, and the search of both indexes by itself.
    """
    import numpy as np

    from vilco_app.library import Library
    from vilco_app.library.synthetic import fill, measure_search
    from vilco_app.memory import EpisodicMemory

    real = EpisodicMemory(bench.home(f"real-{hours}"), profile="embedded")
    real.add(bench.film("street", 60, 640, 360))
    profile = real.profile
    home = bench.home(f"scale-{hours}")
    fill(Library(home), profile.id, hours, real.library.statistics("globals"), real.library.statistics("regions"))
    memory = EpisodicMemory(home, profile="embedded")
    vectors = [profile.text(question) for question in QUESTIONS]
    report = measure_search(
        memory.library,
        np.stack([np.asarray(v.scene) for v in vectors]),
        np.stack([np.asarray(v.thing) for v in vectors]),
    )
    for question in QUESTIONS:
        memory.ask(question)
    answers = []
    for question in QUESTIONS * 3:
        began = time.perf_counter()
        memory.ask(question)
        answers.append(1000 * (time.perf_counter() - began))
    name = f"{hours} h (synthetic)"
    return [
        Row(f"warm text query, whole answer, p95, {name}", float(np.percentile(answers, 95)), "ms", target, "max"),
        Row(f"warm search of both indexes, p95, {name}", report.p95, "ms", target, "max"),
        Row(f"recall@100 against exact search, frames, {name}", report.recall["globals"], "share"),
        Row(f"recall@100 against exact search, regions, {name}", report.recall["regions"], "share"),
        Row(f"disk per hour, {name}", report.bytes_per_hour / 1e6, "MB", 60.0, "max"),
    ]
