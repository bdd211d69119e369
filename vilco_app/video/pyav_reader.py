"""Reading with PyAV: file order, flat memory, on past damage; the backend that indexes and the one that always works."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vilco_app.video.geometry import Shaper
from vilco_app.video.plan import KeyTrust, Need, Planner, Step
from vilco_app.video.sampling import ReadReport, Sample, SampleStream, bin_of
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import SampleBatch

if TYPE_CHECKING:
    from av.packet import Packet
    from av.video.frame import VideoFrame


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
    ) -> Generator[Sample, None, int]:  # fmt: skip
        """Samples one by one. offset: where the file's time 0 lies on the clock of `start` and of the ticks;
        last_bin: the bin of the last sample of the file before it. Returns the last bin of this one."""
        slack = self.settings.slack
        with Source(path, self.settings) as source:
            shaper = Shaper(source.aspect, short_side, self.settings.scale_threads)
            begin = tick_before(start, rate, slack)
            if begin > offset:
                source.seek(begin - offset)
            latest = -1.0
            for frame in self._frames(source, rate, offset, begin, last_bin, report, keyframes_only):
                time = source.time(source.stamp(frame)) + offset
                report.decoded += 1
                report.reach(time + source.length(frame))
                which = bin_of(time, rate, slack)
                if time <= latest or time < begin - slack or which <= last_bin:
                    continue
                last_bin, latest = which, time
                if time >= start - 1e-6:
                    yield Sample(time, source.length(frame), shaper.array(frame))
            for error in source.errors:
                report.note(error)
            if source.failed_at is not None and report.first_error is None:
                report.first_error = source.failed_at + offset
            promised = source.promised()
            ends_early = False
            if promised is not None:
                report.promised = promised + offset
                ends_early = report.readable_to < report.promised - max(0.5, 0.01 * promised)
                if ends_early:
                    here = report.readable_to - offset
                    report.note(f"{source.path.name} ends early: readable up to {here:.1f} s of {promised:.1f} s")
            report.complete = not source.errors and not ends_early
        return last_bin

    def _frames(
        self, source: Source, rate: float, offset: float, begin: float, last_bin: int, report: ReadReport,
        keyframes_only: bool,
    ) -> Iterator[VideoFrame]:  # fmt: skip
        """The frames a pass needs, in display order, decoding as little else as the stream allows."""
        slack = self.settings.slack

        def which(pts: int) -> int:
            time = source.time(pts) + offset
            return bin_of(time, rate, slack) if time >= begin - slack else -1

        if keyframes_only:
            # not stream.discard: FFmpeg's mov reader then counts composition offsets wrongly, 80 ms off in our tests
            source.stream.codec_context.skip_frame = "NONKEY"
            yield from source.frames(_key_packets(source.packets(), which, last_bin))
        elif not self.settings.skip or source.clock != "pts" or source.first.interlaced_frame:
            yield from source.frames(source.packets())
        else:
            trust = KeyTrust()
            steps = Planner(which, last_bin, trust, self.settings).steps(source.packets())
            for frame in source.frames(_paced(source, steps, trust, report, offset)):
                trust.came(frame.pts, frame.key_frame)
                yield frame

    def at(self, path: Path, times: Sequence[float], short_side: int | None) -> SampleBatch:
        """See `Reader.at`. Reads in ascending order whatever order is asked for, going on where that is nearer than a
        seek. Frames no other refers to are left out well before each wanted time."""
        order = np.argsort(np.asarray(times, dtype=float), kind="stable")
        found: dict[int, Sample] = {}
        with Source(path, self.settings) as source:
            shaper = Shaper(source.aspect, short_side, self.settings.scale_threads)
            size, walker = None, _Walker(source)
            for index in order:
                frame, time = walker.shown_at(float(times[index]))
                size = size or shaper.size(frame)
                found[int(index)] = Sample(time, source.length(frame), shaper.array(frame, size))
        rows = [found[i] for i in range(len(times))]
        return SampleBatch(
            np.array([r.time for r in rows]), np.array([r.length for r in rows]), np.stack([r.frame for r in rows])
        )


class _Walker:
    """Goes forward through a source from one wanted time to the next."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._skip = source.settings.skip and source.clock == "pts" and not source.first.interlaced_frame
        self._frames: Iterator[VideoFrame] | None = None
        self._held: tuple[float, VideoFrame] | None = None  # the last frame shown at or before the wanted time
        self._ahead: tuple[float, VideoFrame] | None = None  # the one behind it
        self._wanted, self._promised = 0.0, -1.0

    def shown_at(self, time: float) -> tuple[VideoFrame, float]:
        """The last frame with PTS <= time (the first of all where there is none), and its time."""
        if self._held is None or time - self._held[0] > self._source.settings.forward:
            self._go(time)
        self._advance(time)
        assert self._held is not None
        if self._promised - self._held[0] > self._source.settings.slack and self._skip:
            self._skip = False  # the frame wanted was left out: a gap longer than usual lies behind it
            self._go(time)
            self._advance(time)
        return self._held[1], self._held[0]

    def _go(self, time: float) -> None:
        self._source.seek(time)
        self._wanted = time
        self._frames = self._source.frames(self._packets())
        self._held = self._ahead = None

    def _advance(self, time: float) -> None:
        self._wanted, slack = time, self._source.settings.slack
        self._promised = -1.0
        while True:
            if self._ahead is None:
                frame = next(self._frames, None) if self._frames else None
                if frame is None:
                    return
                self._ahead = (self._source.time(self._source.stamp(frame)), frame)
            if self._held is not None and self._ahead[0] > time + slack:
                return
            self._held, self._ahead = self._ahead, None

    def _packets(self) -> Iterator[Packet]:
        codec, near = self._source.stream.codec_context, self._source.settings.near
        codec.skip_frame = "DEFAULT"
        skipping = False
        for packet in self._source.packets():
            if packet.pts is not None and not packet.is_discard:
                time = self._source.time(packet.pts)
                if time <= self._wanted + self._source.settings.slack:
                    self._promised = max(self._promised, time)
                if skipping is not (self._skip and time < self._wanted - near):
                    skipping = not skipping
                    codec.skip_frame = "NONREF" if skipping else "DEFAULT"
            yield packet


def tick_before(start: float, rate: float, slack: float) -> float:
    """Seconds of the tick whose bin holds `start`."""
    return bin_of(start, rate, slack) / rate if start > 0 else 0.0


def _key_packets(packets: Iterator[Packet], which: Callable[[int], int], last_bin: int) -> Iterator[Packet]:
    """The first key frame of each bin; key frames come in display order."""
    for packet in packets:
        if packet.is_keyframe and not packet.is_discard:
            if packet.pts is not None:
                if which(packet.pts) <= last_bin:
                    continue
                last_bin = which(packet.pts)
            yield packet


def _paced(
    source: Source, steps: Iterator[Step], trust: KeyTrust, report: ReadReport, offset: float
) -> Iterator[Packet | None]:
    """The packets to decode, with the decoder told before each whether a frame nobody refers to may be left out."""
    codec = source.stream.codec_context
    skipping = False
    for step in steps:
        packet = step.packet
        if step.need is Need.NOTHING:
            if packet.pts is not None and not packet.is_discard:
                end = packet.pts + (packet.duration or 0)
                report.reach(source.time(end) + offset)
            continue
        if step.fresh:
            yield None
        skip = step.need is Need.REFERENCE
        if skip is not skipping:
            codec.skip_frame = "NONREF" if skip else "DEFAULT"
            skipping = skip
        trust.sent(packet)
        yield packet
