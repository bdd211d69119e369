"""Scores of picture questions: of the answers people get, and of the trained head on its stored maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.learning.pictures import picture_of
from vilco_app.learning.resolving import Resolved
from vilco_app.learning.scoring import bootstrap
from vilco_app.learning.types import StageScore

if TYPE_CHECKING:
    from vilco_app.answering.matching import PictureJudge

STEP = 0.2  # seconds: the 5 frames per second VQ2D is scored at


def score_pictures(resolved: Resolved, library: Any, profile: Any, judge: PictureJudge | None = None) -> StageScore:
    """tAP, stAP, recovery and success (evaluation.visual) of `find` on the held-out part (all, where none is held out).

    judge: the trained head of the snapshot that is scored. The matrix metric of a vq stage is success: the best
    track's stIoU >= 0.05.
    """
    from vilco_app.answering import Answerer
    from vilco_app.evaluation import visual
    from vilco_app.pictures import visual_query

    stage = resolved.stage
    examples = [e for e in stage.part("heldout") or stage.examples if e.track]
    answerer = Answerer(library, profile, judge=judge)
    predicted: list[list[list[float]]] = []
    scores, hits, truth, predictions = [], [], [], {}
    for e in examples:
        query = visual_query(picture_of(e, resolved, library), None, e.id)
        answer = answerer.find(query, [resolved.video(e)], 5, e.before)
        best = answer.tracks[0] if answer.tracks else None
        predicted.append([b.to_json() for b in best.boxes] if best else [])
        scores.append(best.moment.score if best else 0.0)
        truth.append([b.to_json() for b in e.track])
        hits.append(float(visual.spatio_temporal_iou(predicted[-1], truth[-1], STEP) >= 0.05))
        predictions[e.id] = tuple((*row, scores[-1]) for row in predicted[-1])
    metrics: dict[str, float] = {"success": float(np.mean(hits)) if hits else 0.0}
    if examples:
        metrics |= visual.temporal_ap(predicted, scores, truth, STEP)
        metrics |= visual.spatio_temporal_ap(predicted, scores, truth, STEP)
        metrics["recovery"] = visual.recovery(predicted, truth, STEP)
    ids = tuple(e.id for e in examples)
    return StageScore(stage.name, "vq", len(examples), metrics, bootstrap(hits), tuple(hits), ids, predictions)  # type: ignore[arg-type]


def head_hits(learner: Any, samples: Sequence[Any], iou: float = 0.3) -> list[float]:
    """Per vq sample with the thing in it: of all its frames, does the one the head is surest of show it, and is the box drawn
    there a true one (IoU >= iou)?"""
    from vilco_app.answering.matching import densest
    from vilco_app.evaluation.visual import box_iou
    from vilco_app.learning.picture_judge import HeadJudge
    from vilco_app.network.visual_batch import maps_of

    judge, out = HeadJudge(learner), []
    for s in samples:
        if not bool(s.targets["present"].any()):
            continue
        verdicts = judge.judge([m.numpy() for m in maps_of(s)])
        best = int(np.argmax([v.score for v in verdicts]))
        box = densest(verdicts[best].cells, float(s.meta.get("aspect", 1.0)))
        right = bool(s.targets["present"][best]) and box_iou(box, s.targets["boxes"][best].tolist()) >= iou
        out.append(float(right))
    return out
