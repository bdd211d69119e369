"""Camera chapter files: one recording cut into several files by the camera, joined again with continuous time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vilco_app.values import VilcoError
from vilco_app.video.types import Part, Recording

# GoPro HERO6 and later: G, encoding (H = AVC, X = HEVC, S = spherical), two digits of chapter, four of recording.
_NEW = re.compile(r"^(G[HXS])(\d{2})(\d{4})$", re.IGNORECASE)
# GoPro up to HERO5: GOPR + recording is the first chapter, GP + chapter (from 01) + recording the others.
_OLD_FIRST = re.compile(r"^GOPR(\d{4})$", re.IGNORECASE)
_OLD_NEXT = re.compile(r"^GP(\d{2})(\d{4})$", re.IGNORECASE)


@dataclass(frozen=True)
class _Chapter:
    key: tuple[str, ...]
    number: int


def _chapter(path: Path) -> _Chapter | None:
    """Which recording the file belongs to and as which chapter, by its name; None for any other name."""
    place = (str(path.parent), path.suffix.lower())
    if match := _NEW.match(path.stem):
        return _Chapter((*place, match[1].upper(), match[3]), int(match[2]))
    if match := _OLD_FIRST.match(path.stem):
        return _Chapter((*place, "GP", match[1]), 0)
    if match := _OLD_NEXT.match(path.stem):
        return _Chapter((*place, "GP", match[2]), int(match[1]))
    return None


def group_chapters(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """Files -> recordings, in the order the first file of each came. GoPro chapters (GX010001, GX020001, ...; GH and
    GS likewise; GOPR0001, GP010001, ...) of one folder join as long as no chapter between is missing; every other file
    stands alone. DJI and Insta360 number their files without saying which belong together, so those are not joined.
    """
    known: dict[tuple[str, ...], list[tuple[int, Path]]] = {}
    order: list[list[tuple[int, Path]]] = []
    seen: set[Path] = set()
    for path in map(Path, paths):
        if path in seen:
            continue
        seen.add(path)
        chapter = _chapter(path)
        if chapter is None:
            order.append([(0, path)])
        elif chapter.key in known:
            known[chapter.key].append((chapter.number, path))
        else:
            known[chapter.key] = [(chapter.number, path)]
            order.append(known[chapter.key])
    groups: list[tuple[Path, ...]] = []
    for members in order:
        run: list[Path] = []
        before = None
        for number, path in sorted(members):
            if before is not None and number != before + 1:
                groups.append(tuple(run))
                run = []
            run.append(path)
            before = number
        groups.append(tuple(run))
    return groups


def open_recording(paths: Sequence[Path | str] | Path | str) -> Recording:
    """The recording these files make, in the order given; one path makes a recording of one file.

    Raises VideoRefused naming the file that cannot be read at all.
    """
    from vilco_app.video.probe import probe

    files = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(p) for p in paths]
    if not files:
        raise VilcoError("no-file", "A recording needs at least one file.", "Name a video file.")
    parts: list[Part] = []
    offset = 0.0
    for file in files:
        info = probe(file)
        parts.append(Part(file, offset, info.duration))
        offset += info.duration
    return Recording(tuple(parts))
