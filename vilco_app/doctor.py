"""What may go wrong with files, or with this installation, said before it does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vilco_app.home import resolve_home
from vilco_app.values import VideoRefused


@dataclass(frozen=True)
class FileReport:
    """Findings about one file: ok means it can be indexed; problems are (code, message)."""

    path: str
    ok: bool
    problems: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "ok": self.ok, "problems": [{"code": c, "message": m} for c, m in self.problems]}


@dataclass(frozen=True)
class Check:
    """One thing this installation needs, or (needed = False) could use."""

    name: str
    ok: bool
    message: str
    needed: bool = True

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.ok, "needed": self.needed, "message": self.message}


def examine_files(paths: Sequence[Path]) -> list[FileReport]:
    """Look at files (folders: the videos in them) without adding them."""
    reports = []
    for path in paths:
        path = path.expanduser()
        if path.is_dir():
            from vilco_app.library.identity import expand

            reports += [_examine(p) for p in expand([path])[0]]
        else:
            reports.append(_examine(path))
    return reports


def _examine(path: Path) -> FileReport:
    if not path.is_file():
        return FileReport(str(path), False, (("missing", f"{path} is not a file."),))
    from vilco_app.video import examine, probe

    findings: tuple[tuple[str, str], ...] = ()
    try:
        findings = tuple((finding.code, finding.message) for finding in examine(path))
        probe(path)
    except VideoRefused as refusal:
        return FileReport(str(path), False, findings or ((refusal.code, f"{refusal.message} {refusal.remedy}"),))
    except OSError as error:
        return FileReport(str(path), False, (("unreadable", f"{path}: {error.strerror}."),))
    return FileReport(str(path), True, findings)


def examine_installation(home: Path | None = None) -> list[Check]:
    """Data folder, free space, decoders, encoder profiles."""
    folder = resolve_home(home)
    return [_writable(folder), _space(folder), _ffmpeg(), _module("av", "decodes in file order"), _module("decord", "re-reads single frames; PyAV serves alone without it"), *_profiles(folder)]  # fmt: skip


def _writable(folder: Path) -> Check:
    probe = folder / ".vilco-write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        return Check("data folder", False, f"{folder} cannot be written ({error.strerror}). Set VILCO_HOME.")
    return Check("data folder", True, str(folder))


def _space(folder: Path) -> Check:
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    return Check("disk", free > 1.0, f"{free:.1f} GB free; an hour of video takes at most 0.06 GB")


def _ffmpeg() -> Check:
    try:
        import imageio_ffmpeg

        return Check("ffmpeg", True, str(imageio_ffmpeg.get_ffmpeg_exe()))
    except (ImportError, RuntimeError) as error:
        return Check("ffmpeg", False, f"the bundled ffmpeg is missing ({error}): clips cannot be cut")


def _module(name: str, what: str) -> Check:
    import importlib

    try:
        module = importlib.import_module(name)
    except Exception as error:  # a broken binary wheel raises anything from ImportError to OSError
        return Check(name, False, f"does not load ({error}); {what}")
    return Check(name, True, f"{getattr(module, '__version__', '')}: {what}".strip(": "))


def _profiles(folder: Path) -> list[Check]:
    from vilco_app.encoders import profile_status

    return [
        Check(
            f"profile {s.name}", s.ready, "ready" if s.ready else f"{s.reason} {s.remedy}".strip(), s.name == "embedded"
        )
        for s in profile_status(folder / "models")
    ]
