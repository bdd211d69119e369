"""Predictions and stages back in the benchmarks' own forms."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vilco_app.stages.format import write_json
from vilco_app.stages.types import Example, Stage
from vilco_app.values import VilcoError

FORMS = ("ego4d-nlq", "ego4d-mq", "ego4d-vq", "qvhighlights")
Ranked = Sequence[tuple[float, ...]]  # best first: start, end, score (vq: then boxes as from `Prediction`)


def write_predictions(form: str, stages: Sequence[Stage], predictions: Mapping[str, Ranked], output: Path) -> None:
    """Write ranked windows (seconds of the video) by example id in a challenge's submission form, atomically.

    Times are written relative to the clip when the example's `source` says where its clip starts.
    Raises VilcoError "unknown-form".
    """
    examples = [e for s in stages for e in s.examples if e.id in predictions]
    if form == "ego4d-nlq":
        write_json(output, _nlq(examples, predictions))
    elif form == "ego4d-mq":
        write_json(output, _mq(examples, predictions))
    elif form == "ego4d-vq":
        write_json(output, _vq(examples, predictions))
    elif form == "qvhighlights":
        _lines(output, [_qvhighlights(e, predictions[e.id]) for e in examples])
    else:
        raise VilcoError("unknown-form", f"there is no form {form!r}.", f"Choose one of {', '.join(FORMS)}.")


def _offset(e: Example) -> float:
    return float(e.source.get("clip_start", 0.0))


def _nlq(examples: Sequence[Example], predictions: Mapping[str, Ranked]) -> dict[str, Any]:
    """Ego4D NLQ challenge: results of {clip_uid, annotation_uid, query_idx, predicted_times [[s, e], ...]}."""
    rows = [
        {
            "clip_uid": e.source.get("clip_uid", e.video),
            "annotation_uid": e.source.get("annotation_uid", e.id),
            "query_idx": int(e.source.get("query_idx", 0)),
            "predicted_times": [[round(p[0] - _offset(e), 4), round(p[1] - _offset(e), 4)] for p in predictions[e.id]],
        }
        for e in examples
    ]
    return {"version": "1.0", "challenge": "ego4d_nlq_challenge", "results": rows}


def _mq(examples: Sequence[Example], predictions: Mapping[str, Ranked]) -> dict[str, Any]:
    """Ego4D MQ challenge: detect_results and retrieve_results, by clip."""
    detect: dict[str, list[dict[str, Any]]] = {}
    retrieve: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for e in examples:
        clip, label = str(e.source.get("clip_uid", e.video)), e.category or ""
        for p in predictions[e.id]:
            segment = [round(p[0] - _offset(e), 4), round(p[1] - _offset(e), 4)]
            detect.setdefault(clip, []).append({"label": label, "score": float(p[2]), "segment": segment})
            retrieve.setdefault(clip, {}).setdefault(label, []).append({"segment": segment, "score": float(p[2])})
    return {
        "version": "1.0", "challenge": "ego4d_moment_queries", "detect_results": detect, "retrieve_results": retrieve,
    }  # fmt: skip


def _vq(examples: Sequence[Example], predictions: Mapping[str, Ranked]) -> dict[str, Any]:
    """Ego4D VQ2D challenge form: per query set the boxes of the first predicted track, in frames of the clip at 5 fps."""
    videos: dict[str, dict[str, Any]] = {}
    for e in examples:
        uid, clip = str(e.source.get("video_uid", e.video)), str(e.source.get("clip_uid", e.video))
        boxes = [p for p in predictions[e.id] if len(p) == 6]  # time, x1, y1, x2, y2, score
        wide, high = float(e.source.get("width", 1.0)), float(e.source.get("height", 1.0))
        track = {
            "bboxes": [
                {
                    "fno": round((p[0] - _offset(e)) * 5),
                    "x1": p[1] * wide,
                    "y1": p[2] * high,
                    "x2": p[3] * wide,
                    "y2": p[4] * high,
                }
                for p in boxes
            ],
            "score": float(max((p[5] for p in boxes), default=0.0)),
        }
        entry = videos.setdefault(uid, {"video_uid": uid, "split": "val", "clips": {}})
        row = entry["clips"].setdefault(clip, {})
        row.setdefault(str(e.source.get("annotation_uid", e.id)), {})[str(e.source.get("query_set", "1"))] = track
    return {
        "version": "1.0", "challenge": "ego4d_vq2d_challenge",
        "results": {"videos": [
            {**v, "clips": [
                {"clip_uid": c, "predictions": [{"annotation_uid": a, "query_sets": q} for a, q in rows.items()]}
                for c, rows in v["clips"].items()
            ]}
            for v in videos.values()
        ]},
    }  # fmt: skip


def _qvhighlights(e: Example, ranked: Ranked) -> dict[str, Any]:
    return {
        "qid": e.source.get("qid", e.id), "query": e.text, "vid": e.source.get("vid", e.video),
        "pred_relevant_windows": [[round(p[0], 4), round(p[1], 4), round(float(p[2]), 4)] for p in ranked],
    }  # fmt: skip


def _lines(output: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
        os.replace(temporary, output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise VilcoError("cannot-write", f"{output}: {error.strerror or error}.", "Choose another place.") from None


def stage_to_nlq(stage: Stage) -> dict[str, Any]:
    """An nlq stage in the nested Ego4D NLQ annotation form (clip-relative seconds)."""
    videos: dict[str, dict[str, dict[str, list[tuple[int, dict[str, Any]]]]]] = {}
    for k, e in enumerate(stage.examples):
        uid, clip = str(e.source.get("video_uid", e.video)), str(e.source.get("clip_uid", e.video))
        query = {"query": e.text, "template": e.extra.get("template", e.source.get("template"))}
        if e.windows:
            query["clip_start_sec"] = e.windows[0][0] - _offset(e)
            query["clip_end_sec"] = e.windows[0][1] - _offset(e)
        row = videos.setdefault(uid, {}).setdefault(clip, {}).setdefault(str(e.source.get("annotation_uid", e.id)), [])
        row.append((int(e.source.get("query_idx", k)), query))
    return {
        "version": "2.0",
        "videos": [
            {"video_uid": v, "clips": [
                {"clip_uid": c, "annotations": [
                    {"annotation_uid": a, "language_queries": [q for _, q in sorted(rows, key=lambda r: r[0])]}
                    for a, rows in anns.items()
                ]}
                for c, anns in clips.items()
            ]}
            for v, clips in videos.items()
        ],
    }  # fmt: skip
