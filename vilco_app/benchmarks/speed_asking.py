"""Asking: cold from the command line, warm over many hours, with a picture."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from vilco_app.benchmarks.machine import Row
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
    seconds = []
    for _ in range(4):  # the first one reads the files from disk
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ))
        seconds.append(time.perf_counter() - began)
    return [Row("cold `vilco ask` on an indexed library", min(seconds[1:]), "s", 3.0, "max")]


def visual_rows(bench: Bench) -> list[Row]:
    """A picture asked of a 10-minute video, warm, median of five."""
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(bench.home("visual"), profile="embedded")
    film = bench.film("720p", 600, 1280, 720, gop=60)
    memory.add(film)
    picture = memory.frame(film, 8.5)
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        memory.find(picture, box=(0.5, 0.2, 0.9, 0.8))
        seconds.append(time.perf_counter() - began)
    return [Row("visual query in 10 min of 720p, warm", sorted(seconds[1:])[2], "s", 2.0, "max")]


def scale_rows(bench: Bench) -> list[Row]:
    """Warm text queries over synthetic libraries of 10 h and 100 h, both indexes in use, with recall of the shortlist."""
    raise RuntimeError("not wired yet")
