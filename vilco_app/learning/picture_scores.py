"""Scores of picture questions: of the answers people get, and of the trained head on its stored maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vilco_app.learning.pictures import picture_of
from vilco_app.learning.resolving import Resolved
from vilco_app.learning.scoring import bootstrap
from vilco_app.learning.types import StageScore

STEP = 0.2  # seconds: the 5 frames per second VQ2D is scored at


def score_pictures(resolved: Resolved, library: Any, profile: Any) -> StageScore:
    """tAP, stAP, recovery and success (evaluation.visual) of `find` on the held-out part (all, where none is held out).

    The matrix metric of a vq stage is success: the best track's stIoU >= 0.05.
    """
    from vilco_app.answering import Answerer
    from vilco_app.evaluation import visual
    from vilco_app.pictures import visual_query

    stage = resolved.stage
    examples = [e for e in stage.part("heldout") or stage.examples if e.track]
    answerer = Answerer(library, profile)
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
    """Per vq sample with the thing in it: is the best-scored box of all frames on a true one (IoU >= iou)?"""
    import torch

    from vilco_app.network.visual import anchor_boxes, box_iou, decode_boxes
    from vilco_app.network.visual_batch import collate_visual

    out = []
    with torch.inference_mode():
        for s in samples:
            if not bool(s.targets["present"].any()):
                continue
            data = collate_visual([s], learner.device)
            logits, deltas = learner.net.visual(data.query, data.query_mask, data.frames)
            _, f, h, w, a = logits.shape
            best = int(logits.flatten().argmax())
            boxes = decode_boxes(deltas, anchor_boxes(h, w).to(logits.device)).reshape(-1, 4)
            frame = best // (h * w * a)
            overlap, _ = box_iou(boxes[best], data.boxes[0, frame])
            out.append(float(bool(data.present[0, frame]) and float(overlap) >= iou and frame < f))
    return out
