"""CSV (RFC 4180): one row per moment, times in seconds and as H:MM:SS."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from vilco_app.exports.files import write_text
from vilco_app.exports.footage import Footage
from vilco_app.values import Answer
from vilco_app.words import clock

COLUMNS = (
    "rank", "query", "kind", "category", "video", "path", "start", "end", "start_time", "end_time", "score", "source",
    "found", "confidence",
)  # fmt: skip


def write_csv(answer: Answer, out: Path, footage: Footage) -> list[Path]:
    """Columns as in COLUMNS; an answer without moments gives the heading alone."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\r\n")
    rows.writerow(COLUMNS)
    for rank, moment in enumerate(answer.moments, start=1):
        rows.writerow((
            rank, answer.query, answer.kind, moment.category or "", moment.video, moment.path, f"{moment.start:.3f}",
            f"{moment.end:.3f}", clock(moment.start, 3), clock(moment.end, 3), f"{moment.score:.4f}", moment.source,
            "yes" if answer.found else "no", f"{answer.to_confidence():.4f}",
        ))  # fmt: skip
    return [write_text(out, text.getvalue())]
