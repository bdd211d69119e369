"""What the catalogue's rows are in Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TakeKind = Literal["preview", "full"]


@dataclass(frozen=True)
class FileRecord:
    """A file as it was when it was read: a file of the same path, size and mtime_ns has the same digest."""

    path: str
    size: int
    mtime_ns: int
    digest: str
    video: str | None


@dataclass(frozen=True)
class VideoRecord:
    """A recording, whatever it is indexed with. id: from the content of its parts; faults: what `probe` found odd."""

    id: str
    path: str
    parts: tuple[str, ...]
    duration: float
    width: int
    height: int
    recorded_at: str | None
    faults: str


@dataclass(frozen=True)
class IndexedRecord:
    """How far a recording is in one profile. rate: samples per second asked for."""

    video: str
    profile: str
    state: str
    rate: float
    note: str


@dataclass(frozen=True)
class Take:
    """One append-only set of feature arrays of a recording, in time order, committed up to the counts given here.

    seconds: footage its samples stand for; until: end of the last committed sample (s). A take that left the catalogue is
    dead for every reader and writer, whatever still lies on the disk.
    """

    id: int
    video: str
    profile: str
    kind: TakeKind
    rate: float
    global_dim: int
    region_dim: int
    rows: int = 0
    groups: int = 0
    regions: int = 0
    seconds: float = 0.0
    until: float = 0.0


@dataclass(frozen=True)
class Span:
    """Rows first:last of a take and its region rows region_first:region_last, as one segment holds them, in this order."""

    take: int
    first: int
    last: int
    region_first: int
    region_last: int


@dataclass(frozen=True)
class SegmentRecord:
    """An immutable pair of FAISS indexes over `samples` samples; spans in the order of their positions."""

    name: str
    profile: str
    samples: int
    spans: tuple[Span, ...]
