"""Reading a recording: samples in file order, frames by time, thumbnails; across chapter files with one clock."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np

from vilco_app.values import VideoRefused
from vilco_app.video.decord_reader import DecordReader
from vilco_app.video.pyav_reader import PyavReader, tick_before
from vilco_app.video.sampling import ReadReport, Sample, SampleStream
from vilco_app.video.settings import ReadSettings
from vilco_app.video.types import Part, Recording, SampleBatch


def samples(
    recording: Recording, rate: float, short_side: int | None, start: float = 0.0, keyframes_only: bool = False,
    batch: int = 32, settings: ReadSettings | None = None,
) -> SampleStream:  # fmt: skip
    """Samples of the recording in time order, one per 1/rate seconds, as batches of up to `batch` frames of one size.

    A sample is the first frame displayed at or after tick k/rate (a frame shown over several ticks counts once), with
    its own PTS as time and the time to the next sample as duration. start (seconds): gives exactly the samples at or
    after it that a run from 0 gives, by seeking. keyframes_only: the same rule over key frames alone, much cheaper, for
    a preview. `report` on the returned stream says how far reading came and what was wrong.
    Raises VideoRefused when not one frame of the first file can be decoded; damage behind that ends or thins the stream.
    """
    reader = PyavReader(settings)

    def run(report: ReadReport) -> Iterator[Sample]:
        last_bin, complete = -1, True
        begin = tick_before(start, rate, reader.settings.slack)
        for part in recording.parts:
            if part.offset + part.duration <= begin and part is not recording.parts[-1]:
                continue
            try:
                last_bin = yield from reader.walk(
                    part.path, rate, short_side, report, offset=part.offset, start=start, last_bin=last_bin,
                    keyframes_only=keyframes_only,
                )  # fmt: skip
            except VideoRefused as refusal:  # a chapter gone bad costs itself, not the others
                if part is recording.parts[0]:
                    raise
                report.note(refusal.message)
                report.complete = False
            complete = complete and report.complete
        report.complete = complete

    return SampleStream(run, batch)


def frames_at(
    recording: Recording, times: Sequence[float], short_side: int | None = None, settings: ReadSettings | None = None
) -> SampleBatch:
    """The frames displayed at `times` (seconds of the recording; the last frame whose PTS <= time), in the order given.

    Times before 0 give the first frame, times behind the end the last. All frames have the size of the first one asked
    for; durations are how long each frame is shown. Raises VideoRefused when nothing can be decoded.
    """
    wanted: dict[int, list[int]] = {}
    for index, time in enumerate(times):
        part, _ = recording.at(float(time))
        wanted.setdefault(recording.parts.index(part), []).append(index)
    rows: dict[int, tuple[float, float, np.ndarray]] = {}
    for which, indices in wanted.items():
        part = recording.parts[which]
        batch = _part_at(part, [float(times[i]) - part.offset for i in indices], short_side, settings or ReadSettings())
        for row, index in enumerate(indices):
            rows[index] = (batch.times[row] + part.offset, batch.durations[row], batch.frames[row])
    picked = [rows[i] for i in range(len(times))]
    return SampleBatch(
        np.array([r[0] for r in picked]), np.array([r[1] for r in picked]), np.stack([r[2] for r in picked])
    )


def _part_at(part: Part, times: Sequence[float], short_side: int | None, settings: ReadSettings) -> SampleBatch:
    """decord for many times at once where it can be trusted with the file, else PyAV."""
    if settings.decord and len(times) >= settings.decord_from:
        try:
            return DecordReader(settings).at(part.path, times, short_side)
        except VideoRefused as refusal:
            if refusal.code != "decord-refuses":
                raise
    return PyavReader(settings).at(part.path, times, short_side)


def thumbnail(recording: Recording, time: float, width: int = 320, settings: ReadSettings | None = None) -> bytes:
    """JPEG of the frame displayed at `time` (seconds), `width` pixels wide."""
    from PIL import Image

    frame = Image.fromarray(frames_at(recording, [time], settings=settings).frames[0])
    height = max(1, round(frame.height * width / frame.width))
    out = io.BytesIO()
    frame.resize((width, height), Image.Resampling.BICUBIC).save(out, "JPEG", quality=85)
    return out.getvalue()
