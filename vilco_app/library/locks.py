"""The lock around whatever rewrites features or switches index generations of a home."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vilco_app.jobs.database import storage_error
from vilco_app.values import VilcoError

PATIENCE = 300.0  # seconds; the longest hold is the build of one full segment


@contextmanager
def publishing(home: Path) -> Iterator[None]:
    """Held by one process (and thread) of a home at a time; ends with the process. Readers never take it."""
    from filelock import FileLock, Timeout

    lock = FileLock(home / "indexes" / "publish.lock", thread_local=False)
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise VilcoError(
            "library-busy", f"{home}: another process has been rewriting the indexes for {PATIENCE:.0f} s.",
            "Try again; if it stays so, end the vilco process that hangs.",
        ) from None  # fmt: skip
    except OSError as error:
        raise storage_error(error, home) from error
    try:
        yield
    finally:
        lock.release()
