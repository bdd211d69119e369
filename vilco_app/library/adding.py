"""`add`: find files, know them by content, queue one job per recording, work or follow until all are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from vilco_app.jobs import Job, Jobs, Progress
from vilco_app.library.catalogue import Catalogue
from vilco_app.library.features import intact
from vilco_app.library.footage import Footage
from vilco_app.library.identity import expand, know, recording_id
from vilco_app.library.records import IndexedRecord, Take, VideoRecord
from vilco_app.values import AddReport, Refusal, VilcoError

FATAL = frozenset({"disk-full", "home-not-writable", "library-busy", "damaged-library"})


class Adder:
    """One call of `add`. drop: removes a recording (its file has other content now)."""

    def __init__(
        self,
        catalogue: Catalogue,
        jobs: Jobs,
        footage: Footage,
        features: Path,
        profile_id: str,
        rate: float,
        drop: Callable[[str], None],
    ) -> None:
        self.catalogue, self.jobs, self.footage, self.drop = catalogue, jobs, footage, drop
        self.features = features
        self.profile_id, self.rate = profile_id, rate
        self.refused: list[Refusal] = []
        self.warnings: list[str] = []
        self.unchanged: list[str] = []
        self.wanted: list[tuple[VideoRecord, int]] = []  # recordings with their jobs

    def run(self, paths: Iterable[str | Path], progress: Progress | None = None) -> AddReport:
        """Raises VilcoError only for what would stop every file (a full disk, a home that cannot be written)."""
        files, refused = expand(paths)
        self.refused += refused
        self._known = self.catalogue.files()
        self._records = {v.id: v for v in self.catalogue.videos()}
        self._open = self.jobs.table.unfinished("index")
        self._takes: dict[str, list[Take]] = {}
        for take in self.catalogue.takes(self.profile_id):
            self._takes.setdefault(take.video, []).append(take)
        self._states = {i.video: i for i in self.catalogue.indexed(self.profile_id)}
        for group in self.footage.group_chapters(files):
            try:
                self._queue(group)
            except VilcoError as error:
                if error.code in FATAL:
                    raise
                self._refuse(str(group[0]), error.code, error.message, error.remedy)
            except OSError as error:
                self._refuse(
                    str(group[0]),
                    "unreadable",
                    f"cannot be read: {error.strerror}.",
                    "Check the file and its permissions.",
                )
        return self._work(progress)

    def _refuse(self, path: str, code: str, reason: str, remedy: str) -> None:
        self.refused.append(Refusal(path, reason, remedy, code))

    def _queue(self, group: tuple[Path, ...]) -> None:
        """Know a recording and queue what is missing of it."""
        files = [know(path, self._known) for path in group]
        video_id = recording_id([f.digest for f in files])
        for file in files:
            before = self._known.get(file.path)
            if before is not None and before.video is not None and before.video != video_id:
                self._replaced(file.path, before.video)
        files = [replace(f, video=video_id) for f in files]
        record, state = self._records.get(video_id), self._states.get(video_id)
        if record is None:
            record = self._probe(video_id, group)
            self.catalogue.put_video(record, files)
        elif tuple(f.path for f in files) != record.parts:
            if not all(Path(part).exists() for part in record.parts):  # moved
                record = replace(record, path=files[0].path, parts=tuple(f.path for f in files))
            self.catalogue.put_video(record, files)
        elif any(self._known.get(f.path) != f for f in files):  # only touched
            self.catalogue.put_files(files)
        self._records[video_id] = record
        self._known.update({f.path: f for f in files})
        done = state is not None and state.state in ("ready", "gaps") and state.rate >= self.rate - 1e-6
        key = f"{video_id} {self.profile_id}"
        # a job left over although its work is complete (its process died in between) is run once more, to close it
        takes = self._takes.get(video_id, ())
        if done and key not in self._open and takes and all(intact(self.features, take) for take in takes):
            self.unchanged.append(video_id)
            return
        if any(video_id == known.id for known, _ in self.wanted):
            return
        if state is None:
            self.catalogue.set_indexed(IndexedRecord(video_id, self.profile_id, "waiting", self.rate, ""))
        rate = max(self.rate, state.rate if state is not None else 0.0)
        payload = {"video": video_id, "profile": self.profile_id, "rate": rate}
        label = Path(record.path).name
        self.wanted.append((record, self.jobs.enqueue("index", payload, label, key)))

    def _probe(self, video_id: str, group: tuple[Path, ...]) -> VideoRecord:
        infos = [self.footage.probe(path) for path in group]
        faults = " ".join(dict.fromkeys(fault for info in infos for fault in info.faults))
        first = infos[0]
        return VideoRecord(
            video_id, str(group[0]), tuple(map(str, group)), sum(i.duration for i in infos), first.width, first.height,
            first.recorded_at, faults,
        )  # fmt: skip

    def _replaced(self, path: str, video: str) -> None:
        """The file at this path has other content than when it was indexed: what was indexed of it is void."""
        record = self._records.get(video)
        if record is not None and path in record.parts:
            self.drop(video)
            self._records.pop(video)
            self._states.pop(video, None)
            self._known = self.catalogue.files()
            self.warnings.append(f"{path}: has changed since it was indexed; it is indexed anew.")

    def _work(self, progress: Progress | None) -> AddReport:
        added: list[str] = []
        total = sum(record.duration for record, _ in self.wanted)
        before = 0.0
        for record, job_id in self.wanted:
            name = Path(record.path).name

            def tell(done: float, _: float, text: str, before: float = before, name: str = name) -> None:
                if progress is not None:
                    progress(before + done, total, f"{name}: {text}")

            try:
                job = self.jobs.run_until(job_id, tell)
            except BaseException:  # Ctrl-C ends the whole call: what it queued does not surprise the next one
                for _, queued in self.wanted:
                    self.jobs.stop(queued)
                raise
            before += record.duration
            if job.state == "done":
                added.append(record.id)
            elif job.state == "stopped":
                self.warnings.append(
                    f"{record.path}: stopped at {job.done:.0f} s of {record.duration:.0f} s; "
                    f"go on with: vilco jobs resume {job.id}"
                )
            else:
                self._failed(record, job)
        self._tell_gaps(added)
        return AddReport(tuple(added), tuple(dict.fromkeys(self.unchanged)), tuple(self.refused), tuple(self.warnings))

    def _tell_gaps(self, added: list[str]) -> None:
        """A recording that could not be read to its end is told of, not only kept in the list."""
        for state in self.catalogue.indexed(self.profile_id):
            if state.state == "gaps" and state.video in added:
                self.warnings.append(f"{self._records[state.video].path}: indexed with gaps. {state.note}")

    def _failed(self, record: VideoRecord, job: Job) -> None:
        error = job.error or {"code": "failed", "message": "indexing failed.", "remedy": "Try again."}
        if error["code"] in FATAL:
            raise VilcoError(error["code"], error["message"], error["remedy"])
        self._refuse(record.path, error["code"], error["message"], error["remedy"])
        if not any(take.rows for take in self.catalogue.takes(video=record.id)):
            self.drop(record.id)  # not one sample: it is not a video of this library
