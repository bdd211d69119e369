"""EDL (CMX3600): one cut per moment, best first, for an editing program.

CMX3600 counts frames of one whole-number timebase. Ours is the rate of the first recording, rounded, non-drop; it is
stated in a comment, and so is the true rate of every source. Times come from PTS seconds and are only here put on a grid.
"""

from __future__ import annotations

import re
from pathlib import Path

from vilco_app.exports.files import write_text
from vilco_app.exports.footage import Footage
from vilco_app.values import Answer


def write_edl(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """Source times count from the file's first frame; a moment over two chapter files becomes two events."""
    spans = [(rank, m, s) for rank, m in enumerate(answer.moments, start=1) for s in footage.spans(m)]
    rate = spans[0][2].rate if spans else 30.0
    base = max(1, round(rate))
    lines = [
        f"TITLE: {_line(answer.query)[:70]}",
        "FCM: NON-DROP FRAME",
        f"* TIMEBASE: {base} FRAMES PER TIMECODE SECOND; FIRST SOURCE RUNS AT {rate:.3f} FRAMES PER SECOND",
        "",
    ]
    record = 0
    reels: dict[Path, str] = {}
    for event, (rank, moment, span) in enumerate(spans, start=1):
        first = round(span.start * span.rate)
        length = max(1, round(span.end * span.rate) - first)
        if span.path not in reels:
            reels[span.path] = _reel(span.path, len(reels) + 1)
        lines.append(
            f"{event:03d}  {reels[span.path]:<8s} V     C        {_timecode(first, base)} {_timecode(first + length, base)} "
            f"{_timecode(record, base)} {_timecode(record + length, base)}"
        )
        lines.append(f"* FROM CLIP NAME: {_line(span.path.name)}")
        lines.append(f"* COMMENT: RANK {rank}, SCORE {moment.score:.3f}, {_line(moment.category or answer.query)[:60]}")
        if abs(span.rate - rate) > 1e-3:
            lines.append(f"* SOURCE RATE: {span.rate:.3f} FRAMES PER SECOND")
        record += length
    return [write_text(out, "\n".join(lines) + "\n")]


def _timecode(count: int, base: int) -> str:
    seconds, frame = divmod(count, base)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{frame:02d}"


def _reel(path: Path, number: int) -> str:
    """At most 8 letters and digits, as CMX3600 wants; the number keeps reels of like-named files apart."""
    stem = re.sub(r"[^A-Z0-9]", "", path.stem.upper())[:5] or "REEL"
    return f"{stem}{number:03d}"[:8]


def _line(text: str) -> str:
    return " ".join(text.split())
