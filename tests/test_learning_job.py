"""Learning as a job in a child process, on a real (made) video: killed, resumed, asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from vilco_app import EpisodicMemory

pytestmark = pytest.mark.slow


@pytest.fixture
def memory(tmp_path: Path) -> EpisodicMemory:
    if shutil.which("ffmpeg") is None:
        pytest.skip("ffmpeg is not installed")
    video = tmp_path / "made.mp4"
    graph = "testsrc=size=320x240:rate=10:duration=20[a];mandelbrot=size=320x240:rate=10[m];[m]trim=duration=20[b];[a][b]concat=n=2"
    subprocess.run(["ffmpeg", "-v", "error", "-filter_complex", graph, "-pix_fmt", "yuv420p", str(video)], check=True)
    found = EpisodicMemory(tmp_path / "home")
    found.add(video)
    examples = [
        {"id": f"q{i}", "video": str(video), "query": f"question number {i}", "windows": [[5 * i + 1, 5 * i + 4]]}
        for i in range(7)
    ]
    stage = {"schema": 1, "name": "made", "family": "nlq", "examples": examples}
    (tmp_path / "stage.json").write_text(json.dumps(stage))
    return found


def child_of(home: Path) -> int | None:
    """The process id of the learning child of this home."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"vilco_app.learning.child" in words and str(home).encode() in words:
            return int(entry.parent.name)
    return None


@pytest.mark.skipif(sys.platform != "linux", reason="finds the child through /proc")
def test_a_killed_child_costs_nothing_but_time(memory: EpisodicMemory, tmp_path: Path) -> None:
    from vilco_app.learning.job import enqueue
    from vilco_app.learning.types import LearnReport

    job = enqueue(memory.home, memory.library, memory.profile, tmp_path / "stage.json", "reservoir")
    jobs = memory.library.jobs

    def kill_when_it_trains() -> None:
        for _ in range(3000):
            pid = child_of(memory.home)
            if pid is not None and list((memory.home / "models" / ".work").glob("*/checkpoint.safetensors")):
                os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.05)

    killer = threading.Thread(target=kill_when_it_trains)
    killer.start()
    first = jobs.run_until(job)
    killer.join()
    assert first.state in ("failed", "done")  # done: the kill came after the last line
    if first.state == "failed":
        assert first.error is not None and first.error["code"] == "learning-died"
        jobs.resume(job)
    done = jobs.run_until(job)
    report = LearnReport.from_json(done.result)
    assert done.state == "done" and memory.models().active == report.snapshot
    assert not list((memory.home / "models").glob(".*.tmp"))


def test_learning_changes_what_answers_and_a_roll_back_undoes_it(memory: EpisodicMemory, tmp_path: Path) -> None:
    before = memory.ask("question number 3")
    report = memory.learn(tmp_path / "stage.json", strategy="reservoir")
    assert memory.models().active == report.snapshot
    after = memory.ask("question number 3")
    assert after.snapshot == report.snapshot and after.moments
    assert memory.use("base") == "base"
    assert memory.ask("question number 3").moments == before.moments
