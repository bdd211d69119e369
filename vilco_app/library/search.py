"""Nearest stored vectors of a question: segments give candidates, stored vectors give the order, the rest is scanned."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from vilco_app.library.exact import best_globals, best_regions, top_of
from vilco_app.library.segment_files import SegmentDamaged
from vilco_app.library.segments import Segment, SegmentDefaults
from vilco_app.library.types import Hits, Statistics, no_numbers
from vilco_app.library.view import Joined, Snapshot, View
from vilco_app.values import VilcoError

RETRIES = 5  # a generation may be switched under a question; twice in a row is already rare


@dataclass
class Found:
    """Candidates of one recording for one query: rows of its `Stored` (samples, or region rows) and their scores."""

    video: str
    joined: Joined
    rows: np.ndarray
    scores: np.ndarray


class Searcher:
    """Both searches and the statistics of one view. root: where the profile's segments lie. mend(profile, segment): has
    a damaged segment made anew. Thread-safe."""

    def __init__(
        self, view: View, root: Path, defaults: SegmentDefaults | None = None,
        mend: Callable[[str, str], None] | None = None,
    ) -> None:  # fmt: skip
        self.view, self.root, self.defaults, self.mend = view, root, defaults or SegmentDefaults(), mend
        self._lock = Lock()
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._pool: ThreadPoolExecutor | None = None
        self._statistics: dict[str, tuple[int, Statistics]] = {}  # by kind, with the catalogue's version they belong to

    def search(self, kind: str, vectors: np.ndarray, top: int, videos: Sequence[str] | None) -> list[Hits]:
        """See `Library.search_globals`. Raises VilcoError for an unknown recording or vectors of another profile."""
        asked = np.atleast_2d(np.asarray(vectors, np.float32))
        for attempt in range(RETRIES):
            snapshot = self.view.snapshot()
            try:
                return self._search(snapshot, kind, asked, top, videos)
            except FileNotFoundError as error:
                if attempt == RETRIES - 1:
                    raise VilcoError(
                        "damaged-features", f"{error.filename or error}: a file of the library is missing.",
                        "Add the videos again, which makes what is missing anew.",
                    ) from None  # fmt: skip
                self.view.refresh()
            except SegmentDamaged as error:
                self._mend(snapshot, str(error), attempt)
        raise AssertionError("unreachable")

    def _mend(self, snapshot: Snapshot, path: str, attempt: int) -> None:
        """Have a damaged segment made anew. Raises VilcoError when that is not possible."""
        why = ""
        if self.mend is not None and attempt < RETRIES - 1:
            try:
                self.mend(snapshot.profile, Path(path).relative_to(self.root).parts[0])
                return self.view.refresh()
            except (VilcoError, OSError) as error:
                why = f" It cannot be made anew now: {getattr(error, 'message', error)}"
        raise VilcoError(
            "damaged-index", f"{path}: the index file is damaged.{why}",
            "Ask from where the library can be written: the index is then made anew from the stored features.",
        )  # fmt: skip

    def _search(
        self, snapshot: Snapshot, kind: str, asked: np.ndarray, top: int, videos: Sequence[str] | None
    ) -> list[Hits]:
        wanted = None if videos is None else dict.fromkeys(videos)
        for video in wanted or ():
            if video not in snapshot.records:
                snapshot.video(video)  # raises
        parts: list[list[Found]] = [[] for _ in asked]
        names = [v for v in (wanted if wanted is not None else snapshot.takes) if v in snapshot.takes]
        self._check(snapshot, kind, asked, names)
        count = sum(t.rows if kind == "globals" else t.regions for v in names for t in snapshot.takes[v])
        if count <= self.defaults.scanned and (wanted is not None or not snapshot.segments):
            self._scan(snapshot, kind, asked, top, {video: 0 for video in names}, parts)
        else:
            self._ask_segments(snapshot, kind, asked, top, wanted, parts)
            tails = snapshot.tails(kind)
            self._scan(snapshot, kind, asked, top, {v: tails[v] for v in names if v in tails}, parts)
        return [self._hits(kind, found, top) for found in parts]

    def _check(self, snapshot: Snapshot, kind: str, asked: np.ndarray, names: list[str]) -> None:
        for video in names[:1]:
            take = snapshot.takes[video][0]
            dim = take.global_dim if kind == "globals" else take.region_dim
            if asked.shape[1] != dim:
                raise VilcoError(
                    "wrong-profile", f"question vectors have {asked.shape[1]} dimensions, {snapshot.profile} stores {dim}.",
                    "Ask with the profile the library was indexed with.",
                )  # fmt: skip

    def _scan(
        self,
        snapshot: Snapshot,
        kind: str,
        asked: np.ndarray,
        top: int,
        first: dict[str, int],
        parts: list[list[Found]],
    ) -> None:
        """Exact search of each recording from the given row of its `Stored` on."""
        for video, start in first.items():
            joined = self.view.joined(video, snapshot)
            rows, scores = (best_globals if kind == "globals" else best_regions)(joined.stored, asked, top, start)
            if rows.shape[1]:
                for q, part in enumerate(parts):
                    part.append(Found(video, joined, rows[q], scores[q]))

    def _ask_segments(
        self, snapshot: Snapshot, kind: str, asked: np.ndarray, top: int, wanted: dict[str, None] | None,
        parts: list[list[Found]],
    ) -> None:  # fmt: skip
        """Candidates of all segments, the best of them by their rough scores, scored again by their stored vectors."""
        owners = {take.id: video for video, takes in snapshot.takes.items() for take in takes}
        places: list[tuple[str, int]] = []  # recording and take of every span asked
        tasks: list[tuple[Segment, np.ndarray, int]] = []  # segment, which of its spans, the place of its first
        for record in snapshot.segments:
            owner = [owners.get(span.take) for span in record.spans]
            allowed = np.array([v is not None and (wanted is None or v in wanted) for v in owner])
            if allowed.any():
                tasks.append((self._segment(snapshot, record.name), allowed, len(places)))
                places += [(v or "", span.take) for v, span in zip(owner, record.spans, strict=True)]
        if not tasks:
            return

        def ask(task: tuple[Segment, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            segment, allowed, start = task
            spans, rows, scores = segment.search(kind, asked, top, allowed)
            return np.where(spans < 0, -1, spans + start), rows, scores

        large = sum(segment.record.samples for segment, _, _ in tasks) > self.defaults.together
        found = list(self._threads().map(ask, tasks) if large else map(ask, tasks))
        whole = [np.concatenate(columns, axis=1) for columns in zip(*found, strict=True)]  # spans, rows, scores [Q, K]
        for q, part in enumerate(parts):
            spans, rows, scores = (column[q] for column in whole)
            keep = np.flatnonzero(spans >= 0)
            best = keep[top_of(scores[None, keep], top * self.defaults.candidates)[0]]
            best = best[np.argsort(spans[best], kind="stable")]
            for span, a, b in zip(*_runs(spans[best]), strict=True):
                video, take = places[span]
                joined = self.view.joined(video, snapshot)
                here = (joined.row if kind == "globals" else joined.region_row)(take, rows[best[a:b]])
                here = here[here >= 0]
                if len(here):
                    part.append(Found(video, joined, here, _scores(kind, joined, here, asked[q])))

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "search")
            return self._pool

    def _segment(self, snapshot: Snapshot, name: str) -> Segment:
        with self._lock:
            segment = self._segments.get(name)
            if segment is None:
                record = next(s for s in snapshot.segments if s.name == name)
                try:
                    segment = Segment(self.root, record, self.defaults)
                except FileNotFoundError as error:
                    self.view.refresh()
                    if all(s.name != name for s in self.view.snapshot().segments):
                        raise  # replaced meanwhile
                    raise SegmentDamaged(str(self.root / name)) from error  # deleted by somebody else
                self._segments[name] = segment
                live = {s.name for s in snapshot.segments}
                for old in [n for n in self._segments if n not in live]:
                    del self._segments[old]
            return segment

    def _hits(self, kind: str, found: list[Found], top: int) -> Hits:
        """The best `top` of all candidates, each stored vector once."""
        boxes = np.zeros((0, 4), np.float32) if kind == "regions" else None
        if not found:
            return Hits((), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.float32), boxes)
        videos = list(dict.fromkeys(f.video for f in found))
        number = {video: i for i, video in enumerate(videos)}
        joined = {f.video: f.joined for f in found}
        owner = np.concatenate([np.full(len(f.rows), number[f.video]) for f in found])
        rows = np.concatenate([f.rows for f in found])
        scores = np.concatenate([f.scores for f in found])
        if not np.isfinite(scores).all():
            video = joined[videos[int(owner[~np.isfinite(scores)][0])]].stored.video
            raise no_numbers(video)
        _, single = np.unique(owner * (1 << 40) + rows, return_index=True)
        owner, rows, scores = owner[single], rows[single], scores[single]
        best = top_of(scores[None], top)[0]
        owner, rows, scores = owner[best], rows[best], scores[best]
        times, samples = np.zeros(len(best)), rows.copy()
        if kind == "regions":
            boxes = np.zeros((len(best), 4), np.float32)
        for i in np.unique(owner):
            mine, stored = owner == i, joined[videos[i]].stored
            if boxes is not None:
                boxes[mine] = np.asarray(stored.region_boxes[rows[mine]], np.float32) / 255
                group = np.searchsorted(stored.offsets, rows[mine], side="right") - 1
                samples[mine] = np.searchsorted(stored.group, group)
            times[mine] = stored.times[samples[mine]]
        return Hits(tuple(videos[i] for i in owner), samples, times, scores, boxes)

    def statistics(self, kind: str) -> Statistics:
        """See `Library.statistics`."""
        from vilco_app.library.statistics import statistics

        version = self.view.snapshot().version
        with self._lock:
            known = self._statistics.get(kind)
        if known is None or known[0] != version:
            known = version, statistics(self.view, self.root, kind)
            with self._lock:
                self._statistics[kind] = known
        return known[1]


def _runs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted values [N] -> distinct values, and where the run of each starts and ends."""
    distinct, starts = np.unique(values, return_index=True)
    return distinct, starts, np.append(starts, len(values))[1:]


def _scores(kind: str, joined: Joined, rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    stored = joined.stored
    if kind == "globals":
        return np.asarray(stored.globals[rows], np.float32) @ vector
    codes = np.asarray(stored.region_codes[rows], np.float32) * np.asarray(stored.region_scales[rows])[:, None]
    return codes @ vector
