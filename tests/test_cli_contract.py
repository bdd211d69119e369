"""The command line through its real door: a process, its exit code, its stdout, its stderr."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vilco_app.jobs import Jobs
from vilco_app.reading import read_answer

HEAVY = ("torch", "gradio", "transformers", "faiss", "openvino", "numpy", "av")


def vilco(*arguments: str, home: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, VILCO_HOME=str(home))
    command = [sys.executable, "-m", "vilco_app.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **options)


def asked(*arguments: str, home: Path, code: int = 0) -> dict[str, Any]:
    """Run with --json and return the one object printed."""
    done = vilco(*arguments, "--json", home=home)
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    result = json.loads(done.stdout)
    assert result["schema"] == 1
    return result


@pytest.fixture(scope="module")
def library(make_home: Callable[[], Path], street: Path) -> Path:
    """A home with the street in it, added through the command line."""
    home = make_home()
    report = asked("add", str(street), home=home)
    assert len(report["added"]) == 1 and report["refused"] == []
    return home


@pytest.fixture(scope="module")
def empty(make_home: Callable[[], Path]) -> Path:
    """A home without a video."""
    return make_home()


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; sys.argv[1:] = ['--help']\nfrom vilco_app.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    script += f"print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"
    assert "ask" in done.stdout


def test_ask_answers_without_torch(library: Path) -> None:
    script = (
        "import sys\nfrom vilco_app.cli import main\nsys.argv[1:] = ['ask', 'a parked bicycle', '--json']\n"
        "try: main()\nexcept SystemExit as e: assert not e.code\n"
        "print([m for m in ('torch', 'gradio', 'transformers') if m in sys.modules])"
    )
    environment = dict(os.environ, VILCO_HOME=str(library))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    lines = done.stdout.strip().splitlines()
    assert json.loads(lines[0])["moments"], done.stderr
    assert lines[1] == "[]"


def test_asking_and_adding_reach_for_no_network(library: Path, street: Path, tmp_path: Path) -> None:
    spy = """
import os, socket
def note(*args):
    with open(os.environ["SPY_FILE"], "a") as file: file.write(repr(args) + "\\n")
look_up, connect = socket.getaddrinfo, socket.socket.connect
def getaddrinfo(*args, **kwargs): note(args); return look_up(*args, **kwargs)
def connected(self, address): note(address); return connect(self, address)
socket.getaddrinfo, socket.socket.connect = getaddrinfo, connected
"""
    (tmp_path / "sitecustomize.py").write_text(spy)
    seen = tmp_path / "seen"
    environment = dict(os.environ, VILCO_HOME=str(library), PYTHONPATH=str(tmp_path), SPY_FILE=str(seen))
    check = "import socket\ntry: socket.create_connection(('127.0.0.1', 9), 1)\nexcept OSError: pass"
    subprocess.run([sys.executable, "-c", check], env=environment, check=True)
    assert seen.read_text().count("127.0.0.1") == 2  # the spy works
    seen.unlink()
    for arguments in (["ask", "a taxi"], ["add", str(street)], ["find", f"{street}@8"], ["doctor", str(street)]):
        command = [sys.executable, "-m", "vilco_app.cli", *arguments]
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert not seen.exists(), seen.read_text()


def test_a_question_by_id_prefix_finds_the_bicycle(library: Path) -> None:
    video = asked("list", home=library)["videos"][0]
    answer = asked("ask", "a parked bicycle", "--video", video["id"][:6], "--top", "2", "--curve", home=library)
    assert read_answer(answer).to_json() == answer
    assert answer["kind"] == "text" and answer["tracks"] == [] and 1 <= len(answer["moments"]) <= 2
    best = answer["moments"][0]
    assert best["video"] == video["id"] and best["start"] >= 3.5  # before, there are only cars
    assert answer["curves"][0]["times"] == sorted(answer["curves"][0]["times"])
    assert answer["searched"] == {"videos": 1, "seconds": 10.0, "indexed_seconds": 10.0, "ids": [video["id"]]}
    assert answer["found"] == (answer["confidence"] >= answer["threshold"])


def test_before_keeps_only_what_ended(library: Path, street: Path) -> None:
    answer = asked("ask", "cars", "--video", str(street), "--before", "0:00:04", home=library)
    assert answer["moments"] and all(m["end"] <= 4.0 for m in answer["moments"])
    error = asked("ask", "cars", "--before", "4", home=library, code=1)["error"]
    assert error["code"] == "before-needs-one-video" and error["remedy"]


def test_moments_name_their_category(library: Path) -> None:
    answer = asked("moments", "riding a bicycle", "parking a car", home=library)
    assert answer["kind"] == "moment"
    assert {m["category"] for m in answer["moments"]} == {"riding a bicycle", "parking a car"}


def test_human_answers_say_what_was_searched(library: Path) -> None:
    done = vilco("ask", "a parked bicycle", home=library)
    assert done.returncode == 0
    assert "10 s of 1 video" in done.stdout and "bikes.mp4" in done.stdout and "0:00:0" in done.stdout
    assert "{" not in done.stdout


def test_adding_again_is_unchanged_and_a_path_asked_is_added_first(
    library: Path, street: Path, make_home: Callable[[], Path]
) -> None:
    again = asked("add", str(street), home=library)
    assert again["added"] == [] and len(again["unchanged"]) == 1
    answer = asked("ask", "a taxi", "--video", str(street), home=make_home())
    assert answer["searched"]["videos"] == 1 and answer["moments"]


def test_refused_files_have_reason_and_remedy(library: Path, street: Path, tmp_path: Path) -> None:
    fake = tmp_path / "text.mp4"
    fake.write_text("not a video")
    report = asked("add", str(fake), home=library, code=1)
    assert report["refused"][0]["path"] == str(fake)
    assert report["refused"][0]["reason"] and report["refused"][0]["remedy"]
    assert asked("add", str(fake), str(street), home=library, code=3)["unchanged"]


@pytest.mark.parametrize(
    "arguments",
    [("ask",), ("ask", "x", "--nonsense"), ("nonsense",), ("jobs", "stop"), ("learn",), ("ask", "x", "--top", "0")],
)
def test_usage_errors_are_code_2_and_json(arguments: tuple[str, ...], tmp_path: Path) -> None:
    error = asked(*arguments, home=tmp_path, code=2)["error"]
    assert error["code"] == "usage" and error["message"] and "--help" in error["remedy"]
    plain = vilco(*arguments, home=tmp_path)
    assert plain.returncode == 2 and plain.stdout == "" and "error:" in plain.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("ask", "  "), "empty-query"),
        (("ask", "x"), "empty-library"),
        (("ask", "x", "--video", "nowhere.mp4"), "no-such-video"),
        (("show", "ffffff"), "no-such-video"),
        (("find", "nowhere.png"), "missing-picture"),
        (("find", "x.png", "--box", "1,2"), "bad-box"),
        (("export", "nowhere.json", "--to", "csv", "-o", "x.csv"), "cannot-read"),
        (("world", "out"), "not-built"),
    ],
)
def test_errors_name_the_thing_and_the_remedy(arguments: tuple[str, ...], code: str, empty: Path) -> None:
    error = asked(*arguments, home=empty, code=1)["error"]
    assert error["code"] == code, error
    assert error["message"] and error["remedy"]


def test_export_and_correct_read_a_saved_answer(library: Path, tmp_path: Path) -> None:
    saved = tmp_path / "answer.json"
    done = vilco("ask", "a man walking past", "--json", home=library)
    saved.write_text(done.stdout)
    out = asked("export", str(saved), "--to", "csv", "-o", str(tmp_path / "a.csv"), home=library)
    assert Path(out["path"]).read_text().startswith("rank,query")
    correction = asked("correct", str(saved), "--rank", "1", "--start", "1", "--end", "0:00:02.5", home=library)
    assert correction["correction"]["windows"] == [[1.0, 2.5]]
    best = asked("ask", "A man walking past?", home=library)["moments"][0]
    assert (best["start"], best["end"], best["source"]) == (1.0, 2.5, "correction")
    absent = asked("correct", str(saved), "--absent", home=library)
    assert absent["correction"]["windows"] == []
    assert not asked("ask", "a man walking past", home=library)["found"]
    error = asked("correct", str(saved), "--rank", "99", home=library, code=1)["error"]
    assert error["code"] == "bad-rank"
    error = asked("correct", str(saved), "--rank", "1", "--start", "5", "--end", "4", home=library, code=1)["error"]
    assert error["code"] == "bad-window"
    saved.write_text("{}")
    assert asked("correct", str(saved), "--absent", home=library, code=1)["error"]["code"] == "bad-answer"


def test_a_pipe_carries_the_answer(library: Path, tmp_path: Path) -> None:
    answer = vilco("ask", "a taxi", "--json", home=library).stdout
    done = vilco("export", "-", "--to", "srt", "-o", str(tmp_path / "a.srt"), "--json", home=library, input=answer)
    assert done.returncode == 0 and "-->" in (tmp_path / "a.srt").read_text()


def test_doctor_reports_on_files_and_on_itself(street: Path, tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    report = asked("doctor", str(street), str(tmp_path / "text.mp4"), home=tmp_path)
    good, bad = report["files"]
    assert good["ok"] and not bad["ok"] and bad["problems"][0]["message"]
    checks = {c["name"]: c["ok"] for c in asked("doctor", home=tmp_path)["checks"]}
    assert checks["data folder"] and checks["ffmpeg"] and checks["profile embedded"]


def test_an_interrupted_add_can_be_taken_up_again(make_home: Callable[[], Path], tmp_path: Path) -> None:
    film = tmp_path / "long.mp4"
    source = "testsrc2=size=320x180:rate=30:duration=120"
    encode = ["-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "300"]
    subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, *encode, str(film)], check=True)
    home = make_home()
    environment = dict(os.environ, VILCO_HOME=str(home))
    command = [sys.executable, "-m", "vilco_app.cli", "add", str(film), "--rate", "8"]  # long enough to be caught
    child = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores Ctrl-C
    )  # fmt: skip
    table, until = Jobs(home), time.monotonic() + 120
    while not any(job.state == "running" for job in table.list()) and time.monotonic() < until:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, noise = child.communicate(timeout=120)
    assert child.returncode == 3, noise
    assert "again" in noise or "resume" in noise
    job = asked("jobs", home=home)["jobs"][0]
    assert job["state"] == "stopped"
    assert asked("add", str(film), home=home)["added"]
    assert asked("list", home=home)["videos"][0]["state"] == "ready"
