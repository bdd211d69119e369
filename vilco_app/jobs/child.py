"""Handlers that run in a child process at low priority, so that answering stays quick while a model learns."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from vilco_app.jobs.table import JobTable
from vilco_app.jobs.types import Context, Handler, Job, Stopped
from vilco_app.jobs.worker import JobContext, WorkerDefaults
from vilco_app.values import VilcoError

NICE = 10  # half way down: a child gets what the others leave, and still everything on an idle machine


STOPPED = 75  # exit code of a child that was told to stop


def polite_environment() -> dict[str, str]:
    """The environment of a child that computes: one core stays with whoever asks, and threads that wait sleep.

    By default they spin, which takes their core from others just when these are many.
    """
    cores = str(max(1, (os.cpu_count() or 2) - 1))
    threads = {name: cores for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    given = {name: value for name, value in os.environ.items() if name in threads and value.isdigit()}
    fewest = {name: str(min(int(cores), int(given.get(name, cores)) or 1)) for name in threads}
    return {**os.environ, **fewest, "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def stand_back() -> None:
    """Have every thread of this process, and those it will start, give way to other processes."""
    if hasattr(os, "nice"):
        os.nice(NICE)


def in_child(home: Path, target: str) -> Handler:
    """A handler that calls `target` ("package.module:function", a handler itself) in a child process.

    The child reports progress and its result to the job table itself. It sees a stop like any handler, and ends when
    this process does, however that ends. Raises VilcoError with the child's reason when it fails.
    """

    def handler(job: Job, context: Context) -> dict[str, object] | None:
        assert isinstance(context, JobContext)
        command = [sys.executable, "-m", "vilco_app.jobs.child", str(home), str(job.id), str(context.claim), target]
        with tempfile.TemporaryFile("w+") as errors:
            # stdin is never written to: that it ends tells the child that we are gone
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, env=polite_environment()
            )
            try:
                while process.poll() is None:
                    try:
                        process.wait(context.every)
                    except subprocess.TimeoutExpired:
                        now = context.table.get(job.id)
                        if context.listener is not None:
                            context.listener(now.done, now.total, now.text)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            errors.seek(0)
            said = errors.read().strip().splitlines()[-1:]
        if process.returncode == STOPPED:
            raise Stopped
        if process.returncode != 0 and not context.table.get(job.id).finished:
            raise VilcoError(
                "worker-died", f"{job.label}: its process ended ({(said or [f'exit code {process.returncode}'])[0]}).",
                f"Try again with: vilco jobs resume {job.id}",
            )  # fmt: skip
        return None

    return handler


def main(arguments: list[str]) -> int:
    """The child: run the target on the job, write the result to the table. Returns the exit code."""
    home, job_id, claim, target = Path(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3]
    stand_back()  # before any thread is started: each has its own priority
    threading.Thread(target=_end_with_parent, daemon=True).start()
    table = JobTable(home)
    job = table.get(job_id)
    context = JobContext(table, job, claim, WorkerDefaults().update_seconds)
    module, _, name = target.partition(":")
    try:
        result = getattr(importlib.import_module(module), name)(job, context)
    except Stopped:
        context.flush()
        return STOPPED
    except VilcoError as error:
        note = {"code": error.code, "message": error.message, "remedy": error.remedy}
        table.finish(job_id, claim, "failed", note)
        return 1
    context.flush()
    table.finish(job_id, claim, "done", result=result)
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()  # returns when the other end is closed, which the parent's death does
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
