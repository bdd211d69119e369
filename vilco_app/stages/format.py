"""Reading, checking and writing the stage file (JSON, `"schema": 1`)."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vilco_app.stages.types import FAMILIES, Example, Family, Narration, QueryFrame, Split, Stage
from vilco_app.values import SCHEMA, Box, TimedBox, VilcoError

HELDOUT_SHARE = 0.2  # one example in five is kept for checking: enough to see forgetting, little lost to learning
SPLIT_SEED = 0
ASKS: dict[str, str] = {
    "nlq": "query",
    "mq": "category",
}  # the field each family is asked with (vq: image or query_frame)
KNOWN = {
    "id", "video", "query", "category", "image", "query_frame", "windows", "track", "before", "split", "source",
}  # fmt: skip
STAGE_KNOWN = {"schema", "name", "family", "examples", "narrations"}


def load_stage(
    source: str | Path | dict[str, Any] | Stage, durations: Callable[[str], float | None] | None = None
) -> Stage:
    """Read and check a stage from a file, a JSON object or a `Stage`.

    durations: gives a video's length in seconds (None: unknown); with it, windows outside the video are refused.
    Raises VilcoError "bad-stage" naming the example and the field. Unknown fields are kept and warned of.
    """
    if isinstance(source, Stage):
        return check_times(source, durations)
    folder = Path()
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        folder = path.parent.resolve()
        data = _read(path)
    else:
        data = source
    if not isinstance(data, dict):
        raise _bad("the file holds no object", 'Write {"schema": 1, "name": ..., "family": ..., "examples": [...]}.')
    if data.get("schema") != SCHEMA:
        raise _bad(f'"schema" is {data.get("schema")!r}, not {SCHEMA}', f'Put "schema": {SCHEMA} in the stage file.')
    family = data.get("family")
    if family not in FAMILIES:
        raise _bad(f'"family" is {family!r}', 'Use "nlq", "mq" or "vq".')
    rows = data.get("examples")
    if not isinstance(rows, list) or not rows:
        raise _bad('"examples" is empty', "Give at least one example: a video, what is asked, and its windows.")
    warnings = [f'unknown field "{k}" of the stage is kept' for k in data if k not in STAGE_KNOWN]
    examples = [_example(row, k, family, warnings) for k, row in enumerate(rows)]
    _unique(examples, warnings)
    examples = _split(examples, rows)
    narrations = tuple(_narration(n, k) for k, n in enumerate(data.get("narrations") or ()))
    name = data.get("name")
    stage = Stage(
        str(name) if name else (Path(source).stem if isinstance(source, str | Path) else "stage"), family,
        tuple(examples), narrations, folder, tuple(warnings), {k: v for k, v in data.items() if k not in STAGE_KNOWN},
    )  # fmt: skip
    return check_times(stage, durations)


def check_times(stage: Stage, durations: Callable[[str], float | None] | None) -> Stage:
    """The stage again, after checking every window, box and query frame against the length of its video (seconds).

    An end at most 0.25 s past the video's end is pulled back to it (rounding of annotations), with a warning.
    """
    if durations is None:
        return stage
    slack, warnings, examples = 0.25, list(stage.warnings), []
    for e in stage.examples:
        if e.query_frame is not None:
            asked, of = e.query_frame, durations(e.query_frame.video)
            if of is not None and asked.time > of + slack:
                raise _bad(
                    f'example {e.id}: "query_frame" at {asked.time:g} s is outside "{asked.video}", which is {of:g} s long',
                    "Correct its time, in seconds from the first frame of the video.",
                )
        length = durations(e.video)
        if length is None:
            examples.append(e)
            continue
        late = next((b.time for b in e.track if b.time > length + slack), None)
        if late is not None:
            raise _bad(
                f'example {e.id}: "track" at {late:g} s is outside "{e.video}", which is {length:g} s long',
                "Correct the track; times are seconds from the first frame of the video.",
            )
        windows = []
        for start, end in e.windows:
            if end > length + slack or start >= length:
                raise _bad(
                    f'example {e.id}: window [{start:g}, {end:g}] is outside "{e.video}", which is {length:g} s long',
                    "Correct the window; times are seconds from the first frame of the video.",
                )
            if end > length:
                warnings.append(f"example {e.id}: window end {end:g} s pulled back to the video's end, {length:g} s")
            windows.append((start, min(end, length)))
        examples.append(replace(e, windows=tuple(windows)))
    return replace(stage, examples=tuple(examples), warnings=tuple(warnings))


def heldout(example_id: str, seed: int = SPLIT_SEED, share: float = HELDOUT_SHARE) -> bool:
    """Whether an example without `split` is held out: the first 8 bytes of blake2b("seed:id") below `share` of 2^64."""
    digest = hashlib.blake2b(f"{seed}:{example_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def save_stage(stage: Stage, path: Path) -> None:
    """Write the stage file atomically (temporary name, then replace)."""
    write_json(path, stage.to_json())


def write_json(path: Path, data: Any) -> None:
    """Write JSON under a temporary name beside `path`, then replace. Raises VilcoError "cannot-write"."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise VilcoError(
            "cannot-write", f"{path}: {error.strerror or error}.", "Choose a folder that can be written."
        ) from None


def _bad(what: str, remedy: str) -> VilcoError:
    return VilcoError("bad-stage", f"stage file: {what}.", remedy)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    """Why a file was not read, in words."""
    return "it is not a text file" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("no-stage", f"{path}: {_reason(error)}.", "Give the path of a stage file (JSON).") from None
    if not text.strip():
        raise _bad(f"{path} is empty", "Write at least one example into it, or import one with the importers.")
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _bad(f"{path} is not JSON: {error}", "Correct the file; any JSON checker shows the place.") from None


def _number(value: Any, where: str, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad(f'{where}: "{field}" holds {value!r}, not a number of seconds', "Give plain numbers.")
    return float(value)


def _box(values: Any, where: str, field: str) -> Box:
    if not isinstance(values, list | tuple) or len(values) != 4:
        raise _bad(f'{where}: "{field}" is {values!r}', "Give [x1, y1, x2, y2] in fractions of the frame.")
    try:
        return Box(*(_number(v, where, field) for v in values))
    except VilcoError as error:
        raise _bad(f'{where}: "{field}": {error.message.rstrip(".")}', error.remedy) from None


def _windows(values: Any, where: str) -> tuple[tuple[float, float], ...]:
    if not isinstance(values, list | tuple):
        raise _bad(f'{where}: "windows" is {values!r}', "Give a list of [start, end]; [] means: not in this video.")
    out = []
    for w in values:
        if not isinstance(w, list | tuple) or len(w) != 2:
            raise _bad(f'{where}: "windows" holds {w!r}', "Give every window as [start, end] in seconds.")
        start, end = (_number(v, where, "windows") for v in w)
        if start >= end or start < 0:
            raise _bad(
                f'{where}: "windows": [{start:g}, {end:g}] is no window (0 <= start < end)',
                "Correct start and end; [] means: not in this video.",
            )
        out.append((start, end))
    return tuple(sorted(out))


def _track(values: Any, where: str) -> tuple[TimedBox, ...]:
    if not isinstance(values, list | tuple):
        raise _bad(f'{where}: "track" is {values!r}', "Give a list of [time, x1, y1, x2, y2].")
    out = []
    for row in values:
        if not isinstance(row, list | tuple) or len(row) != 5:
            raise _bad(f'{where}: "track" holds {row!r}', "Give every box as [time, x1, y1, x2, y2].")
        b = _box(list(row[1:]), where, "track")
        out.append(TimedBox(_number(row[0], where, "track"), b.x1, b.y1, b.x2, b.y2))
    return tuple(sorted(out, key=lambda b: b.time))


def track_window(track: tuple[TimedBox, ...], least: float = 0.2) -> tuple[tuple[float, float], ...]:
    """The window a track covers; a single box stands for `least` seconds (one frame of the 5 fps VQ clips)."""
    if not track:
        return ()
    start, end = track[0].time, track[-1].time
    return ((start, max(end, start + least)),)


def _example(row: Any, index: int, family: Family, warnings: list[str]) -> Example:
    if not isinstance(row, dict):
        raise _bad(f"example {index}: {row!r} is no object", "Write each example as {...}.")
    named = row.get("id")
    where = f"example {named if named is not None else index}"
    video = row.get("video")
    if not isinstance(video, str) or not video:
        raise _bad(f'{where}: "video" is {video!r}', "Give an id or a path relative to the stage file.")
    for field in KNOWN & {"query", "category", "image"}:
        if field in row and (not isinstance(row[field], str) or not row[field].strip()):
            raise _bad(f'{where}: "{field}" is {row[field]!r}', "Give words, or leave the example out.")
    frame = None
    if row.get("query_frame") is not None:
        q = row["query_frame"]
        if not isinstance(q, dict) or not {"video", "time", "box"} <= set(q):
            raise _bad(f'{where}: "query_frame" is {q!r}', 'Give {"video", "time", "box"}.')
        frame = QueryFrame(
            str(q["video"]), _number(q["time"], where, "query_frame"), _box(q["box"], where, "query_frame")
        )
    if family == "vq":
        if frame is None and "image" not in row:
            raise _bad(f'{where}: neither "image" nor "query_frame"', "A vq example is asked with one of them.")
    elif ASKS[family] not in row:
        raise _bad(f'{where}: "{ASKS[family]}" is missing', f'An {family} example is asked with "{ASKS[family]}".')
    if "windows" not in row and "track" not in row:
        raise _bad(f'{where}: "windows" is missing', "Give [[start, end], ...]; [] means: not in this video.")
    track = _track(row.get("track") or [], where)
    windows = _windows(row["windows"], where) if row.get("windows") is not None else track_window(track)
    split = row.get("split", "train")
    if split not in ("train", "heldout"):
        raise _bad(f'{where}: "split" is {split!r}', 'Use "train" or "heldout", or leave it out.')
    extra = {k: v for k, v in row.items() if k not in KNOWN}
    warnings.extend(f'{where}: unknown field "{k}" is kept' for k in extra)
    before = row.get("before")
    name = str(named) if named is not None else _content_id(row)
    return Example(
        name, video, windows, row.get("query"), row.get("category"), row.get("image"), frame, track,
        None if before is None else _number(before, where, "before"), split, dict(row.get("source") or {}), extra,
    )  # fmt: skip


def _content_id(row: dict[str, Any]) -> str:
    """An id for an example without one: 12 hex digits of what it says, the same every time the file is read."""
    body = json.dumps({k: row[k] for k in sorted(KNOWN & set(row)) if k != "split"}, sort_keys=True)
    return hashlib.blake2b(body.encode(), digest_size=6).hexdigest()


def _unique(examples: list[Example], warnings: list[str]) -> None:
    seen: dict[str, Example] = {}
    asked: dict[tuple[str, str], Example] = {}
    for e in examples:
        if e.id in seen:
            raise _bad(f"example {e.id}: this id comes twice", "Give every example its own id.")
        seen[e.id] = e
        if not e.text:
            continue
        key = (e.video, " ".join(e.text.lower().split()))
        first = asked.setdefault(key, e)
        if first is e or first.windows == e.windows:
            continue
        if not first.windows or not e.windows:
            raise _bad(
                f'example {e.id}: "{e.text}" is asked of "{e.video}" twice, once answered with windows and once with '
                f'"not in this video" (example {first.id})', "Keep the answer that is right.",
            )  # fmt: skip
        warnings.append(f"example {e.id}: same question as example {first.id} with other windows; all of them count")


def _split(examples: list[Example], rows: list[dict[str, Any]]) -> list[Example]:
    out = []
    for e, row in zip(examples, rows, strict=True):
        split: Split = e.split if "split" in row else ("heldout" if heldout(e.id) else "train")
        out.append(replace(e, split=split))
    # a stage whose examples all fall to the held-out part by chance would teach nothing: then all of them train
    if all(e.split == "heldout" for e in out) and not any("split" in row for row in rows):
        return [replace(e, split="train") for e in out]
    return out


def _narration(row: Any, index: int) -> Narration:
    where = f"narration {index}"
    if not isinstance(row, dict) or not isinstance(row.get("text"), str) or not isinstance(row.get("video"), str):
        raise _bad(f"{where} is {row!r}", 'Write {"video": ..., "time": seconds, "text": ...}.')
    return Narration(row["video"], _number(row.get("time"), where, "time"), row["text"])
