"""Answers as files other programs read: one writer per format, every file written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vilco_app.exports.footage import Footage, Resolver
from vilco_app.values import Answer, VilcoError

__all__ = ["FORMATS", "export", "exported_paths"]

FORMATS = ("csv", "srt", "vtt", "edl", "otio", "clips")


def export(answer: Answer, to: str, out: str | Path, library: Resolver | None = None) -> Path:
    """Write `answer` as `to` (one of FORMATS) and return the path written (for clips: the folder).

    library: anything with `recording(id) -> Recording`; without it an answer's own paths are used. Subtitles belong to one
    recording: an answer over several puts the best recording at `out` and the others beside it (`exported_paths`).
    Raises VilcoError: unknown format, nothing to write, missing recording, or an output that cannot be written.
    """
    return exported_paths(answer, to, out, library)[0]


def exported_paths(answer: Answer, to: str, out: str | Path, library: Resolver | None = None) -> list[Path]:
    """As `export`, but every path written, the main one first."""
    if to not in FORMATS:
        raise VilcoError(
            "unknown-format", f"'{to}' is not a format answers can be written as.", f"Use one of: {', '.join(FORMATS)}."
        )
    if not answer.moments and to != "csv":
        raise VilcoError(
            "nothing-to-export", f"the answer to '{answer.query}' has no moments.", "Ask again, or export it as csv."
        )
    return _writer(to)(answer, Path(out).expanduser(), Footage(library))


def _writer(to: str) -> Callable[[Answer, Path, Footage], list[Path]]:
    if to == "csv":
        from vilco_app.exports.table import write_csv

        return write_csv
    if to in ("srt", "vtt"):
        from vilco_app.exports.subtitles import write_srt, write_vtt

        return write_srt if to == "srt" else write_vtt
    if to == "edl":
        from vilco_app.exports.edl import write_edl

        return write_edl
    if to == "otio":
        from vilco_app.exports.otio import write_otio

        return write_otio
    from vilco_app.exports.clips import write_clips

    return write_clips
