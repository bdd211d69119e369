"""The folder of a segment as files: check sums against damage, and going away whole."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from pathlib import Path

HEAD = 1 << 21  # bytes summed up: sizes, lists and their lengths, whose damage could send FAISS anywhere; 1 ms to read
SUMS = "sums.json"


class SegmentDamaged(Exception):
    """A file of a segment is not what was written; its path is the argument. It can be made anew from what is stored."""


def write_sums(folder: Path) -> None:
    """Note size and check sum of each file of a new segment, before it gets its name."""
    sums = {path.name: _sum(path) for path in sorted(folder.iterdir())}
    (folder / SUMS).write_text(json.dumps(sums))


def check_sums(folder: Path) -> None:
    """Raises SegmentDamaged when sizes or heads differ from what was noted (segments of earlier versions have no note)."""
    try:
        noted = json.loads((folder / SUMS).read_text())
        for name, expected in noted.items():
            if _sum(folder / name) != expected:
                raise SegmentDamaged(str(folder / name))
    except FileNotFoundError as error:
        if error.filename != str(folder / SUMS):
            raise
    except (ValueError, AttributeError) as error:
        raise SegmentDamaged(str(folder / SUMS)) from error


def _sum(path: Path) -> list[int]:
    with open(path, "rb") as file:
        return [os.fstat(file.fileno()).st_size, zlib.crc32(file.read(HEAD))]


def remove_segment(folder: Path) -> None:
    """Delete a segment that nobody names any more. It vanishes whole, so that no reader opens a half of it."""
    hidden = folder.with_name(f".{folder.name.lstrip('.')}")
    try:
        os.replace(folder, hidden)
    except OSError:  # already hidden, or not ours to move: deleted where it lies
        hidden = folder
    shutil.rmtree(hidden, ignore_errors=True)
