"""`vilco bench speed`: indexing, first answers, memory and asking, each beside its target and this machine's own rates."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vilco_app.benchmarks.machine import machine_rows, make_film
from vilco_app.benchmarks.rows import Row
from vilco_app.values import VilcoError

Progress = Callable[[float, float, str], None]


class Bench:
    """What the groups share: a scratch folder, a home with prepared encoders, films made once, a thread count."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder, self.threads = folder, threads
        self._films: dict[str, Path] = {}
        self._models: Path | None = None

    def film(self, name: str, seconds: float, width: int, height: int, gop: int = 60) -> Path:
        """A film of real footage, made on first use."""
        if name not in self._films:
            self._films[name] = make_film(self.folder / f"{name}.mp4", seconds, width, height, gop=gop)
        return self._films[name]

    def home(self, name: str) -> Path:
        """An empty home whose encoders are prepared already (linked, not converted again)."""
        home = self.folder / name
        home.mkdir()
        if self._models is None:
            from vilco_app.encoders import load_profile
            from vilco_app.home import resolve_home

            prepared = resolve_home() / "models"
            load_profile("embedded", prepared)
            self._models = prepared
        (home / "models").mkdir()
        (home / "models" / "encoders").symlink_to((self._models / "encoders").resolve(), target_is_directory=True)
        return home


def _machine(bench: Bench) -> list[Row]:
    return machine_rows(bench.film("1080p", 60, 1920, 1080), bench.threads)


def _indexing(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_indexing import indexing_rows

    return indexing_rows(bench)


def _encoders(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_encoders import encoder_rows

    return encoder_rows(bench)


def _first(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_indexing import first_answer_rows

    return first_answer_rows(bench)


def _memory(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_memory import memory_rows

    return memory_rows(bench)


def _ask(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_asking import ask_rows

    return ask_rows(bench)


def _scale(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_asking import scale_rows

    return scale_rows(bench, 10, 30.0)


def _scale100(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_asking import scale_rows

    return scale_rows(bench, 100, 60.0)


def _visual(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_asking import visual_rows

    return visual_rows(bench)


def _readd(bench: Bench) -> list[Row]:
    from vilco_app.benchmarks.speed_indexing import readd_rows

    return readd_rows(bench)


GROUPS: dict[str, Callable[[Bench], list[Row]]] = {
    "machine": _machine, "indexing": _indexing, "encoders": _encoders, "first": _first, "ask": _ask, "visual": _visual,
    "readd": _readd, "scale": _scale, "memory": _memory, "scale100": _scale100,
}  # fmt: skip


def speed(
    only: Sequence[str] | None = None, threads: int = 0, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Rows {name, value, unit, target, limit} of the groups named in `only` (None: all GROUPS).

    threads: for everything that lets itself be told; 0 = one per core. A group that fails gives a row without a value
    that says why; the others still run. Raises VilcoError for an unknown group.
    """
    unknown = [name for name in only or () if name not in GROUPS]
    if unknown:
        raise VilcoError("unknown-group", f"--only {unknown[0]} is not a group.", f"Use: {', '.join(GROUPS)}.")
    names = [name for name in GROUPS if not only or name in only or name == "machine"]
    count = threads or os.cpu_count() or 1
    os.environ["OMP_NUM_THREADS"] = str(count)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as folder:
        bench = Bench(Path(folder), count)
        for number, name in enumerate(names):
            if progress is not None:
                progress(number, len(names), f"measuring: {name}")
            try:
                rows += [row.to_json() for row in GROUPS[name](bench)]
            except (VilcoError, ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
                why = error.message if isinstance(error, VilcoError) else repr(error)
                rows.append(Row(f"{name}: failed ({' '.join(why.split())[:120]})", None, "").to_json())
    return rows
