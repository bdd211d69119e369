"""Jobs: one worker per home, everybody else follows; stopping, resuming, failing and dying leave the table right."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vilco_app.jobs import CannotRunHere, Context, Job, Jobs
from vilco_app.values import VilcoError


def count_to(n: int, seen: list[int] | None = None):  # type: ignore[no-untyped-def]
    def handler(job: Job, context: Context) -> dict[str, int]:
        for i in range(n):
            context.check()
            context.progress(i + 1, n, "counting")
            if seen is not None:
                seen.append(job.id)
        return {"counted": n}

    return handler


def test_the_job_asked_for_goes_first_the_others_in_order(tmp_path: Path) -> None:
    seen: list[int] = []
    jobs = Jobs(tmp_path, {"count": count_to(2, seen)})
    ids = [jobs.enqueue("count", {"n": i}) for i in range(3)]
    heard: list[tuple[float, float, str]] = []
    job = jobs.run_until(ids[1], lambda *p: heard.append(p))
    assert (job.state, job.result, job.done, job.total) == ("done", {"counted": 2}, 2, 2)
    assert seen == [ids[1], ids[1]] and (2, 2, "counting") in heard
    assert [j.state for j in (jobs.get(i) for i in ids)] == ["waiting", "done", "waiting"]
    assert [j.id for j in jobs.list()] == [ids[0], ids[2], ids[1]]
    assert jobs.run_pending()
    assert seen[2:] == [ids[0], ids[0], ids[2], ids[2]]


def test_the_same_thing_is_queued_once_until_it_is_done(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"count": count_to(1)})
    first = jobs.enqueue("count", {}, key="a")
    assert jobs.enqueue("count", {}, key="a") == first != jobs.enqueue("count", {}, key="b")
    jobs.stop(first)
    assert jobs.enqueue("count", {}, key="a") == first and jobs.get(first).state == "waiting"
    jobs.run_until(first)
    assert jobs.enqueue("count", {}, key="a") != first


def test_stop_and_resume(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    rounds = 0

    def handler(job: Job, context: Context) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            jobs.stop(job.id)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                context.check()
            raise AssertionError("the stop was not seen")

    jobs.register("work", handler)
    job = jobs.enqueue("work", {})
    assert jobs.run_until(job).state == "stopped"
    assert jobs.run_until(job).state == "stopped"  # stays so
    assert jobs.resume(job).state == "waiting"
    assert jobs.run_until(job).state == "done" and rounds == 2
    assert jobs.resume(job).state == jobs.stop(job).state == "done"
    waiting = jobs.enqueue("work", {})
    assert jobs.stop(waiting).state == "stopped"
    with pytest.raises(VilcoError, match="999"):
        jobs.stop(999)


def test_failures_are_kept_with_their_reason(tmp_path: Path) -> None:
    def refuse(job: Job, context: Context) -> None:
        raise VilcoError("too-big", "a.mp4: too big.", "Cut it.")

    def break_(job: Job, context: Context) -> None:
        raise ZeroDivisionError("oops")

    jobs = Jobs(tmp_path, {"refuse": refuse, "break": break_})
    refused = jobs.run_until(jobs.enqueue("refuse", {}))
    assert refused.state == "failed"
    assert refused.error == {"code": "too-big", "message": "a.mp4: too big.", "remedy": "Cut it."}
    broken = jobs.run_until(jobs.enqueue("break", {}, label="a.mp4"))
    assert broken.error is not None and broken.error["code"] == "job-failed" and "oops" in broken.error["message"]


def test_ctrl_c_leaves_a_resumable_job(tmp_path: Path) -> None:
    def interrupted(job: Job, context: Context) -> None:
        raise KeyboardInterrupt

    jobs = Jobs(tmp_path, {"work": interrupted})
    job = jobs.enqueue("work", {})
    with pytest.raises(KeyboardInterrupt):
        jobs.run_until(job)
    assert jobs.get(job).state == "stopped"
    jobs.register("work", count_to(1))
    jobs.resume(job)
    assert jobs.run_until(job).state == "done"


def test_one_works_the_other_follows(tmp_path: Path) -> None:
    started, go = threading.Event(), threading.Event()
    ran: list[str] = []

    def handler_of(name: str):  # type: ignore[no-untyped-def]
        def handler(job: Job, context: Context) -> None:
            ran.append(name)
            context.progress(1, 2, "half")
            started.set()
            assert go.wait(10)

        return handler

    one, other = Jobs(tmp_path, {"work": handler_of("one")}), Jobs(tmp_path, {"work": handler_of("other")})
    job = one.enqueue("work", {})
    worker = threading.Thread(target=one.run_until, args=(job,))
    worker.start()
    assert started.wait(10)
    heard: list[tuple[float, float, str]] = []

    def listen(*progress: object) -> None:
        heard.append(progress)  # type: ignore[arg-type]
        go.set()

    assert other.run_until(job, listen).state == "done"
    worker.join()
    assert ran == ["one"] and (1, 2, "half") in heard
    assert other.run_pending()


def test_a_job_only_another_process_can_run_waits_for_it(tmp_path: Path) -> None:
    def unable(job: Job, context: Context) -> None:
        raise CannotRunHere

    here, there = Jobs(tmp_path, {"work": unable}), Jobs(tmp_path, {"work": count_to(1)})
    job = here.enqueue("work", {})
    follower = threading.Thread(target=here.run_until, args=(job,))
    follower.start()
    time.sleep(0.2)
    assert there.run_until(job).state == "done"
    follower.join(10)
    assert not follower.is_alive()


WORKER = """
import sys, time
from pathlib import Path
from vilco_app.jobs import Jobs
def work(job, context):
    for i in range(600):
        context.progress(i, 600, "slow")
        time.sleep(0.05)
Jobs(Path(sys.argv[1]), {"work": work}).run_until(int(sys.argv[2]))
"""


def start_worker(home: Path, job: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORKER, str(home), str(job)])


def test_the_follower_takes_over_when_the_worker_is_killed(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"work": count_to(3)})
    job = jobs.enqueue("work", {})
    process = start_worker(tmp_path, job)
    try:
        deadline = time.monotonic() + 30
        while jobs.get(job).done == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert jobs.get(job).state == "running"
        assert not jobs.run_pending()  # somebody is working
        threading.Timer(0.3, lambda: os.kill(process.pid, signal.SIGKILL)).start()
        finished = jobs.run_until(job)
        assert finished.state == "done" and finished.result == {"counted": 3}
    finally:
        process.kill()
        process.wait()


def test_a_job_that_kills_its_worker_every_time_fails_in_the_end(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"work": count_to(1)})
    job = jobs.enqueue("work", {})
    for _ in range(5):  # as a worker that died right after taking it would leave it
        assert jobs.table.claim(("work",), frozenset()) is not None
        jobs.table.update(job, jobs.get(job).attempts, 0.5, 1, "reading")  # progress, but nothing kept
        jobs.table.recover(jobs.defaults.deaths)
    failed = jobs.run_until(job)
    assert failed.state == "failed" and failed.error is not None and failed.error["code"] == "worker-died"
    jobs.resume(job)
    assert jobs.run_until(job).state == "done"


def test_a_job_that_keeps_what_it_did_may_die_often(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"work": count_to(1)})
    job = jobs.enqueue("work", {})
    for claim in range(1, 12):
        assert jobs.table.claim(("work",), frozenset()) is not None
        jobs.table.update(job, claim, 0.5, 1, "writing", kept=True)
        jobs.table.recover(jobs.defaults.deaths)
    assert jobs.run_until(job).state == "done"


def test_what_a_dead_worker_left_is_listed_as_waiting(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"work": count_to(1)})
    job = jobs.enqueue("work", {})
    assert jobs.table.claim(("work",), frozenset()) is not None
    assert jobs.get(job).state == "running"
    assert [j.state for j in jobs.list()] == ["waiting"]


def test_an_old_claim_changes_nothing(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, {"work": count_to(1)})
    job = jobs.enqueue("work", {})
    claimed = jobs.table.claim(("work",), frozenset())
    assert claimed is not None
    jobs.table.recover(5)
    jobs.run_until(job)
    assert jobs.table.update(job, claimed[1], 0.1, 1, "ghost")  # told to stop
    jobs.table.finish(job, claimed[1], "failed", {"code": "x", "message": "", "remedy": ""})
    assert jobs.get(job).state == "done" and jobs.get(job).text == "counting"


def test_a_worker_with_nothing_left_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    jobs = Jobs(
        tmp_path, {"note": lambda job, context: told.append(job.label) or None}, idle=lambda: told.append("idle")
    )
    jobs.enqueue("note", {}, label="a")
    jobs.enqueue("note", {}, label="b")
    assert jobs.run_pending() and told == ["a", "b", "idle"]
