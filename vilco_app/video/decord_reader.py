"""Reading with decord: random access by time, for thumbnails, evidence and dense matching.

decord numbers frames and lists their times; it knows nothing of damage, of frames an edit list hides or of pixel aspect.
So it serves a file only after its list of times has been held against what PyAV says of the file, and PyAV serves the
rest (see `frames_at`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vilco_app.values import VideoRefused
from vilco_app.video.geometry import Shaper
from vilco_app.video.opening import refused
from vilco_app.video.sampling import ReadReport, Sample, SampleStream, bin_of
from vilco_app.video.settings import ReadSettings
from vilco_app.video.source import Source
from vilco_app.video.types import SampleBatch

if TYPE_CHECKING:
    from av.packet import Packet

Result = TypeVar("Result")

# NAL unit types of pictures that nothing behind refers across, with the bits that hold the type (mask, shift)
_REFRESH = {"h264": ({5}, 0x1F, 0), "hevc": ({19, 20}, 0x7E, 1)}


def _refreshes(packet: Packet, codec: str) -> bool:
    """Whether a packet of length-prefixed NAL units (mp4, Matroska) holds an instantaneous refresh."""
    types, mask, shift = _REFRESH[codec]
    data, at = memoryview(packet), 0
    while at + 5 <= len(data):
        if (data[at + 4] & mask) >> shift in types:
            return True
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return False


class DecordReader:
    """The decord backend (see `vilco_app.video.types.Reader`). Raises VideoRefused with code "decord-refuses" where
    decord is absent or cannot be trusted with the file."""

    name = "decord"

    def __init__(self, settings: ReadSettings | None = None) -> None:
        self.settings = settings or ReadSettings()

    def samples(
        self, path: Path, rate: float, short_side: int | None, start: float = 0.0, keyframes_only: bool = False,
        batch: int = 32,
    ) -> SampleStream:  # fmt: skip
        """See `Reader.samples`; the choice of frames is the one of PyAV's pass, made on decord's list of times."""

        def run(report: ReadReport) -> Iterator[Sample]:
            file = _File(Path(path), short_side, self.settings)
            offered = file.keys() if keyframes_only else range(len(file.times))
            chosen, last = [], -1
            for index in offered:
                which = bin_of(file.times[index], rate, self.settings.slack)
                if which > last:
                    last = which
                    chosen.append(index)
            chosen = [i for i in chosen if file.times[i] >= start - 1e-6]
            for first in range(0, len(chosen), batch):
                part = chosen[first : first + batch]
                for index, frame in zip(part, file.frames(part), strict=True):
                    yield Sample(float(file.times[index]), float(file.lengths[index]), frame)
            report.reach(float(file.times[-1] + file.lengths[-1]))
            report.complete = True

        return SampleStream(run, batch)

    def at(self, path: Path, times: Sequence[float], short_side: int | None) -> SampleBatch:
        """See `Reader.at`."""
        file = _File(Path(path), short_side, self.settings)
        wanted = np.asarray(times, dtype=float) + self.settings.slack
        index = np.clip(np.searchsorted(file.times, wanted, side="right") - 1, 0, len(file.times) - 1)
        unique, back = np.unique(index, return_inverse=True)  # ascending: decord reads on instead of seeking back
        frames = file.frames(unique.tolist())
        return SampleBatch(file.times[index], file.lengths[index], frames[back])


class _File:
    """A file opened by decord, with its list of times [N] seconds (ours) and lengths [N] seconds."""

    def __init__(self, path: Path, short_side: int | None, settings: ReadSettings) -> None:
        self._path, self._settings = path, settings
        with Source(path, settings) as source:
            self._check(source)
            shaper = Shaper(source.aspect, short_side, settings.scale_threads)
            self._size = shaper.size(source.first)
            first = shaper.array(source.first)
            start = source.stream.start_time
            shift, base = (start or 0) - source.origin, float(source.base)
        self._reader = self._guard(self._open)
        stamps = self._guard(lambda: self._reader.get_frame_timestamp(range(len(self._reader))))
        # its times are single precision: back to whole units of the stream's clock
        times = (np.round(np.asarray(stamps, dtype=np.float64).reshape(-1, 2) / base) + shift) * base
        self._skip = int(np.searchsorted(times[:, 0], -settings.slack))
        self.times = times[self._skip :, 0]
        if not len(self.times) or not np.isfinite(times).all() or (np.diff(times[:, 0]) <= 0).any():
            raise self._refusal("its list of times is not in order")
        if abs(self.times[0]) > 2 * settings.slack:
            raise self._refusal(f"it starts at {self.times[0]:.3f} s for decord")
        self.times[0] = 0.0
        self.lengths = np.diff(self.times, append=max(times[-1, 1], self.times[-1]))
        shown = self.frames([0])[0]
        if np.abs(shown.astype(float) - first).mean() > settings.decord_difference:
            raise self._refusal("its first frame is another one for decord")

    def keys(self) -> list[int]:
        indices = self._guard(lambda: list(self._reader.get_key_indices()))
        return [i - self._skip for i in indices if i >= self._skip]

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        """[B, H, W, 3] uint8 of ascending frame numbers."""
        numbers = [i + self._skip for i in indices]
        return self._guard(lambda: self._reader.get_batch(numbers).asnumpy())

    def _check(self, source: Source) -> None:
        if source.clock != "pts":
            raise self._refusal("the file has no display times")
        if self._path.stat().st_size > self._settings.decord_bytes:
            raise self._refusal("decord reads a whole file to open it, and this one is large")
        codec = source.stream.codec_context.name
        if codec not in _REFRESH and codec != "vp9":
            raise self._refusal(f"decord returned wrong frames of other {codec} files")
        key: int | None = None
        for packet in islice(source.packets(), self._settings.decord_packets):
            if codec == "vp9":
                break  # no open groups in this codec
            if packet.is_keyframe:
                key = packet.pts
                if not _refreshes(packet, codec):
                    raise self._refusal("a key frame does not refresh the picture, so decord seeks wrongly")
            elif key is not None and packet.pts is not None and packet.pts < key:
                raise self._refusal("it has open groups of pictures, in which decord seeks wrongly")

    def _open(self) -> Any:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        width, height = self._size
        return decord.VideoReader(str(self._path), width=width, height=height, num_threads=self._settings.threads)

    def _guard(self, call: Callable[[], Result]) -> Result:
        """The call's result; VideoRefused when decord fails or takes too long (it cannot be interrupted, only left)."""
        box: list[Any] = []

        def work() -> None:
            try:
                box.append((True, call()))
            except Exception as error:
                box.append((False, error))

        thread = threading.Thread(target=work, daemon=True, name="decord")
        thread.start()
        thread.join(self._settings.decord_timeout)
        if not box:
            raise self._refusal("decord does not come back")
        done, value = box[0]
        if not done:
            raise self._refusal(str(value).strip().splitlines()[0][:120] if str(value).strip() else repr(value))
        return value  # type: ignore[no-any-return]

    def _refusal(self, reason: str) -> VideoRefused:
        return refused(self._path, reason, "PyAV reads it.", "decord-refuses")
