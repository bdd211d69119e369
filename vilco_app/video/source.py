"""One opened file: which stream, whose clock, where its time 0 is, and reading on past errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from vilco_app.video.opening import choose_stream, open_container, refused, short
from vilco_app.video.settings import ReadSettings

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

COUNTED = frozenset(
    {"h261", "h263", "h264", "hevc", "vvc", "m4v", "mjpeg", "mpegvideo", "vc1", "obu"}
)  # bare streams: no clock
JUMPING = frozenset({"mpegts", "mpeg"})  # joined by simple concatenation, so their clock may start again in the middle
UNORDERED = frozenset({"avi"})  # stores decoding order only, so PTS behind B-frames are guesses; DTS is the clock


class Source:
    """A video file opened with PyAV; use as a context manager.

    origin: PTS (in `base` units) of the first displayed frame, which is time 0. `first` is that frame.
    Raises VideoRefused when not one frame can be decoded.
    """

    def __init__(self, path: Path, settings: ReadSettings) -> None:
        self.path, self.settings = Path(path), settings
        self.errors: list[str] = []
        self.failed_at: float | None = None  # seconds of the first packet that could not be decoded
        self.container: InputContainer = open_container(self.path)
        self.stream: VideoStream = choose_stream(self.container, self.path, settings.threads)
        self.base = Fraction(self.stream.time_base or Fraction(1, 90000))
        name = self.container.format.name
        self.clock = "count" if name in COUNTED else "dts" if name in UNORDERED else "pts"
        self.step = self._step()
        self._count = 0  # clock state of bare streams
        self._lead: list[int] = []  # stamps of frames at the beginning that carry no time
        self._last: int | None = None
        self._due: int | None = None  # DTS the next packet should have
        self._shift, self.jumped = 0, False
        self._straight: bool | None = None
        self._kept = 0  # seeks after which the key frame found came out as the first frame
        self.origin = 0
        self.delay = 0  # from a packet's stamp to its frame's, where packets have decoding times only
        try:
            self.first: VideoFrame = self._first()
        except BaseException:
            self.close()
            raise
        self.reopen()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.container.close()

    @property
    def aspect(self) -> Fraction:
        """Sample aspect ratio, 1 when unknown."""
        return Fraction(self.stream.sample_aspect_ratio or self.stream.codec_context.sample_aspect_ratio or 1)

    def _step(self) -> Fraction:
        """Nominal seconds per frame."""
        stream = self.stream
        rate = (self.clock == "pts" and stream.average_rate) or stream.guessed_rate or stream.base_rate
        return 1 / Fraction(rate) if rate else Fraction(1, 25)

    def _first(self) -> VideoFrame:
        first, step = None, round(self.step / self.base)
        began: list[int] = []

        def watched() -> Iterator[Packet]:
            for packet in self.packets():
                if packet.dts is not None and not began:
                    began.append(packet.dts)
                yield packet

        for number, frame in enumerate(self.frames(watched())):
            first = first or frame
            if self.clock != "pts":
                self.origin = self.stamp(frame)
                self.delay = self.origin - began[0] if self.clock == "dts" and began else 0
            elif frame.pts is not None:  # frames before it that carry no time are a nominal step apart
                self._lead = [frame.pts - step * (number - i) for i in range(number)]
                self.origin = (*self._lead, frame.pts)[0]
            elif number < self.settings.untimed_frames:
                continue
            return first
        if first is not None:
            self.clock = "count"
            return first
        detail = f" ({self.errors[0]})" if self.errors else ""
        raise refused(
            self.path, f"not one frame can be decoded{detail}", "Copy it again, or repair it.", "nothing-decodable"
        )

    def promised(self) -> float | None:
        """Seconds of this stream by the container's own word, None where it says nothing of this stream."""
        if self.stream.duration:
            return float(self.stream.duration * self.base)
        tag = self.stream.metadata.get("DURATION", "")  # Matroska, "H:MM:SS.nnnnnnnnn", counted from its own zero
        parts = tag.split(":")
        if len(parts) != 3:
            return None
        try:
            seconds = sum(float(value) * unit for value, unit in zip(parts, (3600, 60, 1), strict=True))
        except ValueError:
            return None
        return seconds - float(self.origin * self.base) if seconds > 0 else None

    def reopen(self) -> None:
        """Back to the very beginning, whatever the format can or cannot do."""
        self.container.close()
        self.container = open_container(self.path)
        self.stream = choose_stream(self.container, self.path, self.settings.threads)
        self._restart()
        self.errors.clear()
        self.failed_at = None

    def _restart(self) -> None:
        """Forget what was read: the next packet is the first after opening or a seek."""
        self._count, self._last, self._due, self._shift, self.jumped = 0, None, None, 0, False

    # -- time ----------------------------------------------------------------------------------------------------

    def stamp(self, frame: VideoFrame) -> int:
        """The frame's timestamp in `base` units; for streams without a clock, counted from the nominal rate.

        Call once per decoded frame, in order.
        """
        step = max(1, round(self.step / self.base))
        mark = frame.pts if self.clock == "pts" else frame.dts if self.clock == "dts" else None
        if mark is None and self._last is None:
            mark = frame.pts  # a tail without decoding times, reached by seeking
        if mark is None or (self._last is not None and mark <= self._last and self.clock != "pts"):
            mark = 0 if self._last is None else self._last + step
        if self.clock == "count":
            mark = round(self._count * self.step / self.base)
        elif self.clock == "pts" and frame.pts is None and self._count < len(self._lead):
            mark = self._lead[self._count]
        self._count += 1
        self._last = mark
        return mark

    def time(self, stamp: int) -> float:
        """Seconds from the first displayed frame."""
        return float((stamp - self.origin) * self.base)

    def length(self, frame: VideoFrame) -> float:
        """Seconds the frame is shown, from its packet or the nominal rate."""
        return float(frame.duration * self.base) if frame.duration else float(self.step)

    # -- reading -------------------------------------------------------------------------------------------------

    def packets(self) -> Iterator[Packet]:
        """Packets of the stream in file order, going on behind read errors, without the closing empty packet."""
        import av

        failures = 0
        jumping = self.container.format.name in JUMPING
        while True:
            try:
                for packet in self.container.demux(self.stream):
                    failures = 0
                    if packet.size:
                        if jumping:
                            self._rebase(packet)
                        yield packet
                return
            except (av.FFmpegError, OSError, ValueError) as error:
                failures += 1
                self._failed(error, None)
                if failures > self.settings.tolerated_errors:
                    return

    def _failed(self, error: BaseException, pts: int | None) -> None:
        """Remember an error and where it struck first."""
        self.errors.append(short(error))
        if self.failed_at is None and pts is not None:
            self.failed_at = self.time(pts)

    def _rebase(self, packet: Packet) -> None:
        """Keep time going on where the container's clock starts again or leaps (the limits are those of ffmpeg)."""
        if packet.dts is None:
            return
        due = self._due
        behind = float((packet.dts + self._shift - due) * self.base) if due is not None else 0.0
        if due is not None and (behind < -self.settings.jump_back or behind > self.settings.jump_ahead):
            self._shift = due - packet.dts
            self.jumped = True
        packet.dts += self._shift
        if packet.pts is not None:
            packet.pts += self._shift
        self._due = packet.dts + (packet.duration or round(self.step / self.base))

    def continuous(self) -> bool:
        """Whether times of the container may be used to seek: its clock never starts again. Reads smaller files through;
        larger ones are a camera's, written in one go."""
        if self._straight is None:
            self._straight = True
            if self.container.format.name in JUMPING and self.path.stat().st_size <= self.settings.scan_bytes:
                self.reopen()
                for _ in self.packets():
                    if self.jumped:
                        self._straight = False
                        break
        return self._straight

    def frames(self, packets: Iterable[Packet | None]) -> Iterator[VideoFrame]:
        """Decoded frames of the packets in display order, going on behind decoding errors.

        None among the packets: bring out what the decoder holds and start it afresh.
        """
        import av

        for packet in chain(packets, (None,)):
            try:
                yield from self.stream.decode(packet)
            except (av.FFmpegError, ValueError) as error:
                self._failed(error, packet.pts if packet is not None else None)
            if packet is None:
                self.stream.codec_context.flush_buffers()

    def seek(self, time: float) -> bool:
        """Go to a key frame at or before `time` (seconds). False: not possible, the file is back at its beginning."""
        import av

        if self.clock == "count" or time <= 0 or not self.continuous():
            self.reopen()
            return False
        margin = 0.0
        while margin < time:
            target = self.origin + int(Fraction(max(0.0, time - margin)) / self.base)
            try:
                self._jump(target)
                landed = self._peek()
                if landed is not None and self.time(landed) <= time:
                    self._jump(target)
                    self.errors.clear()
                    self.failed_at = None
                    return True
            except (av.FFmpegError, OSError, ValueError):
                break
            margin = margin * 4 or self.settings.seek_margin
        self.reopen()
        return False

    def _jump(self, target: int) -> None:
        self.container.seek(target, stream=self.stream, backward=True)
        self._restart()
        self._count = len(self._lead)

    def _peek(self) -> int | None:
        """Stamp of the first frame that comes out from here, None where it is no key frame. Behind a key frame that only begins to refresh the picture
        it is a later one than the packet says; once two key frames have kept their word, packets are believed."""
        promised: list[int] = []

        def watched() -> Iterator[Packet]:
            for packet in self.packets():
                if packet.is_keyframe and packet.pts is not None:
                    promised.append(packet.pts)
                yield packet

        if self.clock == "pts" and self._kept >= 2:
            for _ in watched():
                if promised:
                    return promised[0]
            return None
        for frame in self.frames(watched()):
            stamp = self.stamp(frame)
            if not frame.key_frame:
                return None
            self._kept += bool(promised) and promised[0] == stamp
            return stamp
        return None
