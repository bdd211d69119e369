"""Reading with PyAV: file order, flat memory, on past damage; the backend that indexes and the one that always works."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vilco_app.video.geometry import Shaper
from vilco_app.video.sampling import ReadReport, Sample, SampleStream, bin_of
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import SampleBatch


class PyavReader:
    """The PyAV backend (see `vilco_app.video.types.Reader`)."""

    name = "pyav"

    def __init__(self, settings: ReadSettings | None = None) -> None:
        self.settings = settings or ReadSettings()

    def samples(
        self, path: Path, rate: float, short_side: int | None, start: float = 0.0, keyframes_only: bool = False,
        batch: int = 32,
    ) -> SampleStream:  # fmt: skip
        """See `Reader.samples`. start: only samples at or after it, the same that a run from 0 would give."""

        def run(report: ReadReport) -> Iterator[Sample]:
            return self.walk(path, rate, short_side, report, start=start, keyframes_only=keyframes_only)

        return SampleStream(run, batch)

    def walk(
        self, path: Path, rate: float, short_side: int | None, report: ReadReport, *, offset: float = 0.0,
        start: float = 0.0, last_bin: int = -1, keyframes_only: bool = False,
    ) -> Iterator[Sample]:  # fmt: skip
        """Samples one by one. offset: where the file's time 0 lies on the clock of `start` and of the ticks;
        last_bin: the bin of the last sample of the file before it."""
        slack = self.settings.slack
        with Source(path, self.settings) as source:
            shaper = Shaper(source.aspect, short_side, self.settings.scale_threads)
            begin = tick_before(start, rate, slack) - offset
            if begin > 0:
                source.seek(begin)
            if keyframes_only:
                source.stream.codec_context.skip_frame = "NONKEY"
            packets = (p for p in source.packets() if p.is_keyframe or not keyframes_only)
            latest = -1.0
            for frame in source.frames(packets):
                time = source.time(source.stamp(frame)) + offset
                report.decoded += 1
                report.readable_to = max(report.readable_to, time + source.length(frame))
                current = bin_of(time, rate, slack)
                if time <= latest or time < begin + offset - slack or current <= last_bin:
                    continue
                last_bin, latest = current, time
                if time >= start - 1e-6:
                    yield Sample(time, source.length(frame), shaper.array(frame))
            for error in source.errors:
                report.note(error)
            report.complete = not source.errors

    def at(self, path: Path, times: Sequence[float], short_side: int | None) -> SampleBatch:
        """See `Reader.at`. Times in ascending order are read in one go; others cost a seek each."""
        slack = self.settings.slack
        order = np.argsort(np.asarray(times, dtype=float), kind="stable")
        found: dict[int, Sample] = {}
        with Source(path, self.settings) as source:
            shaper = Shaper(source.aspect, short_side, self.settings.scale_threads)
            size = None
            frames, held, held_time, ahead = None, None, 0.0, None
            for index in order:
                time = float(times[index])
                if frames is None or time - held_time > self.settings.forward:
                    source.seek(time)
                    frames = source.frames(source.packets())
                    held = ahead = None
                while True:  # until the frame behind the wanted one is known
                    if ahead is None:
                        frame = next(frames, None)
                        if frame is None:
                            break
                        ahead = (source.time(source.stamp(frame)), frame)
                    if held is not None and ahead[0] > time + slack:
                        break
                    held_time, held = ahead
                    ahead = None
                assert held is not None
                size = size or shaper.size(held)
                found[int(index)] = Sample(held_time, source.length(held), shaper.array(held, size))
        rows = [found[i] for i in range(len(times))]
        return SampleBatch(
            np.array([r.time for r in rows]), np.array([r.length for r in rows]), np.stack([r.frame for r in rows])
        )


def tick_before(start: float, rate: float, slack: float) -> float:
    """Seconds of the tick whose bin holds `start`."""
    return bin_of(start, rate, slack) / rate if start > 0 else 0.0
