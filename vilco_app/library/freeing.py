"""Giving memory back to the system after work that took much of it for a while."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any


def give_back() -> None:
    """Have the C library return freed memory; some milliseconds, and nothing outside Linux with glibc.

    It keeps what was freed in small pieces, each thread in a store of its own: after a segment was built 40 MB, after a
    film was indexed much of what decoding took.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def rest(profile: Any) -> None:
    """Have a profile that can (it has `rest()`) give its working memory back until it is needed again."""
    pause = getattr(profile, "rest", None)
    if pause is not None:
        pause()
    give_back()
