"""`vilco bench learn --only pictures --cases DIR`: do taught pictures help to find other things in other videos?

A cases folder is that of `bench answers`: NAME.mp4 with NAME.json. For every ordered pair of lists that share no clip, the
visual queries of the first are learnt on top of nothing, then those of the second are asked: zero-shot, at the weight the
learning chose, and at forced weights, which show what the head holds.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.benchmarks.answers import _read, _visual
from vilco_app.benchmarks.rows import row
from vilco_app.benchmarks.transfer import apart
from vilco_app.evaluation.retrieval import paired_bootstrap
from vilco_app.values import Box, VilcoError

LEAST = 5  # visual queries of a list: fewer choose no weight
FORCED = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))  # weights in frames and in boxes, tried against the chosen ones' will
CROPS = (0.0, -0.04, 0.04)  # of the box's sides, cut off or added: a pixel more or less can turn a borderline answer
MEASURES = (
    ("right occurrence first", "%"),
    ("right box, IoU >= .25", "%"),
    ("mean box IoU", "%"),
    ("temporal IoU with the last appearance", "%"),
)


@dataclass
class Asked:
    """Per asked picture, in the same order for each asker: the MEASURES; what was decided per training."""

    before: list[tuple[float, ...]] = field(default_factory=list)
    after: list[tuple[float, ...]] = field(default_factory=list)
    forced: dict[tuple[float, float], list[tuple[float, ...]]] = field(default_factory=lambda: {w: [] for w in FORCED})
    own: list[tuple[float, ...]] = field(default_factory=list)  # the taught pictures themselves, before
    own_forced: list[tuple[float, ...]] = field(default_factory=list)  # and at the first forced weight
    weights: list[tuple[float, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # processor seconds of each learning
    checks: list[float] = field(default_factory=list)


def pictures(cases: Path | None, progress: Any = None, home: Path | None = None) -> list[dict[str, Any]]:
    """Rows of the contract. Raises VilcoError without two usable lists."""
    from vilco_app.memory import EpisodicMemory

    if cases is None:
        raise VilcoError(
            "no-cases", "pictures need labelled footage.", "Name a folder of NAME.mp4 + NAME.json: --cases DIR"
        )
    folder = Path(cases)
    found = {p.stem: _read(folder, p.stem) for p in sorted(folder.glob("*.json")) if p.with_suffix(".mp4").is_file()}
    lists = {name: data for name, data in found.items() if len(data["visual_queries"]) >= LEAST}
    todo = [(a, b) for a in lists for b in lists if apart(lists[a], lists[b])]
    if not todo:
        raise VilcoError("no-cases", f"{cases}: no two lists without a common clip.", "Add a list of other footage.")
    asked = Asked()
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as scratch:
        memory = EpisodicMemory(home or Path(scratch) / "home")
        for name in sorted({n for pair in todo for n in pair}):
            memory.add(folder / f"{name}.mp4")
        for k, (a, b) in enumerate(todo):
            if progress is not None:
                progress(k, len(todo), f"taught {a}, asked {b}")
            _one(memory, Path(scratch) / f"models{k}", folder, (a, lists[a]), (b, lists[b]), asked)
    return _rows(asked, len(todo))


def stage_of(name: str, video: str, data: dict[str, Any]) -> dict[str, Any]:
    """The visual queries of a list as a stage object; all of them train."""
    rows = [
        {
            "id": f"v{i}", "video": video, "windows": q["occurrences"], "split": "train",
            "query_frame": {"video": video, "time": q["query"]["time"] + 1e-3, "box": q["query"]["box"]},
            "track": [[t["time"], *t["box"]] for t in q["targets"]],
        }
        for i, q in enumerate(data["visual_queries"])
    ]  # fmt: skip
    return {"schema": 1, "name": name, "family": "vq", "examples": rows}


def _one(memory: Any, models: Path, folder: Path, teach: tuple[str, Any], ask: tuple[str, Any], asked: Asked) -> None:
    import time

    from vilco_app.learning.picture_judge import HeadJudge
    from vilco_app.learning.restoring import load_viewed
    from vilco_app.learning.run import learn_stage
    from vilco_app.learning.snapshots import Snapshots

    video, other = (memory.resolve(folder / f"{name}.mp4").id for name in (teach[0], ask[0]))
    spent = time.process_time()
    report = learn_stage(models, memory.library, memory.profile, stage_of(teach[0], video, teach[1]))
    asked.seconds.append(time.process_time() - spent)
    asked.checks.append(report.evaluate_seconds)
    chosen = (report.fusion.vq, report.fusion.vq_boxes)
    asked.weights.append(chosen)
    judge = HeadJudge(load_viewed(Snapshots(models), report.snapshot, memory.profile))
    weights = ((0.0, 0.0), chosen, *FORCED)
    for results in _ask(memory, stage_of(ask[0], other, ask[1]), ask[1], judge, weights):
        asked.before.append(results[0])
        asked.after.append(results[1])
        for w, result in zip(FORCED, results[2:], strict=True):
            asked.forced[w].append(result)
    for before, forced in _ask(
        memory, stage_of(teach[0], video, teach[1]), teach[1], judge, ((0.0, 0.0), FORCED[0]), CROPS[:1]
    ):
        asked.own.append(before)
        asked.own_forced.append(forced)


def _ask(
    memory: Any,
    stage: dict[str, Any],
    data: dict[str, Any],
    judge: Any,
    weights: tuple[tuple[float, float], ...],
    crops: tuple[float, ...] = CROPS,
) -> list[list[tuple[float, ...]]]:
    """MEASURES of every visual query of a list at each weight, through the finder answers come from; means over the crops."""
    from vilco_app.learning.pictures import finder_of, looked, picture_of
    from vilco_app.learning.resolving import resolve_stage

    resolved = resolve_stage(stage, memory.library, memory.profile)
    finder, out = finder_of(memory.library, memory.profile), []
    for e, q in zip(resolved.stage.examples, data["visual_queries"], strict=True):
        tries = []
        for grown in crops:
            assert e.query_frame is not None
            asked = replace(e, query_frame=replace(e.query_frame, box=_grown(e.query_frame.box, grown)))
            sight = looked(e, resolved.video(e).id, picture_of(asked, resolved, memory.library), finder)
            tries.append([_measured(finder.found(sight, 5, judge.at(*w)), e, q) for w in weights])
        out.append([tuple(float(v) for v in np.mean([t[k] for t in tries], axis=0)) for k in range(len(weights))])
    return out


def _measured(found: Any, e: Any, q: dict[str, Any]) -> tuple[float, ...]:
    from vilco_app.learning.picture_probes import boxes_right, time_right

    right, _ = _visual([[b.to_json() for b in t.boxes] for t in found.tracks], q)
    return float(right[0]), float(right[2]), boxes_right(found, e), time_right(found, e)


def _grown(box: Box, share: float) -> Box:
    wide, high = share * (box.x2 - box.x1), share * (box.y2 - box.y1)
    return Box(max(box.x1 - wide, 0.0), max(box.y1 - high, 0.0), min(box.x2 + wide, 1.0), min(box.y2 + high, 1.0))


def _rows(asked: Asked, runs: int) -> list[dict[str, Any]]:
    before = np.array(asked.before)
    rows = [
        row("trainings on the pictures of one list", float(runs), ""),
        row("pictures asked over the other lists", float(len(before)), ""),
        row("weight chosen for the head, in the frames: mean", float(np.mean([f for f, _ in asked.weights])), ""),
        row("weight chosen for the head, in the boxes: mean", float(np.mean([b for _, b in asked.weights])), ""),
        row("learning, one thread or more: processor time, most", max(asked.seconds), "s", 60, "max"),
        row("  of which checks: wall clock, most", max(asked.checks), "s"),
    ]
    rows += [row(f"before: {m}", 100 * float(before[:, k].mean()), unit) for k, (m, unit) in enumerate(MEASURES)]
    named = [
        ("after", asked.after),
        *((f"head forced to {f:g} in frames, {b:g} in boxes", v) for (f, b), v in asked.forced.items()),
    ]
    for name, results in named:
        values = np.array(results)
        for k, (measure, unit) in enumerate(MEASURES):
            gap = paired_bootstrap(values[:, k].tolist(), before[:, k].tolist())
            target = (0.0, "min") if name == "after" else (None, None)
            rows += [
                row(f"{name}: {measure}", 100 * float(values[:, k].mean()), unit),
                row(f"{name} - before, {measure}: 95 % interval, low", 100 * gap.low, "points", *target),
                row(f"{name} - before, {measure}: 95 % interval, high", 100 * gap.high, "points"),
            ]
    own, forced = np.array(asked.own), np.array(asked.own_forced)
    for k, (measure, unit) in enumerate(MEASURES[2:], 2):
        rows.append(row(f"the taught pictures themselves, before: {measure}", 100 * float(own[:, k].mean()), unit))
        rows.append(row("the same, the head alone in the frames", 100 * float(forced[:, k].mean()), unit))
    return rows
