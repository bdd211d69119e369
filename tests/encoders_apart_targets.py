"""What `test_encoders_apart` runs in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from vilco_app.values import VilcoError


def write_pid(folder: Path, progress: Callable[[int, int, str], None]) -> None:
    print("noise of a library")
    progress(1, 2, "half")
    (folder / "pid").write_text(str(os.getpid()))
    progress(2, 2, "done")


def refuse(folder: Path, progress: Callable[[int, int, str], None]) -> None:
    raise VilcoError("no-weights", f"{folder.name}: not here.", "Get them.")


def break_down(folder: Path, progress: Callable[[int, int, str], None]) -> None:
    raise RuntimeError("out of luck")
