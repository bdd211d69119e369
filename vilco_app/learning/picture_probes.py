"""How much the trained picture head counts: decided on the path of answers, for examples it was not trained on.

For each example the real finder looks over the recording once; then every weight is tried on what it saw, and the first track
is held against the label as a person would: the right time, the right box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.evaluation.retrieval import temporal_iou
from vilco_app.evaluation.visual import box_iou, nearest_box
from vilco_app.learning.pictures import DEFAULTS, finder_of, looked, picture_of
from vilco_app.learning.resolving import Resolved
from vilco_app.learning.scoring import TOP, weigh
from vilco_app.stages import Example, load_stage
from vilco_app.values import VilcoError

if TYPE_CHECKING:
    from vilco_app.answering.visual import Found
    from vilco_app.learning.picture_judge import HeadJudge
    from vilco_app.learning.presets import Preset
    from vilco_app.learning.restoring import Restored
    from vilco_app.learning.types import Fusion

WEIGHTS = (
    0.0,
    0.5,
    1.0,
)  # in the frames and in the boxes: a pair costs a tenth of a second a probe, on some thirty frames
NEAR = 1.0  # seconds between a labelled box and the one held against it


@dataclass
class PictureProbe:
    """A labelled picture and a judge that was not trained on it."""

    example: Example
    resolved: Resolved
    judge: HeadJudge


def fuse_pictures(
    fusion: Fusion, start: Restored, table: Sequence[dict[str, Any]], resolved: Resolved, samples: list[Any], library: Any,
    profile: Any, preset: Preset,
) -> Fusion:  # fmt: skip
    """The fusion with the weights of pictures chosen, in the frames (vq) and in the boxes (vq_boxes): from held-out examples of
    all stages and, while those are fewer than DEFAULTS.probes, examples of a new picture stage through heads trained without.

    table: the held-out examples as snapshots keep them. A stage of words changes the weights only where there were some.
    """
    fusion = replace(fusion, vq_boxes=start.fusion.vq_boxes)
    mine = resolved.stage.family == "vq"
    if not mine and max(fusion.vq, fusion.vq_boxes) <= 0:
        return fusion
    from vilco_app.learning.picture_judge import HeadJudge

    probes = held_probes(table, library, HeadJudge(start.learner))
    if mine and len(probes) < DEFAULTS.probes:
        probes += fold_pictures(start, resolved, samples, preset, DEFAULTS.probes - len(probes))
    scored = goodness_table(probes, library, profile)
    if not mine and len(scored) < 5:
        return fusion  # too few to judge by anew: the head was last weighed by the folds of its own stage
    frames, why = weigh(scored[:, :, 0], WEIGHTS)
    boxes, and_why = weigh(scored[:, WEIGHTS.index(frames)], WEIGHTS)  # against what the frames alone gave
    return replace(
        fusion, vq=frames, vq_boxes=boxes, reasons={**fusion.reasons, "vq": f"frames: {why}", "vq boxes": and_why}
    )


def held_probes(table: Sequence[dict[str, Any]], library: Any, judge: HeadJudge) -> list[PictureProbe]:
    """At most DEFAULTS.probes held-out pictures, every stage in turn, whose recordings are there and not forgotten."""
    by_stage = []
    for entry in table:
        if entry["family"] == "vq" and entry["examples"]:
            stage = load_stage({"schema": 1, "name": entry["name"], "family": "vq", "examples": entry["examples"]})
            by_stage.append([(e, stage) for e in stage.examples if e.windows])
    out: list[PictureProbe] = []
    for e, stage in [x for turn in zip_longest(*by_stage) for x in turn if x is not None]:
        names = {e.video, *([e.query_frame.video] if e.query_frame else [])}
        try:
            resolved = Resolved(stage, {n: library.resolve(n) for n in names})
            spans = library.stored(resolved.video(e).id).forgotten
        except VilcoError:
            continue  # the recording was removed
        if len(out) < DEFAULTS.probes and not any(s < b and t > a for s, t in e.windows for a, b in spans):
            out.append(PictureProbe(e, resolved, judge))
    return out


def fold_pictures(
    start: Restored, resolved: Resolved, samples: list[Any], preset: Preset, most: int
) -> list[PictureProbe]:
    """At most `most` examples of the new stage, each with a head that was trained without it (nor with its picture)."""
    from vilco_app.continual import Plan, Task, fit, make_strategy
    from vilco_app.learning.folds import REHEARSED
    from vilco_app.learning.picture_judge import HeadJudge
    from vilco_app.network.learner import ViLCoLearner

    examples = resolved.stage.part("train")
    asked = [(e.image, e.query_frame) for e in examples]
    order = list(dict.fromkeys(asked))
    folds = min(DEFAULTS.folds, len(order))
    if folds < 2:
        return []
    owner = [order.index(a) % folds for a in asked]
    chosen = [k for k, e in enumerate(examples) if e.windows]
    chosen = [chosen[int(i)] for i in np.unique(np.linspace(0, len(chosen) - 1, most).round())] if chosen else []
    buffer = getattr(start.strategy, "buffer", None)
    old = [s for s in (buffer or ()) if s.meta["family"] == "vq" and s.task < len(start.stages)][:REHEARSED]
    out = []
    for fold in range(folds):
        learner = ViLCoLearner(start.learner.config)  # untrained: the parent may have seen the same picture before
        left = [s for s, o in zip(samples, owner, strict=True) if o != fold]
        plan = Plan(
            epochs=preset.epochs, min_steps=preset.min_steps, max_steps=preset.max_steps, batch_size=preset.batch_size,
            lr=preset.lr,
        )  # fmt: skip
        fit(learner, make_strategy("naive"), [*left, *old], Task(0, "fold"), plan)
        learner.net.eval()
        judge = HeadJudge(learner)
        out += [PictureProbe(examples[k], resolved, judge) for k in chosen if owner[k] == fold]
    return out


def goodness_table(probes: Sequence[PictureProbe], library: Any, profile: Any) -> np.ndarray:
    """[n, W, W] for W weights in the frames and in the boxes: goodness of the first track; probes nothing can be looked at for
    are left out."""
    finder = finder_of(library, profile)
    rows = []
    for p in probes:
        try:
            sight = looked(
                p.example, p.resolved.video(p.example).id, picture_of(p.example, p.resolved, library), finder
            )
        except VilcoError:
            continue  # the picture's file or frame is gone
        if sight is not None:
            pairs = [(f, b) for f in WEIGHTS for b in WEIGHTS]
            rows.append([goodness(finder.found(sight, TOP, p.judge.at(f, b)), p.example) for f, b in pairs])
    return np.array(rows, dtype=float).reshape(-1, len(WEIGHTS), len(WEIGHTS))


def goodness(found: Found, example: Example) -> float:
    """In [0, 1]: temporal IoU of the first track with the last labelled window, and its mean IoU with the labelled boxes (the
    nearest box within NEAR seconds, 0 without one), half each."""
    when = time_right(found, example)
    return 0.5 * when + 0.5 * boxes_right(found, example) if example.track else when


def time_right(found: Found, example: Example) -> float:
    """Temporal IoU of the first track with the last labelled window."""
    if not found.tracks:
        return 0.0
    first = found.tracks[0].moment
    return float(temporal_iou((first.start, first.end), example.windows[-1]))


def boxes_right(found: Found, example: Example) -> float:
    """Mean IoU of the first track with the labelled boxes."""
    if not found.tracks:
        return 0.0
    boxes, overlaps = [b.to_json() for b in found.tracks[0].boxes], []
    for truth in example.track:
        near = nearest_box(boxes, truth.time)
        close = near is not None and abs(near[0] - truth.time) <= NEAR
        overlaps.append(box_iou(near[1:], truth.to_json()[1:]) if close and near is not None else 0.0)
    return float(np.mean(overlaps))
