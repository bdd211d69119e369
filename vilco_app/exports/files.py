"""Writing a file whole or not at all, with errors a person can act on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from vilco_app.values import VilcoError


def unwritable(path: Path, error: OSError) -> VilcoError:
    """The error for an output that could not be written."""
    return VilcoError(
        "cannot-write", f"{path}: {error.strerror or error}.", "Choose a folder you may write to, with space left."
    )


def write_text(path: Path, text: str) -> Path:
    """Write `text` (UTF-8, its line ends kept) beside `path` first, then move it there.

    An earlier export may be replaced; anything that is not text (a recording, say, named by mistake) is not.
    Raises VilcoError.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder, not a file name")
        if path.exists() and not _is_text(path):
            raise VilcoError(
                "exists", f"{path} is there already and is no text file; nothing was written.",
                "Choose another name with -o.",
            )  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes it private; a result is an ordinary file
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from None
    return path


def _is_text(path: Path) -> bool:
    """Whether a file may be an export of ours. OSError when it cannot be read."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        head = file.read(4096)
    return b"\0" not in head


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
