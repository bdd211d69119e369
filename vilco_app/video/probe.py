"""What a file is, before it is read: size as displayed, true duration, clock, faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vilco_app.values import VideoRefused
from vilco_app.video.geometry import displayed_size, frame_turn
from vilco_app.video.pyav_reader import PyavReader
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import VideoInfo

FAULTS = frozenset({"truncated", "damaged", "no-clock", "clock-restarts"})
"""Codes of findings that cost footage or exact times; the others only say how the file has to be handled."""

ALIASES = {"libdav1d": "av1", "libvpx-vp9": "vp9", "libvpx": "vp8"}
HDR = frozenset({16, 18})  # transfer curves PQ and HLG
DATES = ("com.apple.quicktime.creationdate", "creation_time", "date")


class Finding(NamedTuple):
    """Something to know about a file: a stable code and one sentence."""

    code: str
    message: str


@dataclass(frozen=True)
class _Head:
    """The first packets: display times (seconds, ascending), times of key frames, whether an edit list hides some."""

    times: np.ndarray
    keys: np.ndarray
    edited: bool


def probe(path: Path | str, settings: ReadSettings | None = None) -> VideoInfo:
    """Look at a video file: decodes one frame and reads the packets of its beginning and end (of the whole file only
    where its end cannot be found otherwise). Raises VideoRefused when not one frame can be decoded."""
    return _look(Path(path), settings or ReadSettings())[0]


def examine(path: Path | str, thorough: bool = False, settings: ReadSettings | None = None) -> list[Finding]:
    """What a person should know about a file before it is indexed; empty for a plain healthy one.

    Codes: the refusal's own; "truncated", "damaged", "no-clock", "clock-restarts" (see FAULTS); "vfr", "rotated",
    "wide-pixels", "offset-start", "interlaced", "hdr", "far-key-frames", "hevc-needs-proxy", "needs-proxy".
    thorough: decode the whole file, which alone finds damage inside it.
    """
    settings = settings or ReadSettings()
    try:
        info, findings = _look(Path(path), settings)
    except VideoRefused as refusal:
        return [Finding(refusal.code, f"{refusal.message} {refusal.remedy}")]
    if thorough:
        with PyavReader(replace(settings, skip=False)).samples(info.path, 1.0, 64) as stream:
            for _ in stream:
                pass
        if stream.report.errors and all(f.code != "truncated" for f in findings):
            where = f" near {_clock(stream.report.first_error)}" if stream.report.first_error is not None else ""
            count = len(stream.report.errors)
            findings.append(
                Finding("damaged", f"{count} places cannot be decoded, the first{where}; the rest is read.")
            )
    return findings


def _look(path: Path, settings: ReadSettings) -> tuple[VideoInfo, list[Finding]]:
    from vilco_app.video.cut import browser_playable

    with Source(path, settings) as source:
        frame, stream, container = source.first, source.stream, source.container
        turn = frame_turn(frame)
        width, height = displayed_size(frame.width, frame.height, source.aspect, turn)
        audio = container.streams.audio[0].codec_context if container.streams.audio else None
        codec = stream.codec_context.name
        promised = source.promised()
        recorded = _recorded_at([container.metadata, stream.metadata])
        container_name, aspect = container.format.name, float(source.aspect)
        head = _head(source)
        vfr = _is_vfr(source, head)
        end, restarts = _end(source, promised)
    findings = (
        [Finding("rotated", f"Turned by {turn.degrees} degrees for display; this is applied.")] if turn.quarters else []
    )
    short = promised is not None and end < promised - max(0.5, 3 * float(source.step), 0.01 * promised)
    if short and promised is not None:
        findings.append(Finding("truncated", f"truncated: readable up to {end:.1f} s of {promised:.1f} s"))
    if source.clock == "count":
        findings.append(Finding("no-clock", "no timestamps in the file: times are counted from its nominal frame rate"))
    if restarts:
        findings.append(Finding("clock-restarts", "its clock starts again in the middle; time is counted on"))
    faults = tuple(f.message for f in findings if f.code in FAULTS)
    interval = float(np.diff(head.keys).max()) if len(head.keys) > 1 else None
    info = VideoInfo(
        path=path, duration=end, codec=ALIASES.get(codec, codec), width=width, height=height, rotation=turn.degrees,
        sample_aspect=aspect, vfr=vfr, first_pts=float(source.origin * source.base), rate=float(1 / source.step),
        keyframe_interval=interval, recorded_at=recorded, faults=faults, container=container_name,
        pixel_format=frame.format.name, audio=audio.name if audio else None,
    )  # fmt: skip
    if vfr:
        findings.append(Finding("vfr", "Frames come at varying intervals; their own times are used."))
    if aspect != 1:
        findings.append(
            Finding("wide-pixels", f"Its pixels are {aspect:.3g} times as wide as high; shown {width}x{height}.")
        )
    if abs(info.first_pts) > 0.05:
        findings.append(
            Finding("offset-start", f"Its clock starts at {info.first_pts:.2f} s; times count from its first frame.")
        )
    if frame.interlaced_frame:
        findings.append(Finding("interlaced", "Interlaced: each frame holds two half pictures."))
    if int(frame.color_trc) in HDR:
        findings.append(Finding("hdr", "High dynamic range: pictures look flat where they are not tone-mapped."))
    if interval is not None and interval > settings.far_keys:
        findings.append(
            Finding("far-key-frames", f"Key frames up to {interval:.0f} s apart: seeking and the preview are coarse.")
        )
    if not browser_playable(info):
        code = "hevc-needs-proxy" if info.codec == "hevc" else "needs-proxy"
        findings.append(
            Finding(
                code, f"Browsers may not play {info.codec} in {path.suffix or 'this file'} as it is; a proxy is made."
            )
        )
    return info, findings


def _head(source: Source) -> _Head:
    times: list[float] = []
    keys: list[float] = []
    edited = False
    for packet in source.packets():
        stamp = packet.pts if source.clock == "pts" else packet.dts
        edited = edited or packet.is_discard
        if stamp is None or packet.is_discard:
            continue
        times.append(source.time(stamp))
        if packet.is_keyframe:
            keys.append(times[-1])
        if len(times) >= source.settings.probe_packets:
            break
    return _Head(np.sort(np.array(times)), np.sort(np.array(keys)), edited)


def _is_vfr(source: Source, head: _Head) -> bool:
    """Intervals differ by more than the clock's own rounding, at the beginning or (by the frame count) later."""
    if source.clock == "count" or len(head.times) < 3:
        return False
    gaps = np.diff(head.times[:-8] if len(head.times) > 16 else head.times)  # the last ones miss frames not read yet
    middle = float(np.median(gaps))
    if gaps.max() - gaps.min() > max(2.5 * float(source.base), 0.05 * middle, 2e-3):
        return True
    frames, length = source.stream.frames, source.stream.duration
    return bool(
        source.clock == "pts"
        and not head.edited
        and frames > 100
        and length
        and abs(frames * middle / float(length * source.base) - 1) > 0.03
    )


def _end(source: Source, promised: float | None) -> tuple[float, bool]:
    """(seconds to the end of the last frame, whether the clock starts again): from the packets behind a seek to the end,
    or, where that finds nothing or less than promised, from all of them."""
    about = promised or (source.container.duration or 0) / 1e6 - float(source.origin * source.base)
    if source.clock != "count" and about > source.settings.tail and source.seek(about - source.settings.tail):
        end, errors = _last(source)
        if end and not errors and (promised is None or end > promised - 1):
            return end, False
    source.reopen()
    end, _ = _last(source)
    return end, source.jumped


def _last(source: Source) -> tuple[float, int]:
    end, count = 0.0, 0
    source.errors.clear()
    for packet in source.packets():
        count += 1
        stamp = packet.pts if source.clock == "pts" else packet.dts
        if source.clock != "count" and stamp is not None and not packet.is_discard:
            end = max(end, source.time(stamp + source.delay + (packet.duration or round(source.step / source.base))))
    if source.clock == "count":
        end = count * float(source.step)
    return end or source.length(source.first), len(source.errors)


def _recorded_at(tables: Sequence[dict[str, str]]) -> str | None:
    for key in DATES:
        for table in tables:
            try:
                when = datetime.fromisoformat(table.get(key, ""))
            except ValueError:
                continue
            if when.year > 1980:  # cameras without a set clock write 1904 or 1970
                return when.isoformat()
    return None


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
