"""SRT and WebVTT: moments as cues over the recording they lie in, in time order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vilco_app.exports.files import write_text
from vilco_app.exports.footage import Footage
from vilco_app.values import Answer, Moment


def write_srt(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """SubRip: numbered cues, comma before the milliseconds."""

    def document(cues: list[tuple[int, Moment]]) -> str:
        blocks = [
            f"{n}\n{_time(m.start, ',')} --> {_time(m.end, ',')}\n{_plain(_text(answer, rank, m))}\n"
            for n, (rank, m) in enumerate(cues, start=1)
        ]
        return "\n".join(blocks)

    return _write(answer, out, document)


def write_vtt(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """WebVTT: `&`, `<`, `>` escaped as the format asks."""

    def escape(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    def document(cues: list[tuple[int, Moment]]) -> str:
        blocks = [
            f"{rank}\n{_time(m.start, '.')} --> {_time(m.end, '.')}\n{escape(_text(answer, rank, m))}\n"
            for rank, m in cues
        ]
        return "WEBVTT\n\n" + "\n".join(blocks)

    return _write(answer, out, document)


def _write(answer: Answer, out: Path, document: Callable[[list[tuple[int, Moment]]], str]) -> list[Path]:
    """One file per recording: the best moment's at `out`, the others beside it with their id before the suffix."""
    videos = list(dict.fromkeys(m.video for m in answer.moments))
    written = []
    for video in videos:
        path = out if video == videos[0] else out.with_name(f"{out.stem}.{video}{out.suffix}")
        cues = [(rank, m) for rank, m in enumerate(answer.moments, start=1) if m.video == video]
        written.append(write_text(path, document(sorted(cues, key=lambda cue: (cue[1].start, cue[0])))))
    return written


def _text(answer: Answer, rank: int, moment: Moment) -> str:
    label = " ".join((moment.category or answer.query).split())  # a line break would end the cue
    return f"#{rank} {label}" + ("" if answer.found else " (guess)")


def _plain(text: str) -> str:
    return text.replace("-->", "->")  # would be read as a time line


def _time(seconds: float, mark: str) -> str:
    ms = round(seconds * 1000)
    return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{mark}{ms % 1000:03d}"
