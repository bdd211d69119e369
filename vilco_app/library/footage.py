"""What the library needs of the video floor; tests put small stand-ins here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from vilco_app.video.types import Recording, SampleBatch, VideoInfo


class Footage(Protocol):
    """The part of `vilco_app.video` that indexing uses (see its docstrings)."""

    def probe(self, path: Path) -> VideoInfo: ...

    def group_chapters(self, paths: Iterable[Path]) -> list[tuple[Path, ...]]: ...

    def open_recording(self, paths: Sequence[Path]) -> Recording: ...

    def samples(
        self, recording: Recording, rate: float, short_side: int | None, start: float = 0.0,
        keyframes_only: bool = False, batch: int = 32,
    ) -> Iterator[SampleBatch]: ...  # fmt: skip


class RealFootage:
    """Files read by `vilco_app.video`."""

    def probe(self, path: Path) -> VideoInfo:
        from vilco_app.video import probe

        return probe(path)

    def group_chapters(self, paths: Iterable[Path]) -> list[tuple[Path, ...]]:
        from vilco_app.video import group_chapters

        return group_chapters(paths)

    def open_recording(self, paths: Sequence[Path]) -> Recording:
        from vilco_app.video import open_recording

        return open_recording(paths)

    def samples(
        self, recording: Recording, rate: float, short_side: int | None, start: float = 0.0,
        keyframes_only: bool = False, batch: int = 32,
    ) -> Iterator[SampleBatch]:  # fmt: skip
        from vilco_app.video import samples

        return samples(recording, rate, short_side, start=start, keyframes_only=keyframes_only, batch=batch)
