"""Which packets a sampling pass has to decode.

Packets carry their display time before they are decoded, and a packet's decoding time (DTS) is never behind its display
time. So once a packet with DTS >= t has been read, every packet shown before t is known, and with it which frame is the
first of its bin (see `sampling.bin_of`): a *target*. Decoding then needs, in each group of pictures, only what comes
before its last target, and of that only targets and reference frames. The samples are those of a plain decode.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from vilco_app.video.settings import ReadSettings

if TYPE_CHECKING:
    from av.packet import Packet


class Need(IntEnum):
    """What the decoder should do with a packet."""

    NOTHING = 0
    REFERENCE = 1  # decode it if other frames refer to it
    FRAME = 2


@dataclass
class Step:
    """One packet, what is needed of it, and whether the decoder has to start afresh at it (packets before were left out)."""

    packet: Packet
    need: Need
    fresh: bool = False


class KeyTrust:
    """Whether the container's key frame flags are true: a file without a sync table calls every packet a key frame.

    Flags count once two packets that carried them came out of the decoder as key frames, and never after one did not.
    """

    def __init__(self) -> None:
        self._flagged: set[int] = set()
        self._right, self._wrong = 0, False

    def __bool__(self) -> bool:
        return self._right >= 2 and not self._wrong

    def sent(self, packet: Packet) -> None:
        if packet.is_keyframe and packet.pts is not None and self._right < 2:
            self._flagged.add(packet.pts)

    def came(self, pts: int | None, key: bool) -> None:
        if pts is not None and pts in self._flagged:
            self._flagged.discard(pts)
            self._right += key
            self._wrong = self._wrong or not key


@dataclass(frozen=True)
class _Held:
    """A packet waiting for its decision: its PTS, its bin, whether it can be shown at all."""

    packet: Packet
    pts: int
    bin: int


class Planner:
    """Turns packets in file order into steps in the same order, reading a little ahead.

    bin_of: the bin of a PTS; bins up to last_bin are done. Packets without a PTS are decoded in full.
    """

    def __init__(self, bin_of: Callable[[int], int], last_bin: int, trust: KeyTrust, settings: ReadSettings) -> None:
        self._bin_of, self._last_bin, self._trust, self._settings = bin_of, last_bin, trust, settings
        self._held: deque[_Held] = deque()
        self._bytes = 0
        self._first: dict[int, int] = {}  # bin -> smallest PTS seen
        self._mark: int | None = None  # largest DTS read: everything shown before it is known
        self._wait: int | None = None  # smallest PTS held that settles something once the mark reaches it
        self._gap = False  # packets before the next one were left out
        self._entry: int | None = None  # PTS of the key frame at which decoding began afresh

    def steps(self, packets: Iterator[Packet]) -> Iterator[Step]:
        for packet in packets:
            if packet.pts is None:
                yield from self._release(len(self._held), whole=True)
                yield Step(packet, Need.FRAME, self._gap)
                self._gap = False
                continue
            self._take(packet, packet.pts)
            if self._mark is not None and self._wait is not None and self._mark >= self._wait:
                yield from self._settle(self._mark)
            elif len(self._held) > self._settings.lookahead_packets or self._bytes > self._settings.lookahead_bytes:
                yield from self._release(len(self._held), whole=True)
        yield from self._release(len(self._held))

    def _take(self, packet: Packet, pts: int) -> None:
        which = self._bin_of(pts)
        self._held.append(_Held(packet, pts, which))
        self._bytes += packet.size
        if packet.dts is not None:
            self._mark = packet.dts if self._mark is None else max(self._mark, packet.dts)
        leads = not packet.is_discard and which > self._last_bin and pts < self._first.get(which, pts + 1)
        if leads:
            self._first[which] = pts
        if leads or packet.is_keyframe:
            self._wait = pts if self._wait is None else min(self._wait, pts)

    def _is_target(self, held: _Held) -> bool:
        return self._first.get(held.bin) == held.pts and not held.packet.is_discard

    def _settle(self, mark: int) -> Iterator[Step]:
        """Release all up to the last packet known to be a target, or up to before the last known key frame."""
        count, self._wait = 0, None
        for index, held in enumerate(self._held):
            target = self._is_target(held)
            if not target and not held.packet.is_keyframe:
                continue
            if held.pts > mark:
                self._wait = held.pts if self._wait is None else min(self._wait, held.pts)
            elif target:
                count = index + 1
            elif self._trust:
                count = index
        if count:
            yield from self._release(count)

    def _release(self, count: int, whole: bool = False) -> Iterator[Step]:
        """The first `count` held packets as steps. whole: decode every one of them."""
        for need in self._needs(whole)[:count]:
            held = self._held.popleft()
            self._bytes -= held.packet.size
            if held.packet.is_keyframe:
                self._entry = None
            early = self._entry is not None and held.pts < self._entry
            if need is not Need.NOTHING and not early:
                yield Step(held.packet, need, fresh=self._gap)
                if self._gap and held.packet.is_keyframe:
                    self._entry = held.pts
                self._gap = False
            else:
                yield Step(held.packet, Need.NOTHING)
                self._gap = self._gap or not early
        if self._held and len(self._first) > 64:
            low = min(h.bin for h in self._held)
            self._first = {b: p for b, p in self._first.items() if b >= low}

    def _needs(self, whole: bool) -> list[Need]:
        """What is needed of each held packet, looking back from the last one.

        Inside a group of pictures, what precedes a target in file order is needed for it. A key frame ends that, unless a
        target behind it in the file is shown before it (an open group: it refers across the key frame).
        """
        needs: list[Need] = []
        wanted, earliest, trust = False, None, bool(self._trust)
        for held in reversed(self._held):
            target = self._is_target(held)
            if target:
                wanted = True
                earliest = held.pts if earliest is None else min(earliest, held.pts)
            needs.append(Need.FRAME if target or whole else Need.REFERENCE if wanted else Need.NOTHING)
            if trust and held.packet.is_keyframe and (earliest is None or earliest >= held.pts):
                wanted = False
        needs.reverse()
        return needs
