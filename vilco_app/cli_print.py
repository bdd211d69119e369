"""Answers, libraries and models as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vilco_app.values import Answer, Correction, PastQuestion, Video
from vilco_app.words import clock, length, verdict

BRIEF = 60  # letters of a question in a table: with times and a file's name it stays on one line of a wide window


def table(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """Rows in aligned columns, two spaces apart; columns in `right` are set right."""
    if not rows:
        return ""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def brief(text: str) -> str:
    """The beginning of a text, on one line: a question may be as long as a person likes, a column may not."""
    line = " ".join(text.split())
    return line if len(line) <= BRIEF else f"{line[: BRIEF - 4].rstrip()} ..."


def answer_text(answer: Answer) -> str:
    """What was found, how sure, where; guesses are called guesses."""
    lines = [verdict(answer)]
    if answer.concepts:
        lines.append("Looked for: " + ", ".join(brief(c.name) for c in answer.concepts[:6]))
    rows = []
    tracks = answer.tracks if len(answer.tracks) == len(answer.moments) else ()
    for rank, moment in enumerate(answer.moments, start=1):
        window = f"{clock(moment.start, 1)} to {clock(moment.end, 1)}"
        note = moment.category or ""
        if moment.source == "correction":
            note = f"{note} (as you said)".strip()
        if tracks and tracks[rank - 1].boxes:
            box = tracks[rank - 1].boxes[-1]
            note = f"{note} last at {clock(box.time)}, {_place(box.x1, box.y1, box.x2, box.y2)}".strip()
        rows.append((f"{rank}", window, f"{moment.score:.2f}", Path(moment.path).name, moment.video[:6], note))
    if rows:
        lines += ["", table(rows, right=(0, 2))]
    return "\n".join(lines)


def corrections_text(corrections: Sequence[Correction], paths: dict[str, str]) -> str:
    """One line per correction. paths: of the recordings, by id."""
    if not corrections:
        return "Nothing was corrected yet. Correct an answer with: vilco correct last --rank 1"
    rows = [("id", "question", "where", "video")]
    for c in corrections:
        where = ", ".join(f"{clock(a, 1)} to {clock(b, 1)}" for a, b in c.windows) or "not in there"
        rows.append((c.id, brief(c.query), where, Path(paths.get(c.video, c.video)).name))
    return table(rows)


def history_text(history: Sequence[PastQuestion]) -> str:
    """One line per question: when it was asked, what was found first."""
    if not history:
        return "Nothing was asked yet."
    rows = [("asked (UTC)", "question", "answer", "video")]
    for past in history:
        answer = past.answer
        first = answer.moments[0] if answer.moments else None
        where = "" if first is None else f"{clock(first.start, 1)} to {clock(first.end, 1)}"
        said = where if answer.found else f"not found (guess: {where})" if where else "not found"
        rows.append(
            (past.asked[:19].replace("T", " "), brief(answer.query), said, Path(first.path).name if first else "")
        )
    return table(rows)


def _place(x1: float, y1: float, x2: float, y2: float) -> str:
    """Where in the picture a box is, in words."""
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    across = "left" if x < 1 / 3 else "right" if x > 2 / 3 else "middle"
    down = "upper" if y < 1 / 3 else "lower" if y > 2 / 3 else ""
    return " ".join(w for w in (down, across) if w)


def videos_text(videos: list[Video]) -> str:
    """One line per recording."""
    if not videos:
        return "The library is empty. Add footage with: vilco add PATH"
    rows = [("id", "length", "state", "name")]
    for video in videos:
        rows.append((video.id, length(video.duration), state(video), video.path))
    return table(rows, right=(1,))


def state(video: Video) -> str:
    """How far a recording is indexed, in a word or two."""
    if video.state in ("preview", "indexing", "waiting") and video.duration > 0:
        return f"{video.state}, {min(1.0, video.indexed_seconds / video.duration):.0%}"
    return video.state


def video_text(video: Video) -> str:
    """Everything known of one recording."""
    rows = [
        ("id", video.id), ("path", video.path), ("length", f"{length(video.duration)} ({video.duration:.2f} s)"),
        ("size", f"{video.width} x {video.height}"), ("recorded", video.recorded_at or "unknown"),
        ("state", state(video)), ("indexed", length(video.indexed_seconds)), ("profile", video.profile),
    ]  # fmt: skip
    rows += [("file", part) for part in video.parts if len(video.parts) > 1]
    if video.note:
        rows.append(("note", video.note))
    return table(rows)


def models_text(data: dict[str, Any]) -> str:
    """The snapshots, the active one marked."""
    rows = [("", "id", "parent", "strategy", "created", "stages")]
    notes = []
    for snap in data["snapshots"]:
        mark = "*" if snap["id"] == data["active"] else ""
        stages = ", ".join(str(s) for s in snap["stages"]) or "none: zero-shot answers only"
        made = str(snap["created"])[:19].replace("T", " ")
        rows.append((mark, snap["id"], snap["parent"] or "", snap["strategy"] or "", made, stages))
        if snap.get("marked"):
            notes.append(f"{snap['id']}: {snap['marked']}")
    return "\n".join([table(rows), "* answers come from this one; change it with: vilco use ID", *notes])


FAMILIES = (("nlq", "questions"), ("mq", "moments"), ("vq", "pictures"))


def learnt_text(data: dict[str, Any]) -> str:
    """What learning one stage did, and how much the network counts in answers from now on, with the reason."""
    spent = f"{data['seconds']:.0f} s, {data['train_seconds']:.0f} of them training"
    lines = [f"Learnt '{data['stage']}' with {data['strategy']}: snapshot {data['snapshot']} ({spent})."]
    for family, plural in FAMILIES:
        reason = data["fusion"].get("reasons", {}).get(family)
        if reason:
            lines.append(f"  {plural}: network counts {data['fusion'][family]:.0%} ({reason})")
        boxes = data["fusion"].get("reasons", {}).get(f"{family} boxes")
        if boxes:
            lines.append(f"  {plural}, where in the frame: network counts {data['fusion']['vq_boxes']:.0%} ({boxes})")
        doubt = data["fusion"].get("reasons", {}).get(f"{family} absent")
        if doubt:
            used = "may lower" if family in data["fusion"].get("doubts", {}) else "do not lower"
            lines.append(f"  {plural}: taught absences {used} the confidence ({doubt})")
        taught = data["fusion"].get("reasons", {}).get(f"{family} taught")
        if taught:
            choice = data["fusion"].get("taught", {}).get(family)
            used = "is used for" if choice else "does not change"
            which = "only those in nearly the same words" if choice and choice[1] >= 1 else "other questions"
            lines.append(f"  {plural}: what was taught {used} {which} ({taught})")
    return "\n".join(lines)


def matrix_text(data: dict[str, Any]) -> str:
    """The score matrix: a row per stage learnt, a column per stage checked; stages by number, named in the rows."""
    if not data["stages"]:
        return ""
    rows = [("", *(str(k + 1) for k in range(len(data["stages"]))))]
    for k, values in enumerate(data["values"]):
        name = f"after {k + 1}. {data['stages'][k]}"
        rows.append((name, *("" if j > k else "-" if v is None else f"{v:.2f}" for j, v in enumerate(values))))
    head = f"{data['metric']} on each stage's held-out examples (column) after learning (row); -: none held out"
    return f"{head}\n{table(rows, right=tuple(range(1, len(rows[0]))))}"


def bench_text(rows: list[dict[str, Any]]) -> str:
    """Bench rows with the target beside each value."""
    lines = [("what", "value", "unit", "target", "")]
    for row in rows:
        lines.append((row["name"], _number(row["value"]), row["unit"] or "", _target(row), _met(row)))
    return table(lines, right=(1,))


def _number(value: Any) -> str:
    return "not measured" if value is None else f"{value:,.3g}" if isinstance(value, float) else str(value)


def _target(row: dict[str, Any]) -> str:
    if row.get("target") is None:
        return ""
    return f"{'at most' if row.get('limit') == 'max' else 'at least'} {row['target']:g}"


def _met(row: dict[str, Any]) -> str:
    if row.get("target") is None or row["value"] is None:
        return ""
    good = row["value"] <= row["target"] if row.get("limit") == "max" else row["value"] >= row["target"]
    return "ok" if good else "MISSED"
