"""`vilco bench answers`: labelled clips asked through the product, beside baselines asked through the same features.

A cases folder holds NAME.mp4 with NAME.json (text_queries, moments, visual_queries, absent_queries; see docs/answers.md).
A text or moment hit is a window with temporal IoU >= t with any labelled (or also plausible) window.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.benchmarks.answers_baselines import BASELINES, Baseline
from vilco_app.benchmarks.answers_hidden import Hay, hidden
from vilco_app.benchmarks.answers_scores import LEVELS, Scores, column, rows_of, sides
from vilco_app.evaluation.retrieval import auroc_bootstrap, hit_at, paired_bootstrap
from vilco_app.evaluation.visual import box_iou, nearest_box
from vilco_app.values import Answer, VilcoError

Progress = Callable[[int, int, str], None]
SLACK = 0.5  # seconds: label edges are exact to half a second
NEAR = 1.0  # seconds between a target's time and the box held against it
BOX_IOU = 0.25
STACKS = {"haystack": "vilco, hidden", "haystack_given": "vilco, hidden (given)"}


def answers(
    cases: str | Path,
    names: Sequence[str] | None = None,
    home: str | Path | None = None,
    haystack_hours: float | None = None,
    progress: Progress | None = None,
    profile: str = "auto",
    baselines: bool = True,
    distractors: str | Path | None = None,
) -> dict[str, Any]:
    """Ask every labelled question and score it.

    names: lists of the folder (all NAME.json with a NAME.mp4 by default). home: a library to keep (a temporary one by
    default). haystack_hours: also hide each list in so many hours of footage made from packaged pictures, and ask all of
    it together. distractors: a folder of videos to hide each list in as well (see `answers_distractors`); 2 h by default.
    Returns {"schema", "lists", "baselines", "gain", "auroc"} and, where asked for, {"haystack", "haystack_given"} (see
    `format_table`). Raises VilcoError when a list is missing or malformed, or when every distractor shares a clip with it.
    """
    import tempfile

    folder = Path(cases)
    chosen = list(names or sorted(p.stem for p in folder.glob("*.json") if p.with_suffix(".mp4").is_file()))
    lists = {name: _read(folder, name) for name in chosen}
    if not lists:
        raise VilcoError("no-cases", f"{folder}: no NAME.json with a NAME.mp4.", "Name a folder of labelled clips.")
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as scratch:
        where = Path(home) if home else Path(scratch) / "home"
        hay = Hay(folder, Path(scratch), haystack_hours, Path(distractors) if distractors else None)
        return _run(folder, lists, where, hay, progress, profile, baselines)


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        for key in ("text_queries", "moments", "visual_queries", "absent_queries"):
            data.setdefault(key, {} if key == "moments" else [])
    except (OSError, ValueError) as error:
        raise VilcoError("bad-cases", f"{path}: {error}.", "Give NAME of a NAME.json beside a NAME.mp4.") from None
    return data


def _run(
    folder: Path,
    lists: dict[str, dict[str, Any]],
    home: Path,
    hay: Hay,
    progress: Progress | None,
    profile: str,
    baselines: bool,
) -> dict[str, Any]:
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(home, profile=profile) if profile != "auto" else EpisodicMemory(home)
    stacks = hay.stacks()
    steps = len(lists) * (1 + len(stacks))
    ours, others = Scores(), {name: Scores() for name in BASELINES} if baselines else {}
    for done, (name, data) in enumerate(lists.items()):
        video = str(folder / f"{name}.mp4")
        memory.add(video)
        if progress:
            progress(done, steps, f"asking {name}")
        _ask(memory, video, name, data, ours)
        for label, scores in others.items():
            _baseline(BASELINES[label](memory, memory.resolve(video)), name, data, scores)
    result: dict[str, Any] = {
        "schema": 1,
        "profile": memory.profile.id,
        "lists": rows_of(ours, list(lists)),
        "baselines": [dict(row, baseline=label) for label, s in others.items() for row in rows_of(s, list(lists))],
        "gain": [_gain(label, ours, s) for label, s in others.items()],
        "auroc": auroc_bootstrap(*sides(ours)).to_json(),
    }
    for done, (key, make) in enumerate(stacks.items()):
        if progress:
            progress(len(lists) * (1 + done), steps, "adding distractors")
        result[key] = hidden(memory, folder, lists, make, ours, _ask, progress)
    return result


def _windows(answer: Answer, video: str) -> list[tuple[float, float]]:
    """The windows of an answer; those in other recordings (a haystack) stay in the ranking but hit nothing."""
    return [(m.start, m.end) if m.video == video else (-2.0, -1.0) for m in answer.moments[:5]]


def _ask(
    memory: Any, video: str, name: str, data: dict[str, Any], scores: Scores, whole: list[str] | None = None
) -> None:
    """Every question of one list through the Python API. whole: ids searched instead of the list's own video alone."""
    where: Any = whole or video
    own = memory.resolve(video).id
    for table in (scores.text, scores.moment, scores.visual, scores.again):
        table[name] = []
    scores.present[name], scores.absent[name] = [], []
    for q in data["text_queries"]:
        answer = memory.ask(q["text"], video=where, top=5)
        truth = q["windows"] + q.get("also_plausible", [])
        scores.text[name].append([hit_at(_windows(answer, own), truth, k, t) for k, t in LEVELS])
        scores.present[name].append((answer.to_confidence(), answer.found))
    for q in data["absent_queries"]:
        answer = memory.ask(q, video=where, top=5)
        scores.absent[name].append((answer.to_confidence(), answer.found))
    for label, truth in data["moments"].items():
        answer = memory.moments(label.replace("_", " "), video=where, top=5)
        scores.moment[name].append([hit_at(_windows(answer, own), truth, k, t) for k, t in LEVELS])
    for q in data["visual_queries"]:
        answer = memory.find(_crop(video, q["query"]), video=where, top=5)
        tracks = [t.to_json()["boxes"] if t.moment.video == own else [] for t in answer.tracks[:5]]
        right, again = _visual(tracks, q)
        scores.visual[name].append(right)
        if again is not None:
            scores.again[name].append(again)


def _crop(video: str, query: dict[str, Any]) -> np.ndarray:
    """The query's picture, cut from its frame; its time is not passed on."""
    from vilco_app.video import frames_at, open_recording

    frame = frames_at(open_recording([Path(video)]), [query["time"] + 1e-3]).frames[0]
    height, width = frame.shape[:2]
    x1, y1, x2, y2 = query["box"]
    left, top = int(x1 * width), int(y1 * height)
    return np.ascontiguousarray(frame[top : max(top + 2, int(y2 * height)), left : max(left + 2, int(x2 * width))])


def _visual(tracks: Sequence[Sequence[Sequence[float]]], q: dict[str, Any]) -> tuple[list[bool], list[bool] | None]:
    """-> ([right occurrence first, in the first five, box of the first right], [other occurrence first, in five] or None).

    The second counts only where the thing occurs again apart from the query's own occurrence.
    """

    def touches(track: Sequence[Sequence[float]], spans: Sequence[Sequence[float]]) -> bool:
        return any(a - SLACK <= b[0] <= e + SLACK for b in track for a, e in spans)

    inside = [touches(t, q["occurrences"]) for t in tracks]
    box = False
    for target in q["targets"] if tracks else []:
        near = nearest_box(tracks[0], target["time"])
        if near is not None and abs(near[0] - target["time"]) <= NEAR and box_iou(near[1:], target["box"]) >= BOX_IOU:
            box = True
    own = [o for o in q["occurrences"] if o[0] - SLACK <= q["query"]["time"] <= o[1] + SLACK]
    others = [o for o in q["occurrences"] if o not in own]
    again = [touches(t, others) for t in tracks if not (touches(t, own) and not touches(t, others))]
    return [bool(inside[:1] and inside[0]), any(inside), box], [
        bool(again[:1] and again[0]),
        any(again),
    ] if others else None


def _baseline(asker: Baseline, name: str, data: dict[str, Any], scores: Scores) -> None:
    scores.text[name] = [
        [hit_at(asker.windows(q["text"]), q["windows"] + q.get("also_plausible", []), k, t) for k, t in LEVELS]
        for q in data["text_queries"]
    ]
    scores.moment[name] = [
        [hit_at(asker.windows(label.replace("_", " ")), truth, k, t) for k, t in LEVELS]
        for label, truth in data["moments"].items()
    ]
    scores.present[name] = [(asker.score(q["text"]), False) for q in data["text_queries"]]
    scores.absent[name] = [(asker.score(q), False) for q in data["absent_queries"]]


def _gain(label: str, ours: Scores, theirs: Scores) -> dict[str, Any]:
    """Ours minus a baseline over all text questions, with a paired bootstrap interval [mean, low, high]."""
    metrics = {
        f"R@{k}@{t}": paired_bootstrap(column(ours.text, i), column(theirs.text, i)).to_json()
        for i, (k, t) in enumerate(LEVELS)
    }
    return {"baseline": label, "family": "text", "metrics": metrics}


def format_table(result: dict[str, Any]) -> str:
    """The result of `answers` as a table a person reads."""
    lines = [f"{'list':<14}{'asker':<23}{'family':<9}{'n':>4}  metrics"]
    rows = [dict(r, baseline="vilco") for r in result["lists"]] + result["baselines"]
    for key, label in STACKS.items():
        if key in result:
            rows += [dict(r, baseline=label) for r in result[key]["lists"]]
    for row in rows:
        metrics = "  ".join(f"{k} {v:.3g}" for k, v in row["metrics"].items())
        lines.append(f"{row['name']:<14}{row['baseline']:<23}{row['family']:<9}{row['n']:>4}  {metrics}")
    for gain in result["gain"]:
        metrics = "  ".join(f"{k} {m:+.3f} [{a:+.3f}, {b:+.3f}]" for k, (m, a, b) in gain["metrics"].items())
        lines.append(f"gain over {gain['baseline']} (text, all lists, paired bootstrap 95 %): {metrics}")
    mean, low, high = result["auroc"]
    lines.append(f"AUROC of confidence, present against absent, all lists: {mean:.3f} [{low:.3f}, {high:.3f}]")
    for key in STACKS:
        if key in result:
            hay = result[key]
            lost = "  ".join(f"{k} {m:+.3f} [{a:+.3f}, {b:+.3f}]" for k, (m, a, b) in hay["lost"].items())
            lines.append(f"R@5 lost in {hay['hours']:g} h of {hay['footage']}: {lost}")
    return "\n".join(lines)
