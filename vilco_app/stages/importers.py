"""Importers of other forms: ViLCo's flat clip-level files, QVHighlights JSONL, a CSV table, narrations.

`import_stage(form, path, ...)` chooses by name; `ego4d` has the official nested files.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vilco_app.stages import ego4d
from vilco_app.stages.format import heldout, load_stage
from vilco_app.stages.types import Example, Narration, Split, Stage
from vilco_app.values import VilcoError


def import_stage(form: str, path: Path | str, **options: Any) -> Stage:
    """form: ego4d_nlq, ego4d_mq, ego4d_vq, vilco (flat clip-level JSONL), qvhighlights, table. Raises VilcoError."""
    forms: dict[str, Callable[..., Stage]] = {
        "ego4d_nlq": ego4d.import_nlq, "ego4d_mq": ego4d.import_mq, "ego4d_vq": ego4d.import_vq,
        "vilco": import_flat, "qvhighlights": import_qvhighlights, "table": import_table,
    }  # fmt: skip
    if form not in forms:
        raise VilcoError("unknown-form", f"there is no importer {form!r}.", f"Choose one of {', '.join(forms)}.")
    return forms[form](path, **options)


def _split(uid: str, split: Split | None) -> Split:
    return split if split is not None else ("heldout" if heldout(uid) else "train")


def _where(folder: Path | None, name: str) -> str:
    if folder is None:
        return name
    found = sorted(p for p in folder.glob(f"{name}.*") if p.is_file())
    return str(found[0] if found else folder / f"{name}.mp4")


def _rows(path: Path | str) -> list[dict[str, Any]]:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("bad-annotation", f"{path}: {error}.", "Give a JSONL file.") from None
    out = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                out.append(json.loads(line))
            except (json.JSONDecodeError, RecursionError) as error:
                raise VilcoError("bad-annotation", f"{path}, line {number}: {error}.", "Correct this line.") from None
    if not out:
        raise VilcoError("bad-annotation", f"{path}: it is empty.", "Give a file with at least one line.")
    return out


def import_flat(
    path: Path | str, folder: Path | None = None, split: Split | None = None, name: str = "vilco nlq"
) -> Stage:
    """The reference code's clip-level JSONL: {query, query_id, duration, video_id (= clip uid), timestamps [[s, e]]}."""
    out = []
    for k, row in enumerate(_rows(path)):
        if not row.get("query"):
            continue
        uid = str(row.get("query_id", k))
        annotation, _, index = uid.rpartition("_")
        windows = tuple((float(s), float(e)) for s, e in row.get("timestamps", ()) if e > s)
        source = {
            "clip_uid": row["video_id"], "annotation_uid": annotation or uid,
            "query_idx": int(index) if index.isdigit() else 0, "template": row.get("query_template"),
        }  # fmt: skip
        source = {key: v for key, v in source.items() if v is not None}
        out.append(
            Example(
                uid,
                _where(folder, str(row["video_id"])),
                windows,
                query=row["query"],
                split=_split(uid, split),
                source=source,
            )
        )
    return Stage(name, "nlq", tuple(out))


def import_qvhighlights(
    path: Path | str, folder: Path | None = None, split: Split | None = None, name: str = "qvhighlights"
) -> Stage:
    """QVHighlights and the other sets in its form: {qid, query, duration, vid, relevant_windows}; saliency is kept."""
    out = []
    for row in _rows(path):
        uid = str(row["qid"])
        windows = tuple((float(s), float(e)) for s, e in row.get("relevant_windows", ()) if e > s)
        extra: dict[str, Any] = {k: row[k] for k in ("saliency_scores", "relevant_clip_ids") if k in row}
        source = {"qid": row["qid"], "vid": row["vid"]}
        out.append(
            Example(uid, _where(folder, str(row["vid"])), windows, query=row["query"], split=_split(uid, split),
                    source=source, extra=extra)
        )  # fmt: skip
    return Stage(name, "nlq", tuple(out))


def import_table(path: Path | str, name: str | None = None, **_: Any) -> Stage:
    """A CSV (or tab-separated) table with a header: video, query (or category), start, end, optionally id and split.

    Rows of the same video and question are one example with several windows; empty start and end: not in this video. Times
    are seconds or H:MM:SS. The table is checked as a stage file is, and its errors name the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("bad-annotation", f"{path}: {error}.", "Give a CSV file.") from None
    header = text.splitlines()[0] if text.strip() else ""
    reader = csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in header else ";" if ";" in header else ",")
    columns = [c.strip().lower() for c in reader.fieldnames or ()]
    reader.fieldnames = columns
    asked = "category" if "category" in columns else "query"
    missing = {"video", asked, "start", "end"} - set(columns)
    if missing:
        raise VilcoError(
            "bad-annotation", f"{path}: column {', '.join(sorted(missing))} is missing.",
            "Give a header line: video,query,start,end",
        )  # fmt: skip
    examples: dict[tuple[str, str], dict[str, Any]] = {}
    for number, row in enumerate(reader, 2):
        key = ((row["video"] or "").strip(), (row[asked] or "").strip())
        if not any(key):
            continue
        e = examples.setdefault(key, {"video": key[0], asked: key[1], "windows": []})
        for field in ("id", "split"):
            if (row.get(field) or "").strip():
                e[field] = row[field].strip()
        start, end = (row["start"] or "").strip(), (row["end"] or "").strip()
        if start or end:
            window = [seconds(start, f"{path}, line {number}"), seconds(end, f"{path}, line {number}")]
            if window[0] >= window[1]:
                raise VilcoError(
                    "bad-annotation", f"{path}, line {number}: {start} to {end} is no window.", "Correct start and end."
                )
            e["windows"].append(window)
    stage = load_stage(
        {"schema": 1, "name": name or Path(path).stem, "family": "mq" if asked == "category" else "nlq",
         "examples": list(examples.values())}
    )  # fmt: skip
    return replace(stage, folder=Path(path).resolve().parent)


CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:[.,]\d+)?)$")


def seconds(text: str, where: str) -> float:
    """Seconds, M:SS or H:MM:SS (with . or , decimals) -> seconds. Raises VilcoError naming `where`."""
    found = CLOCK.match(text.strip())
    if found:
        hours, minutes, rest = found.groups()
        return int(hours or 0) * 3600 + int(minutes) * 60 + float(rest.replace(",", "."))
    try:
        return float(text.replace(",", "."))
    except ValueError:
        raise VilcoError("bad-time", f"{where}: {text!r} is no time.", "Write seconds or H:MM:SS.") from None


ARROW = re.compile(r"([\d:.,]+)\s*-->\s*([\d:.,]+)")


def import_narrations(path: Path | str, video: str) -> tuple[Narration, ...]:
    """Narrations of one recording from SRT, WebVTT or CSV (columns time and text; optionally video).

    A subtitle's sentence is placed at the middle of its span. Markup and speaker tags are dropped.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("bad-annotation", f"{path}: {error}.", "Give an SRT, VTT or CSV file.") from None
    if Path(path).suffix.lower() in (".csv", ".tsv"):
        return _table_narrations(text, path, video)
    out = []
    for block in re.split(r"\n\s*\n", text.replace("\r\n", "\n")):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        for k, line in enumerate(lines):
            span = ARROW.match(line)
            if span:
                middle = (seconds(span[1], str(path)) + seconds(span[2], str(path))) / 2
                words = re.sub(r"<[^>]+>|\{[^}]+\}", "", " ".join(lines[k + 1 :])).strip()
                if words:
                    out.append(Narration(video, middle, words))
                break
    if not out:
        raise VilcoError("bad-annotation", f"{path}: there is no subtitle in it.", "Give an SRT or VTT file.")
    return tuple(out)


def _table_narrations(text: str, path: Path | str, video: str) -> tuple[Narration, ...]:
    reader = csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in text.split("\n", 1)[0] else ",")
    columns = {(c or "").strip().lower(): c for c in reader.fieldnames or ()}
    if not {"time", "text"} <= set(columns):
        raise VilcoError("bad-annotation", f"{path}: columns time and text are needed.", "Give a header: time,text")
    out = []
    for number, row in enumerate(reader, 2):
        words = (row[columns["text"]] or "").strip()
        if words:
            ref = (row.get(columns.get("video", ""), "") or video).strip()
            out.append(Narration(ref, seconds(row[columns["time"]] or "", f"{path}, line {number}"), words))
    return tuple(out)


def augment(text: str) -> list[str]:
    """Other ways to say a narration, by fixed rules, so that questions and narrations meet: Ego4D's "#C C picks up the kettle"
    -> ["picks up the kettle", "the person picks up the kettle", "when did I pick up the kettle?"].

    Rules: tags (#C, #O, #unsure) go; a leading "C" / "O" / "the man" is the person; the verb loses its third-person s.
    """
    plain = re.sub(r"#\w+", "", text).strip().rstrip(".")
    doing = re.sub(r"^(?:C|O|X|the (?:man|woman|person)|[Hh]e|[Ss]he)\b\s*", "", plain).strip() or plain
    verb, _, rest = doing.partition(" ")
    for ending, put in (
        ("ies", "y"),
        ("shes", "sh"),
        ("ches", "ch"),
        ("sses", "ss"),
        ("xes", "x"),
        ("oes", "o"),
        ("s", ""),
    ):
        if verb.endswith(ending) and not verb.endswith("ss"):
            verb = verb[: -len(ending)] + put
            break
    return [doing, f"the person {doing}", f"when did I {verb} {rest}".strip() + "?"]
