"""The words of a stage file: examples (a query and where it is answered), and narrations."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from vilco_app.values import SCHEMA, Box, TimedBox

Family = Literal["nlq", "mq", "vq"]
Split = Literal["train", "heldout"]
FAMILIES: tuple[Family, ...] = ("nlq", "mq", "vq")


@dataclass(frozen=True)
class QueryFrame:
    """The picture asked with, as a box in a frame (time in seconds) of a recording."""

    video: str
    time: float
    box: Box

    def to_json(self) -> dict[str, Any]:
        return {
            "video": self.video,
            "time": self.time,
            "box": [self.box.x1, self.box.y1, self.box.x2, self.box.y2],
        }


@dataclass(frozen=True)
class Example:
    """One labelled query.

    windows: ((start, end), ...) in seconds of `video`; () means "not in this video". track: boxes in time order (vq).
    before: only footage before this time (seconds) may answer (vq). source: where a benchmark example came from, so that
    its own form can be written back. extra: unknown fields of the file, kept.
    """

    id: str
    video: str
    windows: tuple[tuple[float, float], ...]
    query: str | None = None
    category: str | None = None
    image: str | None = None
    query_frame: QueryFrame | None = None
    track: tuple[TimedBox, ...] = ()
    before: float | None = None
    split: Split = "train"
    source: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The words of the query; "" for a picture."""
        return self.query or self.category or ""

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"id": self.id, "video": self.video}
        for name in ("query", "category", "image", "before"):
            if getattr(self, name) is not None:
                out[name] = getattr(self, name)
        if self.query_frame is not None:
            out["query_frame"] = self.query_frame.to_json()
        if self.track:
            out["track"] = [b.to_json() for b in self.track]
            first, last = self.track[0].time, self.track[-1].time
        if not self.track or self.windows != ((first, max(last, first + 0.2)),):  # format.track_window
            out["windows"] = [list(w) for w in self.windows]
        out["split"] = self.split
        if self.source:
            out["source"] = self.source
        return {**out, **self.extra}


@dataclass(frozen=True)
class Narration:
    """A sentence said of the footage around `time` (seconds)."""

    video: str
    time: float
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"video": self.video, "time": self.time, "text": self.text}


@dataclass(frozen=True)
class Stage:
    """One continual-learning task: examples of one query family, and optional narrations.

    folder: relative `video` and `image` paths are relative to it. warnings: one sentence each, naming the example.
    """

    name: str
    family: Family
    examples: tuple[Example, ...]
    narrations: tuple[Narration, ...] = ()
    folder: Path = Path()
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def part(self, split: Split) -> tuple[Example, ...]:
        return tuple(e for e in self.examples if e.split == split)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "name": self.name, "family": self.family,
            "examples": [e.to_json() for e in self.examples], "narrations": [n.to_json() for n in self.narrations],
            **self.extra,
        }  # fmt: skip
