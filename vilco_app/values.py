"""The words of the house: what is asked, what is answered, and how both look as JSON.

Times are seconds from the first displayed frame of a recording (PTS), as floats. Boxes are fractions in [0, 1] of the
displayed frame (rotation and sample aspect ratio applied). This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 1

Source = Literal["correction", "zero-shot", "vilco", "fused"]
Kind = Literal["text", "moment", "visual"]
SOURCES: tuple[Source, ...] = get_args(Source)
KINDS: tuple[Kind, ...] = get_args(Kind)
State = Literal["waiting", "preview", "indexing", "ready", "gaps", "missing"]


class VilcoError(Exception):
    """An error a person meets: what it is about, why, and what to do.

    code: stable short name ("not-a-video"); message: names the file or field and the reason; remedy: one sentence.
    """

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(f"{message} {remedy}")
        self.code, self.message, self.remedy = code, message, remedy

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "error": {"code": self.code, "message": self.message, "remedy": self.remedy}}


class VideoRefused(VilcoError):
    """A file no backend can read a single frame of."""


@dataclass(frozen=True)
class Box:
    """A rectangle in fractions of the displayed frame, 0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1."""

    x1: float
    y1: float
    x2: float
    y2: float

    def __post_init__(self) -> None:
        if not (0 <= self.x1 < self.x2 <= 1 and 0 <= self.y1 < self.y2 <= 1):
            raise VilcoError(
                "bad-box",
                f"box {self.x1:g},{self.y1:g},{self.x2:g},{self.y2:g} is not x1,y1,x2,y2 inside the frame.",
                "Give fractions of the displayed frame with x1 < x2 and y1 < y2, such as 0.1,0.2,0.5,0.6.",
            )


@dataclass(frozen=True)
class TimedBox:
    """A box at a time (seconds)."""

    time: float
    x1: float
    y1: float
    x2: float
    y2: float

    def to_json(self) -> list[float]:
        return [round(v, 4) for v in (self.time, self.x1, self.y1, self.x2, self.y2)]


@dataclass(frozen=True)
class TextQuery:
    """A natural-language query (NLQ)."""

    text: str
    kind: Kind = field(default="text", init=False)

    def label(self) -> str:
        return self.text


@dataclass(frozen=True)
class MomentQuery:
    """A moment query (MQ): one or more activity categories; every window of each is wanted."""

    categories: tuple[str, ...]
    kind: Kind = field(default="moment", init=False)

    def label(self) -> str:
        return ", ".join(self.categories)


@dataclass(frozen=True)
class VisualQuery:
    """A visual query (VQ): an RGB image [H, W, 3] uint8 of the thing looked for, already cropped to `box` if one was given.

    digest: hash of the pixels, so that a correction of the same picture is found again; name: how it is shown.
    """

    image: np.ndarray
    digest: str
    name: str = "picture"
    kind: Kind = field(default="visual", init=False)

    def label(self) -> str:
        return self.name


Query = TextQuery | MomentQuery | VisualQuery


@dataclass(frozen=True)
class Moment:
    """A window [start, end] (seconds) of a recording, with a score; larger is better, comparable within one answer."""

    video: str
    path: str
    start: float
    end: float
    score: float
    source: Source = "zero-shot"
    category: str | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "video": self.video, "path": self.path, "start": round(self.start, 3), "end": round(self.end, 3),
            "score": round(self.score, 4), "source": self.source,
        }  # fmt: skip
        if self.category is not None:
            out["category"] = self.category
        return out


@dataclass(frozen=True)
class Track:
    """A moment with boxes in time order: where the thing looked for was seen."""

    moment: Moment
    boxes: tuple[TimedBox, ...]

    def to_json(self) -> dict[str, Any]:
        return {**self.moment.to_json(), "boxes": [b.to_json() for b in self.boxes]}


@dataclass(frozen=True)
class Curve:
    """The saliency of one recording for one query: values[i] holds at times[i] seconds."""

    video: str
    times: tuple[float, ...]
    values: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "video": self.video,
            "times": [round(t, 3) for t in self.times],
            "values": [round(v, 4) for v in self.values],
        }


@dataclass(frozen=True)
class Searched:
    """What an answer looked through: number of recordings, their length, how much of it is indexed (seconds), their ids."""

    videos: int
    seconds: float
    indexed_seconds: float
    ids: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "videos": self.videos,
            "seconds": round(self.seconds, 3),
            "indexed_seconds": round(self.indexed_seconds, 3),
        }
        return {**out, "ids": list(self.ids)} if self.ids else out


@dataclass(frozen=True)
class Concept:
    """A word the encoder knows that a question was mapped to, with its weight in [0, 1]."""

    name: str
    weight: float


@dataclass(frozen=True)
class Answer:
    """Ranked moments (and tracks, for a visual query), what was searched, whether it was found, by which model."""

    query: str
    kind: Kind
    confidence: float
    threshold: float
    searched: Searched
    moments: tuple[Moment, ...]
    tracks: tuple[Track, ...] = ()
    curves: tuple[Curve, ...] = ()
    snapshot: str = "base"
    profile: str = ""
    milliseconds: float = 0.0
    concepts: tuple[Concept, ...] = ()
    with_curves: bool = False
    digest: str | None = None
    categories: tuple[str, ...] = ()  # of a moment query, as asked

    @property
    def found(self) -> bool:
        return self.to_confidence() >= self.threshold

    def to_confidence(self) -> float:
        """The confidence as printed, so that `found` agrees with what a reader of the JSON sees."""
        return round(min(1.0, max(0.0, self.confidence)), 4)

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "schema": SCHEMA, "query": self.query, "kind": self.kind, "found": self.found,
            "confidence": self.to_confidence(), "threshold": self.threshold, "searched": self.searched.to_json(),
            "moments": [m.to_json() for m in self.moments], "tracks": [t.to_json() for t in self.tracks],
        }  # fmt: skip
        if self.with_curves:
            out["curves"] = [c.to_json() for c in self.curves]
        out["concepts"] = [[c.name, round(c.weight, 3)] for c in self.concepts]
        if self.digest is not None:
            out["digest"] = self.digest  # lets `vilco correct` file a correction under the picture itself
        if self.categories:
            out["categories"] = list(self.categories)
        out["model"] = {"snapshot": self.snapshot, "profile": self.profile}
        out["milliseconds"] = round(self.milliseconds, 1)
        return out


@dataclass(frozen=True)
class PastQuestion:
    """An answer given earlier (without its curves) and when (ISO 8601, UTC)."""

    answer: Answer
    asked: str

    def to_json(self) -> dict[str, Any]:
        return {**self.answer.to_json(), "asked": self.asked}


@dataclass(frozen=True)
class Video:
    """One recording of the library. path: of its (first) file; parts: all files of a chaptered recording, in order."""

    id: str
    path: str
    duration: float
    state: State
    indexed_seconds: float
    profile: str
    parts: tuple[str, ...] = ()
    width: int = 0
    height: int = 0
    note: str = ""
    recorded_at: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "path": self.path, "duration": round(self.duration, 3), "state": self.state,
            "indexed_seconds": round(self.indexed_seconds, 3), "profile": self.profile, "parts": list(self.parts),
            "width": self.width, "height": self.height, "note": self.note, "recorded_at": self.recorded_at,
        }  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """A file that was not taken: one reason and one remedy."""

    path: str
    reason: str
    remedy: str
    code: str = "refused"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "reason": self.reason, "remedy": self.remedy, "code": self.code}


@dataclass(frozen=True)
class AddReport:
    """What `add` did: ids added (or completed), ids that were there already, files refused, warnings by file."""

    added: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "added": list(self.added), "unchanged": list(self.unchanged),
            "refused": [r.to_json() for r in self.refused], "warnings": list(self.warnings),
        }  # fmt: skip


@dataclass(frozen=True)
class Correction:
    """What a person said of an answer: windows that are right for the query on one recording, or () for "not in here".

    key: kind + normalised question (or picture digest), so that the same question finds it.
    """

    id: str
    key: str
    query: str
    kind: Kind
    video: str
    windows: tuple[tuple[float, float], ...]
    created: str

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "query": self.query, "kind": self.kind, "video": self.video,
            "windows": [list(w) for w in self.windows], "created": self.created,
        }  # fmt: skip
