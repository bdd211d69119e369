"""What a file is: found below folders by its name, known by its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vilco_app.library.records import FileRecord
from vilco_app.values import Refusal

ID_DIGITS = 12  # 48 bits: a collision among a million recordings has a chance of 2 in 1,000
CHUNK = 1 << 20
SUFFIXES = frozenset(  # not lrv: an action camera's small copy of a file that lies beside it
    [
        ".264", ".265", ".360", ".3g2", ".3gp", ".asf", ".avi", ".dv", ".f4v", ".flv", ".h264", ".h265", ".hevc", ".insv",
        ".ivf", ".m2ts", ".m4v", ".mjpeg", ".mjpg", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".mxf", ".nut",
        ".ogv", ".qt", ".ts", ".vob", ".webm", ".wmv", ".y4m",
    ]
)  # fmt: skip


def expand(paths: Iterable[str | Path]) -> tuple[list[Path], list[Refusal]]:
    """Files to look at: those named, and those below named folders that have a video's suffix, sorted by path.

    Hidden files and folders below a named folder are left alone. What does not exist or cannot be listed is refused.
    """
    files: dict[Path, None] = {}
    refused: list[Refusal] = []
    for given in paths:
        path = Path(os.path.abspath(Path(given).expanduser()))
        if path.is_dir():
            problems: list[OSError] = []
            found: list[Path] = []
            for folder, names, leaves in os.walk(path, onerror=problems.append):
                names[:] = [n for n in names if not n.startswith(".")]
                found += [
                    Path(folder, n) for n in leaves if not n.startswith(".") and Path(n).suffix.lower() in SUFFIXES
                ]
            files.update(dict.fromkeys(sorted(found)))
            for error in problems:
                reason = f"the folder cannot be read: {error.strerror}."
                refused.append(Refusal(str(error.filename or path), reason, "Change its permissions.", "unreadable"))
        elif path.exists():
            files[path] = None
        else:
            refused.append(Refusal(str(path), "there is no such file or folder.", "Check the path.", "not-found"))
    faults = {file: fault for file in files if (fault := _fault(file)) is not None}
    return [file for file in files if file not in faults], refused + list(faults.values())


def _fault(path: Path) -> Refusal | None:
    """Why a file cannot even be opened to look at: its name has no place in a catalogue, or reading it never ends."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        return Refusal(shown, "its path is not valid UTF-8.", "Rename it and add it again.", "bad-name")
    if path.exists() and not path.is_file():
        return Refusal(str(path), "it is not a regular file.", "Give a video file or a folder.", "not-a-file")
    return None


def digest_file(path: Path, check: Callable[[], None] | None = None) -> str:
    """BLAKE2b of the whole file, 32 hex digits. check: called every MB, may raise to stop."""
    sum_ = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(CHUNK):
            sum_.update(chunk)
            if check is not None:
                check()
    return sum_.hexdigest()


def recording_id(digests: Sequence[str]) -> str:
    """The id of a recording from the digests of its parts, in order: of one file, the digest's first 12 digits."""
    whole = digests[0] if len(digests) == 1 else hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest()
    return whole[:ID_DIGITS]


def know(path: Path, known: dict[str, FileRecord]) -> FileRecord:
    """The file's record, from the cache when path, size and mtime are those of last time. Raises OSError."""
    stat = path.stat()
    cached = known.get(str(path))
    if cached is not None and (cached.size, cached.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
        return cached
    return FileRecord(str(path), stat.st_size, stat.st_mtime_ns, digest_file(path), None)
