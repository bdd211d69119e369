"""Preparing encoders in a process of its own: what torch takes for it, 0.5 GB, ends with that process."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vilco_app.values import VilcoError

Progress = Callable[[int, int, str], None]


def apart(target: str, folder: Path, progress: Progress | None = None) -> None:
    """Call `target` ("package.module:function", which takes a folder and a progress) in a child process, and wait.

    The child ends when this process does. Raises VilcoError as the function does, or "preparing-failed" with the last line
    that the child said.
    """
    command = [sys.executable, "-m", "vilco_app.encoders.apart", target, str(folder)]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
        assert child.stdout is not None
        error: dict[str, str] | None = None
        try:
            for line in child.stdout:
                event = json.loads(line)
                error = event.get("error", error)
                if progress is not None and "progress" in event:
                    progress(*event["progress"])
            child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        said.seek(0)
        last = (said.read().strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    if error is not None:
        raise VilcoError(error["code"], error["message"], error["remedy"])
    if child.returncode:
        raise VilcoError(
            "preparing-failed", f"the encoders could not be prepared: {last}",
            "See what is missing with: vilco doctor; most often memory or disk space ran out.",
        )  # fmt: skip


def main(target: str, folder: Path) -> None:
    """The child: one JSON object a line on stdout, {"progress": [done, total, text]} or {"error": ...}."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print must not mix with the events
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    module, _, name = target.partition(":")
    try:
        getattr(importlib.import_module(module), name)(folder, lambda *step: tell({"progress": step}))
    except VilcoError as error:
        tell({"error": {"code": error.code, "message": error.message, "remedy": error.remedy}})


def _end_with_parent() -> None:
    os.read(0, 1)  # nobody writes: it returns when the other end is closed, which the parent's death does
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
