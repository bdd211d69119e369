"""Anonymous memory: of indexing, whatever the length, and of learning in a process that has just indexed."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.benchmarks.machine import in_child
from vilco_app.benchmarks.rows import Row

if TYPE_CHECKING:
    from vilco_app.benchmarks.speed import Bench

MODULE = "vilco_app.benchmarks.speed_memory"


def memory_rows(bench: Bench) -> list[Row]:
    """Largest anonymous memory (no page cache) of a process that indexes, how it grows with length, and with learning."""
    if not Path("/proc/self/status").exists():
        return [Row("memory: needs /proc (Linux)", None, "GB")]

    def peak(name: str, what: str, film: Path) -> float:
        return float(in_child(MODULE, [what, str(bench.home(f"memory-{name}")), str(film)])["gigabytes"])

    short_film = bench.film("short", 600, 320, 180)
    big = peak("720p", "index", bench.film("720p", 600, 1280, 720))
    short = peak("short", "index", short_film)
    long = peak("long", "index", bench.film("long", 10800, 320, 180))
    learning = peak("learning", "learn", short_film)
    return [
        Row("memory: indexing 10 min of 720p", big, "GB", 1.5, "max"),
        Row("memory: indexing 10 min of 180p", short, "GB", 1.5, "max"),
        Row("memory: indexing 3 h of 180p", long, "GB", 1.5, "max"),
        Row("memory: 3 h against 10 min", long / short, "times", 1.15, "max"),
        Row("memory: learning right after indexing, both processes", learning, "GB", 2.0, "max"),
    ]


def anonymous_gigabytes(pid: int | str = "self") -> float:
    """Anonymous resident memory of a process: what is really taken, without the page cache; 0 when it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) / 1e6
    except OSError:
        pass
    return 0.0


def children() -> list[str]:
    """Process ids of this process's children."""
    found: list[str] = []
    for listed in Path("/proc/self/task").glob("*/children"):
        try:
            found += listed.read_text().split()
        except OSError:  # the thread has ended
            continue
    return found


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Looks 20 times a second -> {"gigabytes": the largest sum of this process and its children} at the end."""
    report, done = {"gigabytes": 0.0}, threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            now = anonymous_gigabytes() + sum(map(anonymous_gigabytes, children()))
            report["gigabytes"] = max(report["gigabytes"], now)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield report
    finally:
        done.set()
        watcher.join()


def _index(home: Path, film: Path) -> dict[str, float]:
    from vilco_app.memory import EpisodicMemory

    with watched() as report:
        EpisodicMemory(home, profile="embedded").add(film)
    return report


def _learn(home: Path, film: Path) -> dict[str, float]:
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(home, profile="embedded")
    (video,) = memory.add(film).added
    examples: list[dict[str, Any]] = [
        {"id": f"e{k}", "video": video, "query": f"where is thing {k}?", "windows": [[10 + 25 * k, 15 + 25 * k]]}
        for k in range(20)
    ]
    stage = home / "stage.json"
    stage.write_text(json.dumps({"schema": 1, "name": "memory", "family": "nlq", "examples": examples}))
    time.sleep(0.2)
    with watched() as report:
        memory.learn(stage)
    return report


if __name__ == "__main__":
    print(json.dumps({"index": _index, "learn": _learn}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))), flush=True)
