"""Importers of Ego4D's official annotation files: NLQ, MQ and VQ2D, as stages.

media says what the footage files are: "clips" (one file per clip_uid, times relative to the clip: what challenges use) or
"videos" (whole recordings by video_uid; the clip's offset is added and kept in `source`, so that predictions go back).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from vilco_app.stages.types import Example, Family, Split, Stage
from vilco_app.values import TimedBox, VilcoError

Media = Literal["clips", "videos"]
VQ_RATE = 5.0  # frames per second of the VQ2D clips; frame numbers count in it


def read_json(path: Path | str) -> Any:
    """A JSON file. Raises VilcoError "bad-annotation"."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise VilcoError("bad-annotation", f"{path}: {error}.", "Give the benchmark's own annotation file.") from None


def clips_of(data: Any, path: Path | str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(video, clip) of the nesting all three files share. Raises VilcoError naming what is missing."""
    if not isinstance(data, dict) or not isinstance(data.get("videos"), list):
        raise VilcoError(
            "bad-annotation",
            f'{path}: there is no "videos" list.',
            "Give the official file (or a file converted to it).",
        )
    for video in data["videos"]:
        for clip in video.get("clips", ()):
            yield video, clip


def place(video: dict[str, Any], clip: dict[str, Any], media: Media, folder: Path | None) -> tuple[str, float]:
    """(reference of the footage, seconds to add to clip times)."""
    uid = str(clip.get("clip_uid") if media == "clips" else video.get("video_uid"))
    shift = 0.0 if media == "clips" else float(clip.get("video_start_sec", 0.0))
    if folder is None:
        return uid, shift
    found = sorted(p for p in folder.glob(f"{uid}.*") if p.is_file())
    return (str(found[0]) if found else str(folder / f"{uid}.mp4")), shift


def import_nlq(
    path: Path | str,
    media: Media = "clips",
    folder: Path | None = None,
    split: Split | None = None,
    name: str = "ego4d nlq",
) -> Stage:
    """Ego4D NLQ (train, val): one example per language query; queries without words are skipped with a warning.

    id: "annotation_uid_index", the index counting skipped queries too (as the challenge does).
    """
    out: list[Example] = []
    warnings: list[str] = []
    for video, clip in clips_of(read_json(path), path):
        ref, shift = place(video, clip, media, folder)
        for annotation in clip.get("annotations", ()):
            for k, q in enumerate(annotation.get("language_queries", ())):
                uid = f"{annotation.get('annotation_uid')}_{k}"
                text = (q.get("query") or "").strip()
                if not text or "clip_start_sec" not in q:
                    warnings.append(f"query {uid}: skipped, it has no {'words' if not text else 'window'}")
                    continue
                start, end = float(q["clip_start_sec"]), float(q["clip_end_sec"])
                if end <= start:
                    warnings.append(f"query {uid}: skipped, its window is empty ({start:g} to {end:g} s)")
                    continue
                source = {
                    "video_uid": video.get("video_uid"), "clip_uid": clip.get("clip_uid"), "clip_start": shift,
                    "annotation_uid": annotation.get("annotation_uid"), "query_idx": k, "template": q.get("template"),
                }  # fmt: skip
                out.append(_example(uid, ref, ((start + shift, end + shift),), split, source, query=text))
    return _stage(name, "nlq", out, warnings, path)


def import_mq(
    path: Path | str,
    media: Media = "clips",
    folder: Path | None = None,
    split: Split | None = None,
    name: str = "ego4d mq",
) -> Stage:
    """Ego4D MQ: one example per (clip, category) with all its windows. Reads the raw nested file (primary labels only) and
    the converted one keyed by clip_uid. Same label with both edges within 1 ms counts once."""
    data = read_json(path)
    found: dict[tuple[str, str], tuple[str, list[tuple[float, float]], dict[str, Any]]] = {}
    if isinstance(data, dict) and "videos" not in data:
        for uid, clip in data.items():
            shift = 0.0 if media == "clips" else float(clip.get("parent_start_sec", 0.0))
            ref, _ = place(
                {"video_uid": clip.get("video_id")}, {"clip_uid": uid, "video_start_sec": shift}, media, folder
            )
            source = {
                "video_uid": clip.get("video_id"),
                "clip_uid": uid,
                "clip_start": shift,
                "subset": clip.get("subset"),
            }
            for a in clip.get("annotations", ()):
                _window(found, uid, ref, str(a["label"]), a["segment"], shift, source)
    else:
        for video, clip in clips_of(data, path):
            ref, shift = place(video, clip, media, folder)
            uid = str(clip.get("clip_uid"))
            source = {
                "video_uid": video.get("video_uid"),
                "clip_uid": uid,
                "clip_start": shift,
                "subset": video.get("split"),
            }
            for annotation in clip.get("annotations", ()):
                for label in annotation.get("labels", ()):
                    if label.get("primary"):
                        edges = (label["start_time"], label["end_time"])
                        _window(found, uid, ref, str(label["label"]), edges, shift, source)
    out = [
        _example(f"{uid}_{label}", ref, tuple(sorted(windows)), split, source, category=label)
        for (uid, label), (ref, windows, source) in found.items()
        if windows
    ]
    return _stage(name, "mq", out, [], path)


def _window(
    found: dict[tuple[str, str], tuple[str, list[tuple[float, float]], dict[str, Any]]], uid: str, ref: str, label: str,
    edges: Any, shift: float, source: dict[str, Any],
) -> None:  # fmt: skip
    start, end = float(edges[0]) + shift, float(edges[1]) + shift
    windows = found.setdefault((uid, label), (ref, [], source))[1]
    if end > start and not any(abs(start - a) < 1e-3 and abs(end - b) < 1e-3 for a, b in windows):
        windows.append((start, end))


def import_vq(
    path: Path | str,
    media: Media = "clips",
    folder: Path | None = None,
    split: Split | None = None,
    name: str = "ego4d vq",
) -> Stage:
    """Ego4D VQ2D: one example per valid query set; frame numbers count at 5 per second; boxes become fractions.

    The picture asked with is the crop's box in its frame; only footage before the query frame may answer.
    """
    out: list[Example] = []
    warnings: list[str] = []
    for video, clip in clips_of(read_json(path), path):
        ref, shift = place(video, clip, media, folder)
        rate = float(clip.get("clip_fps") or VQ_RATE)
        for annotation in clip.get("annotations", ()):
            for number, q in annotation.get("query_sets", {}).items():
                uid = f"{annotation.get('annotation_uid')}_{number}"
                crop, track = q.get("visual_crop"), q.get("response_track")
                if not q.get("is_valid", True) or not crop or not track:
                    warnings.append(f"query {uid}: skipped, it is not valid or has no track")
                    continue
                boxes = tuple(_timed(b, rate, shift) for b in sorted(track, key=lambda b: b["frame_number"]))
                box = _timed(crop, rate, shift)
                source = {
                    "video_uid": video.get("video_uid"), "clip_uid": clip.get("clip_uid"), "clip_start": shift,
                    "annotation_uid": annotation.get("annotation_uid"), "query_set": number,
                    "object_title": q.get("object_title"), "width": crop["original_width"], "height": crop["original_height"],
                }  # fmt: skip
                from vilco_app.stages.format import track_window
                from vilco_app.stages.types import QueryFrame
                from vilco_app.values import Box

                frame = QueryFrame(ref, box.time, Box(box.x1, box.y1, box.x2, box.y2))
                out.append(
                    _example(uid, ref, track_window(boxes, 1 / rate), split, source, query_frame=frame, track=boxes,
                             before=float(q.get("query_frame", crop["frame_number"])) / rate + shift)
                )  # fmt: skip
    return _stage(name, "vq", out, warnings, path)


def _timed(b: dict[str, Any], rate: float, shift: float) -> TimedBox:
    wide, high = float(b["original_width"]), float(b["original_height"])

    def inside(v: float) -> float:
        return min(max(v, 0.0), 1.0)

    x1, y1 = inside(b["x"] / wide), inside(b["y"] / high)
    x2, y2 = inside((b["x"] + b["width"]) / wide), inside((b["y"] + b["height"]) / high)
    return TimedBox(float(b["frame_number"]) / rate + shift, x1, y1, max(x2, x1 + 1e-4), max(y2, y1 + 1e-4))


def _example(
    uid: str,
    ref: str,
    windows: tuple[tuple[float, float], ...],
    split: Split | None,
    source: dict[str, Any],
    **more: Any,
) -> Example:
    from vilco_app.stages.format import heldout

    chosen: Split = split if split is not None else ("heldout" if heldout(uid) else "train")
    return Example(uid, ref, windows, split=chosen, source={k: v for k, v in source.items() if v is not None}, **more)


def _stage(name: str, family: Family, examples: list[Example], warnings: list[str], path: Path | str) -> Stage:
    if not examples:
        raise VilcoError("bad-annotation", f"{path}: no usable {family} example in it.", "Is it the annotated file?")
    return Stage(name, family, tuple(examples), warnings=tuple(warnings))
