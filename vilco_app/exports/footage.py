"""What writers need to know of the recordings an answer points into: files, their order, their frame rate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vilco_app.values import Moment, VilcoError
from vilco_app.video.types import Recording

FALLBACK_RATE = 30.0  # frames per second where a file states none (pure VFR): the commonest editing timebase


class Resolver(Protocol):
    """The part of the library that exports use."""

    def recording(self, video: str) -> Recording: ...


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
            self._recordings[moment.video] = self._open(moment)
        return self._recordings[moment.video]

    def _open(self, moment: Moment) -> Recording:
        if self._library is not None:
            try:
                return self._library.recording(moment.video)
            except VilcoError:
                if not Path(moment.path).is_file():
                    raise
        if not Path(moment.path).is_file():
            raise VilcoError(
                "file-missing", f"{moment.path} is not there.", "Put it back, or ask again from its new place."
            )
        from vilco_app.video import open_recording

        return open_recording([Path(moment.path)])

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
