"""Jobs in a child process: own process, low priority, progress and stops go through, and it never outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vilco_app.jobs import Jobs, in_child, polite_environment

TARGETS = "tests.jobs_child_targets"


def make(home: Path, name: str) -> Jobs:
    return Jobs(home, {"learn": in_child(home, f"{TARGETS}:{name}")})


def test_it_runs_elsewhere_politely_and_reports(tmp_path: Path) -> None:
    jobs = make(tmp_path, "learn")
    heard: list[tuple[float, float, str]] = []
    job = jobs.run_until(jobs.enqueue("learn", {"x": 7}), lambda *p: heard.append(p))
    assert job.state == "done" and job.result["asked"] == 7
    assert job.result["pid"] != os.getpid() and job.result["nice"] >= os.nice(0) + 10
    assert job.result["waits"] == "PASSIVE"
    assert any(0 < done < 20 and text == "learning" for done, _, text in heard)


def test_a_child_leaves_one_core_and_takes_no_more_threads_than_its_parent_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_NUM_THREADS", "64")
    given = polite_environment()
    assert [given[f"{n}_NUM_THREADS"] for n in ("OMP", "OPENBLAS", "MKL")] == ["7", "3", "7"]


def test_its_failures_are_the_jobs_failures(tmp_path: Path) -> None:
    jobs = make(tmp_path, "fail")
    failed = jobs.run_until(jobs.enqueue("learn", {}))
    assert failed.state == "failed" and failed.error is not None and failed.error["code"] == "bad-stage"
    jobs = make(tmp_path, "crash")
    failed = jobs.run_until(jobs.enqueue("learn", {}))
    assert failed.state == "failed" and failed.error is not None and "boom" in failed.error["message"]


def test_it_stops_when_told_to(tmp_path: Path) -> None:
    jobs = make(tmp_path, "forever")
    job = jobs.enqueue("learn", {})

    def stop(done: float, _: float, text: str) -> None:
        if done:
            jobs.stop(job)

    assert jobs.run_until(job, stop).state == "stopped"


def test_it_ends_when_the_worker_is_killed(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    job = jobs.enqueue("learn", {})
    code = (
        "import sys; from pathlib import Path; from vilco_app.jobs import Jobs, in_child; home = Path(sys.argv[1]);"
        f"Jobs(home, {{'learn': in_child(home, '{TARGETS}:forever')}}).run_until({job})"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        deadline = time.monotonic() + 30
        while not jobs.get(job).text and time.monotonic() < deadline:
            time.sleep(0.05)
        child = int(jobs.get(job).text)
        os.kill(child, 0)  # it is there
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        while _runs(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _runs(child)
    finally:
        worker.kill()
        worker.wait()


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # an orphan nobody reaps stays as a zombie in a container
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
