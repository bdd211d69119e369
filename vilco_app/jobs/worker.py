"""One worker per home: whoever holds the file lock works, everybody else follows, and takes over when it dies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vilco_app.jobs.database import storage_error
from vilco_app.jobs.table import JobTable
from vilco_app.jobs.types import CannotRunHere, Handler, Job, Progress, Stopped
from vilco_app.values import VilcoError


@dataclass(frozen=True)
class WorkerDefaults:
    """How often the worker looks around."""

    poll_seconds: float = 0.1  # a follower sees progress and a freed lock within a tenth of a second
    update_seconds: float = 0.25  # progress is written a few times a second: enough for a bar, nothing for the disk
    deaths: int = 5  # a job that kills its process this often without any progress would do so for ever


class JobContext:
    """The handle of a running job: progress out, stop in. Writes to the table at most every `update_seconds`."""

    def __init__(self, table: JobTable, job: Job, claim: int, every: float, listener: Progress | None = None) -> None:
        self.table, self.job, self.claim, self.every, self.listener = table, job, claim, every, listener
        self._noted = self._checked = 0.0
        self._latest: tuple[float, float, str] | None = None
        self._kept = False

    def progress(self, done: float, total: float, text: str = "") -> None:
        self._latest = (done, total, text)
        if self.listener is not None:
            self.listener(done, total, text)
        if time.monotonic() - self._noted >= self.every:
            self.flush()

    def flush(self) -> None:
        if self._latest is not None:
            self._noted = time.monotonic()
            self.table.update(self.job.id, self.claim, *self._latest, kept=self._kept)
            self._kept = False

    def kept(self) -> None:
        self._kept = True

    def check(self) -> None:
        if time.monotonic() - self._checked >= self.every:
            self._checked = time.monotonic()
            if self.table.stop_wanted(self.job.id, self.claim):
                raise Stopped


class Jobs:
    """The jobs of a home. handlers: what this process can run, by kind; more can be registered. idle: called when
    `run_pending` has nothing left to do.

    A job runs in the process that holds `worker.lock` in `indexes`; the lock ends with the process, however it ends.
    """

    def __init__(
        self, home: Path, handlers: Mapping[str, Handler] | None = None, defaults: WorkerDefaults | None = None,
        idle: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.home, self.table = Path(home), JobTable(Path(home))
        self.handlers: dict[str, Handler] = dict(handlers or {})
        self.defaults, self.idle = defaults or WorkerDefaults(), idle or (lambda: None)
        self.enqueue, self.get, self.stop, self.resume = (
            self.table.enqueue, self.table.get, self.table.stop, self.table.resume,
        )  # fmt: skip

    def register(self, kind: str, handler: Handler) -> None:
        self.handlers[kind] = handler

    def list(self, limit: int = 100) -> list[Job]:
        """Unfinished jobs first, then the newest finished ones. What a dead process left is shown as waiting."""
        found = self.table.list(limit)
        if not any(job.state == "running" for job in found):
            return found
        try:
            lock = self._lock()
        except VilcoError:  # a home that cannot be written has no worker either
            return found
        if lock is not None:  # nobody works on what is marked as running
            try:
                self.table.recover(self.defaults.deaths)
            finally:
                lock.release()
        return self.table.list(limit)

    def run_until(self, job_id: int, progress: Progress | None = None) -> Job:
        """Work, or follow whoever works, until the job is finished; returns it. Ctrl-C stops it resumably.

        It goes before others that wait: who asks for one file is not made to wait for another's folder. A job this
        process has no handler for is only followed.
        """
        skip: frozenset[int] = frozenset()
        while True:
            job = self.get(job_id)
            if job.finished:
                if progress is not None:
                    progress(job.done, job.total, job.text)
                return job
            lock = self._lock()
            if lock is not None:
                try:
                    self.table.recover(self.defaults.deaths)
                    skip = self._work(job_id, progress, skip)
                finally:
                    lock.release()
            elif progress is not None:
                progress(job.done, job.total, job.text or "waiting for another vilco process")
            if not self.get(job_id).finished:
                time.sleep(self.defaults.poll_seconds)

    def run_pending(self, progress: Progress | None = None) -> bool:
        """Work off what is waiting; returns at once with False when another process is working."""
        lock = self._lock()
        if lock is None:
            return False
        try:
            self.table.recover(self.defaults.deaths)
            self._work(None, progress, frozenset())
        finally:
            lock.release()
            self.idle()
        return True

    def _lock(self) -> Any | None:
        """The home's lock, held, or None when somebody else has it."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.home / "indexes" / "worker.lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        except OSError as error:
            raise storage_error(error, self.home / "indexes") from error
        return lock

    def _work(self, until: int | None, progress: Progress | None, skip: frozenset[int]) -> frozenset[int]:
        """Run job `until`, or all that wait, in order. Returns those that cannot run in this process."""
        while until is None or not self.get(until).finished:
            claimed = self.table.claim(tuple(self.handlers), skip, until or 0) if self.handlers else None
            if claimed is None:
                return skip
            job, claim = claimed
            if not self._run(job, claim, progress if until in (None, job.id) else None):
                skip |= {job.id}
        return skip

    def _run(self, job: Job, claim: int, progress: Progress | None) -> bool:
        context = JobContext(self.table, job, claim, self.defaults.update_seconds, progress)
        try:
            result = self.handlers[job.kind](job, context)
            context.flush()
            self.table.finish(job.id, claim, "done", result=result)
        except CannotRunHere:
            self.table.finish(job.id, claim, "waiting")
            return False
        except Stopped:
            context.flush()
            self.table.finish(job.id, claim, "stopped")
        except VilcoError as error:
            self._failed(job, claim, {"code": error.code, "message": error.message, "remedy": error.remedy})
        except Exception as error:
            remedy = f"Please report this; try again with: vilco jobs resume {job.id}"
            self._failed(job, claim, {"code": "job-failed", "message": f"{job.label}: {error!r}", "remedy": remedy})
        except BaseException:  # Ctrl-C: leave the job resumable, then end as the person wished
            self.table.finish(job.id, claim, "stopped")
            raise
        return True

    def _failed(self, job: Job, claim: int, error: dict[str, str]) -> None:
        try:
            self.table.finish(job.id, claim, "failed", error)
        except VilcoError as second:  # a full disk cannot even take the note; the caller must still hear of it
            raise VilcoError(error["code"], error["message"], error["remedy"]) from second
