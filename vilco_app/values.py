"""The words of the house: what is asked, what is answered, and how both look as JSON.

Times are seconds from the first displayed frame of a recording (PTS), as floats. Boxes are fractions in [0, 1] of the
displayed frame (rotation and sample aspect ratio applied). This module imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
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

    @staticmethod
    def from_json(data: dict[str, Any]) -> Answer:
        """Read an answer written by `to_json`. Raises VilcoError naming the field that is missing or of a wrong type."""
        try:
            if data.get("schema") != SCHEMA:
                raise VilcoError(
                    "bad-answer", f"schema is {data.get('schema')!r}, not {SCHEMA}.",
                    "Use an answer written by this version: vilco ask ... --json > answer.json",
                )  # fmt: skip

            def moment(m: dict[str, Any]) -> Moment:
                category = m.get("category")
                if not 0 <= _number(m, "start") <= _number(m, "end"):
                    raise ValueError(f"{m['start']:g} to {m['end']:g} s is not a window")
                return Moment(
                    _plain_name(m, "video"), _word(m, "path"), _number(m, "start"), _number(m, "end"),
                    _number(m, "score"), _one_of(m.get("source", "zero-shot"), "source", SOURCES),
                    None if category is None else _word(m, "category"),
                )  # fmt: skip

            return Answer(
                query=_word(data, "query"), kind=_one_of(data["kind"], "kind", KINDS),
                confidence=_number(data, "confidence"), threshold=_number(data, "threshold"),
                searched=Searched(
                    int(_number(data["searched"], "videos")),
                    _number(data["searched"], "seconds"),
                    _number(data["searched"], "indexed_seconds"),
                    tuple(_plain_name({"ids": v}, "ids") for v in data["searched"].get("ids", ())),
                ),
                moments=tuple(moment(m) for m in data["moments"]),
                tracks=tuple(
                    Track(moment(t), tuple(TimedBox(*(_real(v, "boxes") for v in b)) for b in t["boxes"]))
                    for t in data["tracks"]
                ),
                curves=tuple(
                    Curve(
                        _plain_name(c, "video"), tuple(_real(v, "times") for v in c["times"]),
                        tuple(_real(v, "values") for v in c["values"]),
                    )
                    for c in data.get("curves", ())
                ),
                snapshot=_word(data["model"], "snapshot"), profile=_word(data["model"], "profile"),
                milliseconds=_number(data, "milliseconds"), with_curves="curves" in data,
                digest=None if data.get("digest") is None else _word(data, "digest"),
                concepts=tuple(Concept(str(n), _real(w, "concepts")) for n, w in data.get("concepts", ())),
                categories=tuple(_word({"categories": c}, "categories") for c in data.get("categories", ())),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise VilcoError(
                "bad-answer", f"not an answer: {reason}.", "Use a file written by: vilco ask ... --json > answer.json"
            ) from None


def _real(value: Any, name: str) -> float:
    """A finite number of an answer's JSON; ValueError names the field otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e15 < value < 1e15:
        raise ValueError(f"{name} is {value!r}, not a number")
    return value


def _number(data: dict[str, Any], name: str) -> float:
    return _real(data[name], name)


def _word(data: dict[str, Any], name: str) -> str:
    value = data[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _plain_name(data: dict[str, Any], name: str) -> str:
    """An id; files are named after it, so it may not lead out of a folder."""
    value = _word(data, name)
    if not value or set(value) & set("/\\\0"):
        raise ValueError(f"{name} is {value!r}, not an id")
    return value


def _one_of(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(choices)}")
    return value


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


def resolve_home(home: str | Path | None = None) -> Path:
    """The data folder: the argument, else $VILCO_HOME, else the checkout that holds app.py, else the user's data folder.

    It holds `indexes/` (library) and `models/` (snapshots and converted encoders).
    """
    import os

    if home is not None:
        return Path(home).expanduser().resolve()
    if os.environ.get("VILCO_HOME"):
        return Path(os.environ["VILCO_HOME"]).expanduser().resolve()
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "app.py").is_file() and (checkout / "pyproject.toml").is_file():
        return checkout
    import platformdirs

    return Path(platformdirs.user_data_dir("vilco", appauthor=False))
