"""The library of a home: what is in it, what is stored of it, what is nearest to a question; adding and taking away."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.encoders.base import Profile
from vilco_app.jobs import Context, Job, Jobs, Progress
from vilco_app.jobs.table import catalogue_path
from vilco_app.library.adding import Adder
from vilco_app.library.catalogue import Catalogue
from vilco_app.library.footage import Footage, RealFootage
from vilco_app.library.forgetting import forget, touches, window_setting
from vilco_app.library.freeing import rest
from vilco_app.library.generations import GenerationDefaults, Generations, profile_folder
from vilco_app.library.indexing import Indexer, IndexingDefaults
from vilco_app.library.locks import publishing
from vilco_app.library.search import Searcher
from vilco_app.library.segments import SegmentDefaults
from vilco_app.library.types import Hits, Statistics, Stored
from vilco_app.library.view import View
from vilco_app.reading import read_answer
from vilco_app.values import AddReport, Answer, Correction, Kind, PastQuestion, Video, VideoRefused, VilcoError
from vilco_app.video.types import Recording


@dataclass(frozen=True)
class LibraryDefaults:
    """The defaults of the three parts, with their reasons where they are used."""

    indexing: IndexingDefaults = field(default_factory=IndexingDefaults)
    segments: SegmentDefaults = field(default_factory=SegmentDefaults)
    generations: GenerationDefaults = field(default_factory=GenerationDefaults)


Loader = Callable[[str], Profile]


class Library:
    """Recordings, their features in one profile, and corrections. Thread-safe; several processes may share a home.

    home: the data folder. profile_id: whose vectors are seen (default: the profile last added with). loader: gives a
    profile by its id when a queued job needs one this process has not loaded. Raises VilcoError when the home cannot be
    used or was written by a newer version.
    """

    def __init__(
        self, home: str | Path, profile_id: str | None = None, loader: Loader | None = None,
        footage: Footage | None = None, defaults: LibraryDefaults | None = None,
    ) -> None:  # fmt: skip
        self.home = Path(home)
        self.catalogue = Catalogue(catalogue_path(self.home))
        self.jobs = Jobs(self.home, {"index": self._index}, idle=self.rest)
        self.profile_id = profile_id or self.catalogue.setting("profile") or ""
        self.footage: Footage = footage or RealFootage()
        self.defaults = defaults or LibraryDefaults()
        self._loader = loader or self._load
        self._profiles: dict[str, Profile] = {}
        self._view = View(self.catalogue, self.features_folder, self.profile_id)
        self._searcher = self._make_searcher()
        self._generations = Generations(
            self.home, self.catalogue, self.features_folder, self.generations_folder, self.defaults.generations,
            self.defaults.segments,
        )  # fmt: skip

    def _make_searcher(self) -> Searcher:
        root = profile_folder(self.generations_folder, self.profile_id)
        return Searcher(self._view, root, self.defaults.segments, lambda *it: self._generations.replace_damaged(*it))

    @property
    def features_folder(self) -> Path:
        return self.home / "indexes" / "features"

    @property
    def generations_folder(self) -> Path:
        return self.home / "indexes" / "generations"

    def cache_folder(self, video: str) -> Path:
        """Where anything derived from a recording may be kept (thumbnails, proxies, exports): forgotten with it."""
        return self.home / "indexes" / "cache" / video

    def use_profile(self, profile_id: str) -> None:
        """See the vectors of this profile from now on."""
        if profile_id != self.profile_id:
            self.profile_id = profile_id
            self._view = View(self.catalogue, self.features_folder, profile_id)
            self._searcher = self._make_searcher()

    # Reading

    def still(self) -> AbstractContextManager[None]:
        """While inside, this thread sees the library as it is now, for as long as its files are there."""
        return self._view.still()

    def videos(self) -> list[Video]:
        """All recordings, oldest first, with how far they are in this library's profile."""
        snapshot = self._view.snapshot()
        return [snapshot.video(video) for video in snapshot.records]

    def resolve(self, ref: str | Path) -> Video:
        """The recording of a path, an id, a unique prefix of one, or the file name that answers show.

        Raises VilcoError("no-such-video" | "ambiguous-video").
        """
        snapshot = self._view.snapshot()
        text = str(ref)
        path = str(Path(text).expanduser().absolute())
        found = [v.id for v in snapshot.records.values() if path in v.parts]
        if not found:
            known = self.catalogue.files().get(path)
            found = [known.video] if known is not None and known.video in snapshot.records else []
        if not found and text:
            found = [v for v in snapshot.records if v.startswith(text.lower())]
        if not found and text and not Path(path).exists():  # another file of this name is not meant by it
            found = [v.id for v in snapshot.records.values() if text in {Path(part).name for part in v.parts}]
        if len(found) > 1:
            raise VilcoError(
                "ambiguous-video", f"{text}: fits {', '.join(found)}.", "Give the path, or more digits of the id."
            )
        if not found:
            raise VilcoError("no-such-video", f"{text}: not in this library.", f"Add it with: vilco add {text}")
        return snapshot.video(found[0])

    def recording(self, video: str) -> Recording:
        """The recording's files, for re-reading frames. Raises VilcoError("file-missing") when one has gone."""
        facts = self._view.snapshot().video(video)
        for part in facts.parts:
            if not Path(part).exists():
                raise VilcoError(
                    "file-missing", f"{part}: the file is not where it was.",
                    "Put it back, or add it from its new place: vilco add PATH",
                )  # fmt: skip
        return self.footage.open_recording([Path(part) for part in facts.parts])

    def stored(self, video: str) -> Stored:
        """Features of the recording with this id; N = 0 when nothing is committed yet. Raises VilcoError."""
        return self._view.joined(video).stored

    def search_globals(self, vectors: np.ndarray, top: int, videos: Sequence[str] | None = None) -> list[Hits]:
        """Nearest stored whole-frame vectors (inner product) of each row of vectors [Q, Dg], in the videos given or all."""
        return self._searcher.search("globals", vectors, top, videos)

    def search_regions(self, vectors: np.ndarray, top: int, videos: Sequence[str] | None = None) -> list[Hits]:
        """Nearest stored region vectors of each row of vectors [Q, Dr]; a hit's row is the first sample that shows it."""
        return self._searcher.search("regions", vectors, top, videos)

    def statistics(self, kind: str) -> Statistics:
        """Mean and covariance of the stored vectors; kind: "globals" or "regions"."""
        return self._searcher.statistics(kind)

    def corrections(self, key: str | None = None, videos: Iterable[str] | None = None) -> list[Correction]:
        """Corrections by key (None: all) on the given recordings (None: all), oldest first."""
        return self.catalogue.corrections(key, videos)

    # Writing

    def add(
        self,
        paths: str | Path | Iterable[str | Path],
        profile: Profile,
        rate: float = 2.0,
        progress: Progress | None = None,
    ) -> AddReport:
        """Index files and folders at `rate` samples per second; goes on where an earlier run ended.

        progress(done, total, text): seconds of video. What cannot be read is in the report, one reason per file. Raises
        VilcoError for what concerns every file: no space, no permission, a rate that is not in (0, 60].
        """
        if not 0 < rate <= 60:
            raise VilcoError("bad-rate", f"rate {rate:g}: not in (0, 60].", "Give samples per second, such as 2.")
        self._profiles[profile.id] = profile
        self.catalogue.put_setting("profile", profile.id)
        self.catalogue.put_setting(window_setting(profile.id), repr(float(profile.window)))
        self.use_profile(profile.id)
        listed = [paths] if isinstance(paths, (str, Path)) else list(paths)
        adder = Adder(self.catalogue, self.jobs, self.footage, self.features_folder, profile.id, rate, self._drop)
        try:
            return adder.run(listed, progress)
        finally:
            self.rest()

    def correct(
        self, key: str, query: str, kind: Kind, video: str, windows: Sequence[tuple[float, float]]
    ) -> Correction:
        """File what a person said: the windows right for this question on this recording, or () for "not in here"."""
        facts = self._view.snapshot().video(video)
        for start, end in windows:
            if not (0 <= start < end <= facts.duration + 0.5):
                raise VilcoError(
                    "bad-window", f"window {start:g} to {end:g} s does not lie in {facts.path} ({facts.duration:.1f} s).",
                    "Give a start before the end, both inside the video.",
                )  # fmt: skip
        for gone in self.catalogue.forgotten(video).get(video, ()):
            if any(touches(list(windows), *gone)):
                raise VilcoError(
                    "forgotten-span", f"{gone[0]:g} to {gone[1]:g} s of {facts.path} was forgotten.",
                    "Give a window outside of it.",
                )  # fmt: skip
        return self.catalogue.correct(key, query, kind, video, [(float(a), float(b)) for a, b in windows])

    def take_back(self, correction: str) -> Correction:
        """Undo the correction with this id or unique prefix. Raises VilcoError("no-such-correction")."""
        known = {c.id: c for c in self.catalogue.corrections(None, None)}
        matches = [i for i in known if i.startswith(correction)] if correction else []
        found = correction if correction in known else matches[0] if len(matches) == 1 else None
        if found is None:
            raise VilcoError(
                "no-such-correction",
                f"{correction or 'an empty id'}: {len(matches) or 'no'} corrections have this id.",
                "See their ids: vilco corrections",
            )
        self.catalogue.delete_correction(found)
        return known[found]

    def remove(self, video: str) -> None:
        """Take a recording out of the library with everything derived from it; the video file itself is not touched."""
        self._view.snapshot().video(video)
        self._drop(video)
        self._tidy()
        with publishing(self.home):
            self._generations.sweep()

    def forget(self, video: str, start: float, end: float) -> None:
        """Remove [start, end] seconds of a recording for good: samples, vectors, corrections and questions that touch
        it, cached pictures and exports. Remembered, so that indexing again does not bring it back.

        Raises VilcoError("bad-span" | "no-such-video").
        """
        facts = self._view.snapshot().video(video)
        if not (0 <= start < end) or start >= facts.duration:
            raise VilcoError(
                "bad-span", f"{start:g} to {end:g} s does not lie in {facts.path} ({facts.duration:.1f} s).",
                "Give a start before the end, inside the video.",
            )  # fmt: skip
        with publishing(self.home):
            forget(self.catalogue, self.features_folder, self.cache_folder(video), video, start, end)
            self._generations.sweep()
        self._tidy()

    def _tidy(self) -> None:
        """Take dead vectors out of every profile's segments, now."""
        for profile in self.catalogue.profiles():
            if self._generations.wants_tidying(profile):
                self._generations.tidy(profile)

    def remember(self, answer: Answer) -> None:
        """Keep an answer in the question history, without its curves. A home that cannot be written stays as it is."""
        data = replace(answer, curves=(), with_curves=False).to_json()
        try:
            self.catalogue.remember(answer.query, answer.kind, json.dumps(data))
        except VilcoError:  # read-only, full or locked: a question is answered all the same
            return

    def history(self, limit: int = 100) -> list[PastQuestion]:
        """Answers given so far, newest first."""
        return [PastQuestion(read_answer(json.loads(row[2])), row[3]) for row in self.catalogue.history(limit)]

    def clear_history(self) -> int:
        """Empty the question history -> how many answers it held."""
        return self.catalogue.clear_history()

    def _drop(self, video: str) -> None:
        self.catalogue.delete_video(video)
        shutil.rmtree(self.features_folder / video, ignore_errors=True)
        shutil.rmtree(self.cache_folder(video), ignore_errors=True)

    # Jobs

    def rest(self) -> None:
        """Give back the memory that indexing took; it is taken again when there is more to index."""
        for profile in list(self._profiles.values()):
            rest(profile)

    def _load(self, profile_id: str) -> Profile:
        from vilco_app.encoders import load_profile

        return load_profile(profile_id.rpartition("@")[0] or profile_id, self.home / "models")

    def _index(self, job: Job, context: Context) -> dict[str, Any] | None:
        wanted = job.payload["profile"]
        profile = self._profiles.get(wanted)
        if profile is None:
            profile = self._profiles[wanted] = self._loader(wanted)
        records = self.catalogue.videos([job.payload["video"]])
        if not records:
            return None  # removed while it waited
        try:
            indexer = Indexer(
                self.catalogue,
                self.features_folder,
                self.footage,
                profile,
                self.defaults.indexing,
                lambda: self.publish(wanted),
            )
            self._unchanged(records[0].id)
            result = indexer.run(records[0], job.payload["rate"], context)
            self._unchanged(records[0].id)
        except FileNotFoundError as error:
            raise VideoRefused(
                "not-found", f"{error.filename}: the file has gone.", "Put it back and add it again."
            ) from error
        self.publish(wanted)
        with publishing(self.home):
            self._generations.sweep(records[0].id)  # the preview has served
        return result

    def _unchanged(self, video: str) -> None:
        """Raises VideoRefused, and drops the recording, when a file is not the one its id was made from any more: still
        being copied, or replaced while it was read."""
        for known in self.catalogue.files_of(video):
            stat = Path(known.path).stat()
            if (known.size, known.mtime_ns) != (stat.st_size, stat.st_mtime_ns):
                self._drop(video)
                raise VideoRefused(
                    "changed", f"{known.path}: changed while it was being indexed.", "Add it again when it is complete."
                )

    def publish(self, profile: str) -> None:
        """Have what is committed but not indexed yet indexed, when it is enough to be worth it."""
        if self._generations.wants_tidying(profile):
            self._generations.tidy(profile)
