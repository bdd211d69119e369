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
    """Write `text` (UTF-8, its line ends kept) beside `path` first, then move it there. Raises VilcoError."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder, not a file name")
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
