"""What a file is, before it is read: size as displayed, true duration, clock, faults."""

from __future__ import annotations

from pathlib import Path

from vilco_app.video.geometry import displayed_size, frame_turn
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import VideoInfo


def probe(path: Path | str, settings: ReadSettings | None = None) -> VideoInfo:
    """Look at a video file. Decodes one frame and reads the packets of its beginning and end.

    Raises VideoRefused (file, reason, remedy) when not one frame can be decoded.
    """
    path = Path(path)
    with Source(path, settings or ReadSettings()) as source:
        frame, stream, container = source.first, source.stream, source.container
        turn = frame_turn(frame)
        width, height = displayed_size(frame.width, frame.height, source.aspect, turn)
        duration = float(stream.duration * source.base) if stream.duration else float((container.duration or 0) / 1e6)
        audio = container.streams.audio[0].codec_context.name if container.streams.audio else None
        return VideoInfo(
            path=path, duration=max(duration, source.length(frame)), codec=stream.codec_context.codec.name,
            width=width, height=height, rotation=turn.degrees, sample_aspect=float(source.aspect), vfr=False,
            first_pts=float(source.origin * source.base), rate=float(1 / source.step), keyframe_interval=None,
            recorded_at=None, faults=(), container=container.format.name, pixel_format=frame.format.name, audio=audio,
        )  # fmt: skip
