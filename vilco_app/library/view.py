"""What a profile's readers see at one moment: recordings with their takes joined to one time line."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import numpy as np

from vilco_app.library.catalogue import Catalogue
from vilco_app.library.features import SAMPLE, TakeArrays, take_folder
from vilco_app.library.records import IndexedRecord, SegmentRecord, Take, VideoRecord
from vilco_app.library.types import Stored
from vilco_app.values import State, Video, VilcoError

CACHED = 2048  # recordings whose memory maps stay open: four maps each, well under the usual limit of 65,530


@dataclass(frozen=True)
class Snapshot:
    """The catalogue as of one version, for one profile. takes: of each recording, the full one before the preview."""

    version: int
    profile: str
    records: dict[str, VideoRecord]
    indexed: dict[str, IndexedRecord]
    takes: dict[str, tuple[Take, ...]]
    forgotten: dict[str, tuple[tuple[float, float], ...]]
    segments: tuple[SegmentRecord, ...]
    _known: dict[str, tuple[Video, Video]] = field(default_factory=dict, compare=False)  # files in place, and not

    def dims(self) -> tuple[int, int]:
        """Dimensions of the profile's whole-frame and region vectors, as far as anything is stored; else 0."""
        for takes in self.takes.values():
            return takes[0].global_dim, takes[0].region_dim
        return 0, 0

    def tails(self, kind: str) -> dict[str, int]:
        """Recordings with rows (kind "globals") or region rows ("regions") in no segment, and the first such row."""
        done: dict[int, int] = {}
        for segment in self.segments:
            for span in segment.spans:
                last = span.last if kind == "globals" else span.region_last
                done[span.take] = max(done.get(span.take, 0), last)
        tails: dict[str, int] = {}
        for video, takes in self.takes.items():
            counts = [(done.get(t.id, 0), t.rows if kind == "globals" else t.regions) for t in takes]
            if any(have < rows for have, rows in counts):
                tails[video] = counts[0][0] if takes[0].kind == "full" and takes[0].rows else 0
        return tails

    def video(self, video: str) -> Video:
        """Raises VilcoError("no-such-video")."""
        known = self._known.get(video)
        if known is None:
            there = self._facts(video)
            note = f"{there.note} The file is not where it was; what was indexed can still be asked.".strip()
            known = self._known[video] = there, replace(there, state="missing", note=note)
        return known[0 if all(map(os.path.exists, known[0].parts)) else 1]  # asked anew: a disk may be unplugged

    def _facts(self, video: str) -> Video:
        record = self.records.get(video)
        if record is None:
            raise VilcoError("no-such-video", f"{video}: not in this library.", "See what is: vilco list")
        indexed, takes = self.indexed.get(video), self.takes.get(video, ())
        state: State = "waiting" if indexed is None else indexed.state  # type: ignore[assignment]
        return Video(
            id=record.id, path=record.path, duration=record.duration, state=state,
            indexed_seconds=min(max((t.seconds for t in takes), default=0.0), record.duration),
            profile=self.profile, parts=record.parts, width=record.width, height=record.height,
            note=" ".join(filter(None, (indexed.note if indexed else "", record.faults))), recorded_at=record.recorded_at,
        )  # fmt: skip


def take_snapshot(catalogue: Catalogue, profile: str) -> Snapshot:
    """Read the catalogue; retried until nothing changed meanwhile, so that the parts belong together."""
    while True:
        version = catalogue.version()
        takes: dict[str, list[Take]] = {}
        for take in catalogue.takes(profile):
            takes.setdefault(take.video, []).append(take)
        snapshot = Snapshot(
            version, profile, {v.id: v for v in catalogue.videos()},
            {i.video: i for i in catalogue.indexed(profile)},
            {video: tuple(sorted(found, key=lambda t: t.kind)) for video, found in takes.items()},  # full < preview
            catalogue.forgotten(), tuple(catalogue.segments(profile)),
        )  # fmt: skip
        if catalogue.version() == version:
            return snapshot


@dataclass(frozen=True)
class Joined:
    """The takes of a recording as one: rows first[i]: of take i stand at rows start[i]: of `stored`."""

    stored: Stored
    takes: tuple[TakeArrays, ...]
    first: tuple[int, ...]
    start: tuple[int, ...]
    region_first: tuple[int, ...]
    region_start: tuple[int, ...]

    def region_row(self, take: int, rows: np.ndarray) -> np.ndarray:
        """The same for region rows."""
        for arrays, first, start in zip(self.takes, self.region_first, self.region_start, strict=True):
            if arrays.take.id == take:
                return np.where(rows >= first, rows - first + start, -1)
        return np.full(len(rows), -1)

    def row(self, take: int, rows: np.ndarray) -> np.ndarray:
        """Rows of `stored` that show the given rows of a take; -1 where a finer take stands instead."""
        for arrays, first, start in zip(self.takes, self.first, self.start, strict=True):
            if arrays.take.id == take:
                return np.where(rows >= first, rows - first + start, -1)
        return np.full(len(rows), -1)


def join(
    root: Path, video: Video, takes: tuple[Take, ...], forgotten: tuple[tuple[float, float], ...], dims: tuple[int, int]
) -> Joined:
    """Open the takes of a recording. Where the full take has come to, it replaces the preview.

    One take stays memory-mapped; two are copied into memory, which lasts only while a recording is being indexed.
    """
    opened = [TakeArrays(take_folder(root, take), take) for take in takes if take.rows]
    until, total = -1.0, 0
    kept: list[TakeArrays] = []
    first: list[int] = []
    start: list[int] = []
    for arrays in opened:
        skip = int(np.searchsorted(arrays.samples["time"], until - 1e-6)) if kept else 0
        if skip < arrays.take.rows:
            kept.append(arrays)
            first.append(skip)
            start.append(total)
            total += arrays.take.rows - skip
        until = max(until, arrays.take.until)
    if not kept:
        stored = Stored(
            video, np.zeros(0), np.zeros(0), np.zeros((0, dims[0]), np.float16), np.zeros(0, np.int64),
            np.zeros(1, np.int64), np.zeros((0, dims[1]), np.int8), np.zeros(0, np.float32), np.zeros((0, 4), np.uint8),
            forgotten,
        )  # fmt: skip
        return Joined(stored, (), (), (), (), ())
    samples, vectors, group, offsets, regions = [], [], [], [np.zeros(1, np.int64)], []
    region_first: list[int] = []
    region_start: list[int] = []
    for arrays, skip in zip(kept, first, strict=True):
        part = arrays.samples[skip:]
        g0 = int(part["group"][0])
        r0, shift = int(arrays.offsets[g0]), int(offsets[-1][-1])
        region_first.append(r0)
        region_start.append(shift)
        group.append(part["group"] - g0 + sum(len(o) for o in offsets) - 1)
        offsets.append(np.asarray(arrays.offsets[g0 + 1 :]) - r0 + shift)
        samples.append(part)
        vectors.append(arrays.globals[skip:])
        regions.append(arrays.regions[r0:])
    one = len(kept) == 1
    table = samples[0] if one else np.concatenate([np.asarray(s, SAMPLE) for s in samples])
    rows = regions[0] if one else np.concatenate(regions)
    stored = Stored(
        video, table["time"], table["duration"], vectors[0] if one else np.concatenate(vectors),
        group[0] if one else np.concatenate(group), np.concatenate(offsets), rows["code"], rows["scale"], rows["box"],
        forgotten,
    )  # fmt: skip
    return Joined(stored, tuple(kept), tuple(first), tuple(start), tuple(region_first), tuple(region_start))


def lost(video: Video) -> VilcoError:
    return VilcoError(
        "damaged-features", f"{video.path}: its features are no longer in the library's folder.",
        f"Index it again with: vilco add {video.path}",
    )  # fmt: skip


class View:
    """Snapshots and opened recordings of one profile, refreshed when the catalogue's version moves. Thread-safe."""

    def __init__(self, catalogue: Catalogue, root: Path, profile: str) -> None:
        self.catalogue, self.root, self.profile = catalogue, root, profile
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._open: OrderedDict[tuple[object, ...], Joined] = OrderedDict()
        self._current: dict[str, Joined] = {}  # of the present snapshot
        self._held = threading.local()  # of a thread inside `still`: wanted, and the snapshot it holds on to

    def snapshot(self) -> Snapshot:
        held: Snapshot | None = getattr(self._held, "snapshot", None)
        if held is not None:
            return held
        with self._lock:
            if self._snapshot is None or self.catalogue.version() != self._snapshot.version:
                self._snapshot = take_snapshot(self.catalogue, self.profile)
                self._current = {}
            now = self._snapshot
        if getattr(self._held, "wanted", False):
            self._held.snapshot = now
        return now

    @contextmanager
    def still(self) -> Iterator[None]:
        """Inside, this thread sees the library as it was at its first look, while its files are there: a question over
        100 recordings looks 500 times."""
        if getattr(self._held, "wanted", False):
            yield
            return
        self._held.wanted = True
        try:
            yield
        finally:
            self._held.wanted, self._held.snapshot = False, None

    def refresh(self) -> None:
        """Read the catalogue again at the next look."""
        self._held.snapshot = None
        with self._lock:
            self._snapshot = None

    def joined(self, video: str, snapshot: Snapshot | None = None) -> Joined:
        """Raises VilcoError("no-such-video"); FileNotFoundError when a given snapshot is out of date."""
        given = snapshot is not None
        for attempt in range(5):
            now = snapshot if snapshot is not None and given else self.snapshot()
            with self._lock:
                if now is self._snapshot and video in self._current:
                    return self._current[video]
            facts = now.video(video)
            key = (facts, now.takes.get(video, ()), now.forgotten.get(video, ()))
            with self._lock:
                if key in self._open:
                    self._open.move_to_end(key)
                    return self._keep(video, now, self._open[key])
            try:
                joined = join(self.root, facts, now.takes.get(video, ()), now.forgotten.get(video, ()), now.dims())
            except FileNotFoundError:  # the take was replaced between reading the catalogue and opening its files
                if given:
                    raise
                if attempt == 4:
                    raise lost(facts) from None
                self.refresh()
                continue
            with self._lock:
                self._open[key] = joined
                while len(self._open) > CACHED:
                    self._open.popitem(last=False)
                return self._keep(video, now, joined)
        raise AssertionError("unreachable")

    def _keep(self, video: str, snapshot: Snapshot, joined: Joined) -> Joined:
        """Remember what a recording is in the present snapshot (the lock is held)."""
        if snapshot is self._snapshot:
            if len(self._current) >= CACHED:
                self._current.clear()
            self._current[video] = joined
        return joined
