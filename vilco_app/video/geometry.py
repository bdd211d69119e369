"""From coded pixels to the displayed frame: display matrix, sample aspect ratio, colour, target size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

HD_HEIGHT = 720  # from here on untagged footage is BT.709, below BT.601: what players assume


@dataclass(frozen=True)
class Turn:
    """How the coded frame is turned for display: mirrored left-right first, then `quarters` quarter turns clockwise."""

    quarters: int = 0
    mirror: bool = False

    @property
    def degrees(self) -> int:
        """Clockwise degrees in 0, 90, 180, 270."""
        return 90 * self.quarters

    def apply(self, frame: np.ndarray) -> np.ndarray:
        """frame [H, W, 3] as coded -> as displayed ([W, H, 3] after an odd number of quarter turns)."""
        if self.mirror:
            frame = frame[:, ::-1]
        if self.quarters:
            frame = np.rot90(frame, k=-self.quarters)
        return np.ascontiguousarray(frame)


def turn_of(matrix: bytes | None) -> Turn:
    """The turn of a 3x3 display matrix (9 little-endian int32, 16.16 fixed point), to the nearest quarter turn.

    A coded point (x right, y down) is shown at (a x + c y, b x + d y) with a, b, c, d the entries 0, 1, 3, 4.
    """
    if matrix is None or len(matrix) < 36:
        return Turn()
    a, b, _, c, d = np.frombuffer(matrix, dtype="<i4", count=5).astype(float)
    mirror = a * d - b * c < 0
    if mirror:  # undo the left-right mirror that comes first
        a, b = -a, -b
    if a == 0 and b == 0:
        return Turn()
    return Turn(round(np.degrees(np.arctan2(b, a)) / 90) % 4, bool(mirror))


def frame_turn(frame: VideoFrame) -> Turn:
    """The turn a decoded frame carries as side data.

    Looking at side data ties the frame into a reference cycle, so that its pixels live until the next full garbage
    collection: ask once per file, not once per frame.
    """
    try:
        return turn_of(bytes(frame.side_data["DISPLAYMATRIX"]))  # type: ignore[typeddict-item]
    except KeyError:
        return Turn()


def displayed_size(width: int, height: int, aspect: Fraction | float, turn: Turn) -> tuple[int, int]:
    """(width, height) as displayed of a coded size: wide or tall pixels made square, then turned."""
    wide = max(1, round(width * float(aspect)))
    return (height, wide) if turn.quarters % 2 else (wide, height)


def scaled_size(width: int, height: int, short_side: int | None) -> tuple[int, int]:
    """(width, height) scaled so that the shorter side is `short_side` pixels; unchanged for None."""
    if short_side is None:
        return width, height
    scale = short_side / min(width, height)
    if width <= height:
        return short_side, max(1, round(height * scale))
    return max(1, round(width * scale)), short_side


class Shaper:
    """Makes RGB arrays of decoded frames: colour conversion and scaling in one swscale pass straight to the target size.

    aspect: the stream's sample aspect ratio; short_side: as in `scaled_size`. Not thread-safe (it keeps one scaler).
    """

    def __init__(self, aspect: Fraction | float, short_side: int | None, threads: int = 1) -> None:
        from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

        self._aspect, self._short_side, self._threads = aspect or 1, short_side, threads
        self._scaler = VideoReformatter()
        self._filter = Interpolation.BICUBIC
        self._turn: tuple[int, Turn] | None = None  # the frame's rotation, and the turn read when it was last seen
        self._hd, self._sd = int(Colorspace.ITU709), int(Colorspace.ITU601)

    def size(self, frame: VideoFrame) -> tuple[int, int]:
        """(width, height) of the array this frame becomes."""
        turn = self._turn_of(frame)
        return scaled_size(*displayed_size(frame.width, frame.height, self._aspect, turn), self._short_side)

    def _turn_of(self, frame: VideoFrame) -> Turn:
        rotation = frame.rotation
        if self._turn is None or self._turn[0] != rotation:
            self._turn = (rotation, frame_turn(frame))
        return self._turn[1]

    def array(self, frame: VideoFrame, size: tuple[int, int] | None = None) -> np.ndarray:
        """-> [H, W, 3] uint8 RGB as displayed. size: (width, height) to stretch to instead of the frame's own."""
        turn = self._turn_of(frame)
        width, height = size or self.size(frame)
        if turn.quarters % 2:
            width, height = height, width
        space = None
        if int(frame.colorspace) == 2:  # unspecified
            space = self._hd if min(frame.width, frame.height) >= HD_HEIGHT else self._sd
        scaled = self._scaler.reformat(
            frame, width, height, "rgb24", src_colorspace=space, interpolation=self._filter, threads=self._threads
        )
        return turn.apply(scaled.to_ndarray())
