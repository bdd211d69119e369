"""Frames, their times and durations travel together (the habit of torchcodec's FrameBatch)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class SampleBatch:
    """B decoded frames of one size.

    times [B] float64: seconds from the first displayed frame of the recording (PTS), increasing.
    durations [B] float64: seconds the sample stands for (to the next sample, or the end).
    frames [B, H, W, 3] uint8 RGB, displayed orientation and aspect (rotation and SAR applied).
    """

    times: np.ndarray
    durations: np.ndarray
    frames: np.ndarray

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class VideoInfo:
    """What `probe` says of a file. width, height: as displayed. duration: seconds from first to end of last frame.

    first_pts: seconds of the first frame on the container's own clock (time 0 of ours). keyframe_interval: seconds, the
    largest gap seen at the start, or None when unknown. faults: human sentences ("truncated: readable up to 12.0 s").
    recorded_at: ISO 8601 of the container's creation time, or None. container: FFmpeg's format name; pixel_format,
    audio: FFmpeg's names ("yuv420p", "aac"; audio None when silent).
    """

    path: Path
    duration: float
    codec: str
    width: int
    height: int
    rotation: int
    sample_aspect: float
    vfr: bool
    first_pts: float
    rate: float
    keyframe_interval: float | None
    recorded_at: str | None
    faults: tuple[str, ...]
    container: str = ""
    pixel_format: str = ""
    audio: str | None = None


@dataclass(frozen=True)
class Part:
    """One file of a recording; its time 0 is `offset` seconds into the recording."""

    path: Path
    offset: float
    duration: float


@dataclass(frozen=True)
class Recording:
    """One file, or a camera's chapter files joined with continuous time."""

    parts: tuple[Part, ...]

    @property
    def path(self) -> Path:
        return self.parts[0].path

    @property
    def duration(self) -> float:
        last = self.parts[-1]
        return last.offset + last.duration

    def at(self, time: float) -> tuple[Part, float]:
        """The part that shows `time` (seconds of the recording) and the time inside it."""
        for part in reversed(self.parts):
            if time >= part.offset:
                return part, time - part.offset
        return self.parts[0], 0.0


class Reader(Protocol):
    """A decoding backend. Both give the same samples for the same request (see tests/test_video_parity.py)."""

    name: str

    def samples(
        self,
        path: Path,
        rate: float,
        short_side: int | None,
        start: float = 0.0,
        keyframes_only: bool = False,
        batch: int = 32,
    ) -> Iterator[SampleBatch]:
        """Samples in time order, one per 1/rate seconds: the first frame displayed at or after each tick k/rate >= start.

        short_side: scale so that the shorter displayed side has this many pixels (never enlarged beyond the source is
        not promised: small sources are enlarged too, so that every batch has the size the encoder expects).
        Raises VideoRefused when not one frame can be decoded; ends early and quietly on damage after the first frame.
        """
        ...

    def at(self, path: Path, times: Sequence[float], short_side: int | None) -> SampleBatch:
        """The frames displayed at the given times (the last frame whose PTS <= time), in the order given."""
        ...
