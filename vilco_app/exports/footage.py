"""What writers need to know of the recordings an answer points into: files, their order, their frame rate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vilco_app.values import Moment, Video, VilcoError
from vilco_app.video.types import Recording

FALLBACK_RATE = 30.0  # frames per second where a file states none (pure VFR): the commonest editing timebase


class Resolver(Protocol):
    """The part of the library that exports use."""

    def resolve(self, ref: str) -> Video: ...


@dataclass(frozen=True)
class Span:
    """A piece of one file: start and end in seconds from that file's first displayed frame."""

    path: Path
    start: float
    end: float
    rate: float


class Footage:
    """Looks recordings up once each. Not thread-safe: one per export."""

    def __init__(self, library: Resolver | None = None) -> None:
        self._library = library
        self._recordings: dict[str, Recording] = {}
        self._rates: dict[Path, float] = {}

    def recording(self, moment: Moment) -> Recording:
        """The files of a moment's recording. Raises VilcoError when they are gone."""
        if moment.video not in self._recordings:
            paths: tuple[str, ...] = (moment.path,)
            if self._library is not None:
                try:
                    video = self._library.resolve(moment.video)
                    paths = video.parts or (video.path,)
                except VilcoError:
                    if not Path(moment.path).exists():
                        raise
            for path in paths:
                if not Path(path).is_file():
                    raise VilcoError(
                        "missing-video", f"{path} is not there any more.",
                        "Connect its disk, or add the file again from where it is now: vilco add PATH",
                    )  # fmt: skip
            from vilco_app.video import open_recording

            self._recordings[moment.video] = open_recording([Path(p) for p in paths])
        return self._recordings[moment.video]

    def rate(self, path: Path) -> float:
        """Frames per second the file states (a VFR file: its nominal rate)."""
        if path not in self._rates:
            from vilco_app.video import probe

            rate = float(probe(path).rate or 0.0)
            self._rates[path] = rate if 1.0 <= rate <= 1000.0 else FALLBACK_RATE
        return self._rates[path]

    def spans(self, moment: Moment) -> list[Span]:
        """The moment as pieces of files, in order: one, or more where it crosses chapter files."""
        spans = []
        for part in self.recording(moment).parts:
            start = max(moment.start, part.offset) - part.offset
            end = min(moment.end, part.offset + part.duration) - part.offset
            if end > start:
                spans.append(Span(part.path, start, end, self.rate(part.path)))
        return spans
