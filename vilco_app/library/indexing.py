"""The `index` job: decode -> encode -> write, key frames first, then the full rate; resumable at any commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Features, Profile
from vilco_app.jobs import Context
from vilco_app.library.catalogue import Catalogue
from vilco_app.library.features import TakeWriter, intact
from vilco_app.library.footage import Footage
from vilco_app.library.pipeline import run_pipeline
from vilco_app.library.records import IndexedRecord, Take, TakeKind, VideoRecord
from vilco_app.video.types import Recording, SampleBatch


@dataclass(frozen=True)
class IndexingDefaults:
    """How a recording is worked through."""

    batch: int = 16  # frames per encoder call: as quick a frame as 32, with 0.25 GB less of intermediate results
    depth: int = 2  # batches waiting between two steps: the next is ready while this one is worked on
    commit_seconds: float = 2.0  # work lost by a kill -9 at most; a commit costs a few fsync
    preview_above: float = 60.0  # shorter recordings (s) are done in a few seconds anyway
    preview_rate: float = 0.25  # at most a key frame every 4 s: shows where, not when exactly, for a tenth of the work
    publish_rows: int = 4096  # samples after which a recording in progress gets a segment: a scan of more is slow
    gap_seconds: float = 2.0  # footage missing at the end or inside beyond this is told to the person


class TakeReplaced(Exception):
    """The take written to was removed or replaced (a person forgot a span); start over from the catalogue."""


def in_spans(times: np.ndarray, window: float, spans: tuple[tuple[float, float], ...]) -> np.ndarray:
    """Which samples [N] show any of the spans: the frame at its time, or a clip of up to `window` s around it."""
    hidden = np.zeros(len(times), bool)
    for start, end in spans:
        hidden |= (times > start - window) & (times < end + window) if window else (times >= start) & (times < end)
    return hidden


def visible(batch: SampleBatch, window: float, spans: tuple[tuple[float, float], ...]) -> SampleBatch:
    """The batch without samples of forgotten spans; what remains does not reach into them."""
    if not spans or not len(batch):
        return batch
    keep = ~in_spans(batch.times, window, spans)
    return SampleBatch(
        batch.times[keep], clip_durations(batch.times[keep], batch.durations[keep], spans), batch.frames[keep]
    )


def clip_durations(times: np.ndarray, durations: np.ndarray, spans: tuple[tuple[float, float], ...]) -> np.ndarray:
    """Durations [N] cut where a forgotten span begins."""
    ends = times + durations
    for start, _ in spans:
        ends = np.where((times < start) & (ends > start), start, ends)
    return ends - times


class Indexer:
    """Brings one recording to a profile's full rate. catalogue, root: where; footage: how files are read.

    publish: called now and then while a long recording grows, to have what is committed indexed.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        root: Path,
        footage: Footage,
        profile: Profile,
        defaults: IndexingDefaults | None = None,
        publish: Callable[[], None] | None = None,
    ) -> None:
        self.catalogue, self.root, self.footage, self.profile = catalogue, root, footage, profile
        self.defaults = defaults or IndexingDefaults()
        self.publish = publish or (lambda: None)

    def run(self, video: VideoRecord, rate: float, context: Context) -> dict[str, Any]:
        """Index from wherever the last run ended. Returns {"video", "state", "samples"}.

        Raises VideoRefused when nothing can be read, VilcoError on storage failures, Stopped when asked to stop.
        """
        recording = self.footage.open_recording([Path(part) for part in video.parts])
        duration = max(video.duration, recording.duration)
        track = getattr(self.profile, "track", None)
        if track is not None:
            return self._import(video, track(video.id, *video.parts), rate, duration, context)
        while True:
            try:
                self._demote_coarser(video.id, rate)
                full = self._take(video.id, "full", rate)
                coarse = min(self.defaults.preview_rate, rate)
                preview = self._take(video.id, "preview", coarse, create=False)
                if full.rows == 0 and duration > self.defaults.preview_above:
                    preview = preview or self._take(video.id, "preview", coarse)
                    assert preview is not None
                    if preview.until < duration - 1.0:
                        self._state(video.id, "preview", rate)
                        self._pass(preview, recording, duration, context, keyframes=True)
                self._state(video.id, "indexing", rate)
                full, complaint = self._pass(full, recording, duration, context, keyframes=False)
                break
            except TakeReplaced:
                continue
        note = self._note(full, recording, duration, complaint)
        if full.until > duration + 0.001:
            self.catalogue.set_duration(video.id, full.until)
        self._state(video.id, "gaps" if note else "ready", rate, note)
        done = [t.id for t in self.catalogue.takes(self.profile.id, video.id) if t.kind == "preview"]
        self.catalogue.delete_takes(done)
        context.progress(duration, duration, "indexed")
        return {"video": video.id, "state": "gaps" if note else "ready", "samples": full.rows}

    def _import(self, video: VideoRecord, track: Any, rate: float, duration: float, context: Context) -> dict[str, Any]:
        """Store rows computed elsewhere (profile `precomputed`); nothing is decoded. A row stands for the stretch of one
        stride around the middle of its window."""
        spans = self.catalogue.forgotten(video.id).get(video.id, ())
        starts = np.maximum(0.0, track.times - track.durations / 2)
        shown = (starts < duration) & ~in_spans(starts, self.profile.window, spans)
        while True:
            try:
                full = self._take(video.id, "full", rate)
                writer = TakeWriter(self.root, full)
                try:
                    rows = np.flatnonzero(shown & (starts > float(writer.last_time()) + 1e-6))
                    for first in range(0, len(rows), self.defaults.publish_rows):
                        context.check()
                        some = rows[first : first + self.defaults.publish_rows]
                        durations = clip_durations(starts[some], track.durations[some], spans)
                        nothing = np.zeros((0, self.profile.region_dim), np.float32), np.zeros((0, 4), np.float32)
                        features = Features(track.vectors[some], *nothing, np.zeros(len(some), np.int64))
                        writer.append(starts[some], durations, features)
                        self._commit(writer)
                        context.kept()
                        context.progress(float(starts[some[-1]]), duration, "importing")
                    full = writer.take
                finally:
                    writer.close()
                break
            except TakeReplaced:
                continue
        limit = max(self.defaults.gap_seconds, 2 * float(track.durations[0])) if len(starts) else 0.0
        reached = float(starts[-1] + track.durations[-1]) if len(starts) else 0.0
        note = f"Features reach up to {reached:.1f} s of {duration:.1f} s." if reached < duration - limit else ""
        self._state(video.id, "gaps" if note else "ready", rate, note)
        context.progress(duration, duration, "imported")
        return {"video": video.id, "state": "gaps" if note else "ready", "samples": full.rows}

    def _state(self, video: str, state: str, rate: float, note: str = "") -> None:
        self.catalogue.set_indexed(IndexedRecord(video, self.profile.id, state, rate, note))

    def _demote_coarser(self, video: str, rate: float) -> None:
        """A finer rate was asked for: what there is serves as the preview until the finer take has passed it."""
        for take in self.catalogue.takes(self.profile.id, video):
            if take.kind == "full" and take.rows and take.rate < rate - 1e-6:
                self.catalogue.demote_take(take)

    def _take(self, video: str, kind: TakeKind, rate: float, create: bool = True) -> Any:
        for take in self.catalogue.takes(self.profile.id, video):
            if take.kind == kind and intact(self.root, take):
                return take
            if take.kind == kind:
                self.catalogue.delete_takes([take.id])  # somebody deleted its files
        if not create:
            return None
        profile = self.profile
        return self.catalogue.new_take(video, profile.id, kind, rate, profile.global_dim, profile.region_dim)

    def _pass(
        self, take: Take, recording: Recording, duration: float, context: Context, keyframes: bool
    ) -> tuple[Take, str]:
        """Append everything after the take's last committed sample. Returns the take and what the reader complained of."""
        spans = self.catalogue.forgotten(take.video).get(take.video, ())
        writer = TakeWriter(self.root, take)
        last = float(writer.last_time())
        what = "key frames first" if keyframes else "indexing"
        committed = time.monotonic() - self.defaults.commit_seconds  # the first batch is published at once

        published = take.rows

        def encode(batch: SampleBatch) -> tuple[SampleBatch, Features | None, float]:
            reached = float(batch.times[-1] + batch.durations[-1]) if len(batch) else 0.0
            fresh = batch.times > last + 1e-6
            if not fresh.all():
                batch = SampleBatch(batch.times[fresh], batch.durations[fresh], batch.frames[fresh])
            batch = visible(batch, self.profile.window, spans)
            return batch, self.profile.encode(batch.frames) if len(batch) else None, reached

        def write(item: tuple[SampleBatch, Features | None, float]) -> None:
            nonlocal committed, published
            batch, features, reached = item
            if features is not None:
                writer.append(batch.times, batch.durations, features)
            if time.monotonic() - committed >= self.defaults.commit_seconds:
                self._commit(writer)
                committed = time.monotonic()
                context.kept()
                if not keyframes and writer.take.rows - published >= self.defaults.publish_rows:
                    published = writer.take.rows
                    self.publish()
                context.progress(min(reached, duration), duration, what)

        source = self.footage.samples(
            recording, take.rate, self.profile.short_side, start=max(0.0, last), keyframes_only=keyframes,
            batch=self.defaults.batch,
        )  # fmt: skip
        try:
            try:
                run_pipeline(source, encode, write, self.defaults.depth, context.check)
            finally:
                self._commit(writer)  # what has been encoded is kept, however the pass ended
        finally:
            writer.close()
        report = getattr(source, "report", None)
        said = [] if getattr(report, "complete", True) else list(dict.fromkeys(getattr(report, "errors", ())))
        return writer.take, "; ".join(said[:2])

    def _commit(self, writer: TakeWriter) -> None:
        if writer.take != writer.synced and not self.catalogue.commit_take(writer.sync()):
            raise TakeReplaced

    def _note(self, take: Take, recording: Recording, duration: float, complaint: str) -> str:
        """What is missing of a finished recording, in words; empty when nothing is."""
        spans = self.catalogue.forgotten(take.video).get(take.video, ())
        limit = max(self.defaults.gap_seconds, 2 / take.rate)
        readable = take.until
        for start, end in spans:
            if start <= readable + limit:
                readable = max(readable, end)
        words = []
        if readable < duration - limit:
            words.append(f"Readable up to {readable:.1f} s of {duration:.1f} s.")
        elif "readable up to" in complaint:
            words.append(f"{complaint}.")  # probe knew already that it ends early: the reader says where
        elif complaint:
            words.append(f"Damaged in places ({complaint}).")
        return " ".join(words)
