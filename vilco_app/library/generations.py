"""Which segments a profile has: built from what no segment holds yet, merged as they grow, rewritten when parts die.

A generation is the set of segments the catalogue names; `Catalogue.switch_segments` goes from one to the next in one
transaction. Readers keep the files they have open; folders nobody names any more are deleted.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vilco_app.library.catalogue import Catalogue
from vilco_app.library.features import TakeArrays, take_folder
from vilco_app.library.locks import publishing
from vilco_app.library.records import SegmentRecord, Span, Take
from vilco_app.library.segment_files import remove_segment
from vilco_app.library.segments import SegmentDefaults, build_segment


@dataclass(frozen=True)
class GenerationDefaults:
    """When segments are built and merged."""

    tail: int = 2048  # samples without a segment that are simply scanned: 17 min at 2 fps, 3 ms a question
    tail_takes: int = 64  # recordings without a segment: each costs a scan of its own
    growth: int = 4  # segments of one size class that are merged into one of the next: each vector is rewritten
    largest: int = 131_072  # log4 times, up to this many samples: the build then needs about 400 MB


def profile_folder(root: Path, profile: str) -> Path:
    return root / profile.replace("/", "_").replace(":", "_")


class Generations:
    """Keeps the segments of a home's profiles in order. Callers must not hold the publish lock."""

    def __init__(
        self, home: Path, catalogue: Catalogue, features: Path, root: Path, defaults: GenerationDefaults | None = None,
        segments: SegmentDefaults | None = None,
    ) -> None:  # fmt: skip
        self.home, self.catalogue, self.features, self.root = home, catalogue, features, root
        self.defaults, self.segment_defaults = defaults or GenerationDefaults(), segments or SegmentDefaults()

    def tidy(self, profile: str) -> None:
        """Bring the profile's segments up to what the catalogue holds, and delete what nobody names any more."""
        with publishing(self.home):
            while self._step(profile):
                pass
            self.sweep()

    def replace_damaged(self, profile: str, name: str) -> None:
        """Make a segment anew from the stored features. Raises VilcoError or OSError when that is not possible."""
        with publishing(self.home):
            takes = {take.id: take for take in self.catalogue.takes(profile)}
            old = [s for s in self.catalogue.segments(profile) if s.name == name]
            live = [span for s in old for span in s.spans if span.take in takes]
            self.catalogue.switch_segments([s.name for s in old], self._build(profile, takes, _joined(live)))
            self.sweep()

    def wants_tidying(self, profile: str) -> bool:
        """Whether `tidy` would build something; cheap."""
        takes = {take.id: take for take in self.catalogue.takes(profile)}
        segments = self.catalogue.segments(profile)
        return self._worth(self._tails(takes, segments)) or any(
            span.take not in takes for segment in segments for span in segment.spans
        )

    def _worth(self, tails: list[Span]) -> bool:
        """Whether what no segment holds is enough for one."""
        rows = sum(span.last - span.first for span in tails)
        return rows >= self.defaults.tail or len(tails) >= self.defaults.tail_takes

    def _step(self, profile: str) -> bool:
        """One switch of generation; False when nothing is to be done."""
        takes = {take.id: take for take in self.catalogue.takes(profile)}
        segments = self.catalogue.segments(profile)
        tails = self._tails(takes, segments)
        old = [s for s in segments if any(span.take not in takes for span in s.spans)]
        if not old and not self._worth(tails):
            old, tails = self._mergeable(segments), []
            if not old:
                return False
        live = [span for s in old for span in s.spans if span.take in takes]
        new = self._build(profile, takes, _joined([*live, *tails]))
        self.catalogue.switch_segments([s.name for s in old], new)
        return True

    def _mergeable(self, segments: Iterable[SegmentRecord]) -> list[SegmentRecord]:
        """Segments of one size class that are due to become one."""
        classes: dict[int, list[SegmentRecord]] = {}
        for segment in segments:
            size = math.floor(math.log(max(segment.samples, 1) / self.defaults.tail, self.defaults.growth))
            classes.setdefault(max(0, size), []).append(segment)
        for _, group in sorted(classes.items()):
            if len(group) >= self.defaults.growth:
                chosen = sorted(group, key=lambda s: s.samples)[: self.defaults.growth]
                if sum(s.samples for s in chosen) <= self.defaults.largest:
                    return chosen
        return []

    def _tails(self, takes: dict[int, Take], segments: Iterable[SegmentRecord]) -> list[Span]:
        """What is committed in full takes and in no segment."""
        done: dict[int, Span] = {}
        for segment in segments:
            for span in segment.spans:
                if span.take not in done or span.last > done[span.take].last:
                    done[span.take] = span
        tails = []
        for take in takes.values():
            before = done.get(take.id)
            rows, regions = (before.last, before.region_last) if before else (0, 0)
            if take.kind == "full" and take.rows > rows:
                tails.append(Span(take.id, rows, take.rows, regions, take.regions))
        return tails

    def _build(self, profile: str, takes: dict[int, Take], spans: list[Span]) -> list[SegmentRecord]:
        new: list[SegmentRecord] = []
        part: list[Span] = []
        for span in [*spans, None]:
            size = sum(s.last - s.first for s in part)
            if part and (span is None or size + span.last - span.first > self.defaults.largest):
                opened = {i: TakeArrays(take_folder(self.features, takes[i]), takes[i]) for i in {s.take for s in part}}
                new.append(
                    build_segment(profile_folder(self.root, profile), profile, part, opened, self.segment_defaults)
                )
                part = []
            if span is not None:
                part.append(span)
        return new

    def sweep(self, video: str | None = None) -> None:
        """Delete folders of takes (of one recording, or of all) and of segments that the catalogue does not name: left
        by a crash, or replaced. They may hold what a person had removed. The caller holds the publish lock.

        Folders are listed before the catalogue is read: one that is listed and not named will never be named.
        """
        segments = list(self.root.glob("*/*segment-*"))
        named = self.catalogue.segment_names()
        folders = list(self.features.glob(f"{video or '*'}/*/take*"))
        takes = {take_folder(self.features, take) for take in self.catalogue.takes(video=video)}
        for folder in segments:
            if folder.name not in named:
                remove_segment(folder)
        for folder in folders:
            if folder not in takes:
                shutil.rmtree(folder, ignore_errors=True)


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order of take and row, neighbours of one take made one."""
    out: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.take, s.first)):
        if out and out[-1].take == span.take and out[-1].last == span.first:
            before = out.pop()
            span = Span(span.take, before.first, span.last, before.region_first, span.region_last)
        out.append(span)
    return out
