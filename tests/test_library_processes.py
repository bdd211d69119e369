"""Several processes on one home, processes that are killed, and storage that fails: nothing lost, nothing doubled."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.library_process import open_library
from tests.library_stand_ins import TinyFootage, TinyProfile, write_video
from tests.test_library_indexing import check_rows
from tests.test_library_search import check
from vilco_app.library import Library
from vilco_app.values import VilcoError


def start(home: Path, what: str, *paths: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.library_process", str(home), what, *map(str, paths)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict:  # type: ignore[type-arg]
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return json.loads(out)  # type: ignore[no-any-return]


def check_everything(home: Path, footage: dict[Path, float]) -> None:
    """Every recording complete and once; every indexed vector once; no folder that the catalogue does not know."""
    library = open_library(home)
    assert sorted(v.path for v in library.videos()) == sorted(map(str, footage))
    for seed, (path, seconds) in enumerate(footage.items()):
        video = library.resolve(path)
        assert video.state == "ready" and video.indexed_seconds == pytest.approx(seconds)
        check_rows(library, video.id, seconds, seed)
    spans = [
        (s.take, row) for g in library.catalogue.segments("tiny@1") for s in g.spans for row in range(s.first, s.last)
    ]
    assert len(spans) == len(set(spans)) > 0
    check(library)
    library._generations.tidy("tiny@1")
    takes = {f"take{t.id}" for t in library.catalogue.takes()}
    assert {f.name for f in library.features_folder.glob("*/*/take*")} == takes and len(takes) == len(footage)
    assert {f.name for f in library.generations_folder.glob("*/*segment-*")} == library.catalogue.segment_names()
    assert all(job.state == "done" for job in library.jobs.list())


def make_footage(folder: Path, count: int, seconds: float) -> dict[Path, float]:
    return {write_video(folder / f"{i}.mp4", seconds + i, seed=i): seconds + i for i in range(count)}


def test_two_processes_add_and_one_asks_at_the_same_time(tmp_path: Path) -> None:
    footage, home, over = make_footage(tmp_path / "films", 8, 40), tmp_path / "home", tmp_path / "over"
    paths = list(footage)
    asking = start(home, "ask", over)
    adding = [start(home, "add", *paths[:5]), start(home, "add", *paths[3:])]  # two recordings wanted by both
    reports = [finish(process) for process in adding]
    over.touch()
    assert finish(asking)["asked"] > 0
    assert not any(r["refused"] or r["warnings"] for r in reports)
    assert [len(r["added"]) + len(r["unchanged"]) for r in reports] == [5, 5]
    check_everything(home, footage)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_at_any_point_it_goes_on_as_if_nothing_had_been(tmp_path: Path, seed: int) -> None:
    footage, home = make_footage(tmp_path / "films", 3, 60), tmp_path / "home"
    rng = random.Random(seed)
    for _ in range(3):
        process = start(home, "add", *footage)
        deadline = time.monotonic() + 30
        before = _version(home)
        while _version(home) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)  # it has begun to write
        time.sleep(rng.random() * 1.2)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (home / "indexes" / "catalogue.sqlite").exists():  # what is there can be asked
            library = open_library(home)
            if any(v.indexed_seconds for v in library.videos()):
                check(library, top=3)
    report = finish(start(home, "add", *footage))
    assert not report["refused"] and len(report["added"]) + len(report["unchanged"]) == 3
    check_everything(home, footage)


def _version(home: Path) -> int:
    try:
        with sqlite3.connect(f"file:{home}/indexes/catalogue.sqlite?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT value FROM settings WHERE name = 'version'").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return 0


def test_a_full_disk_is_said_clearly_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    footage, home = make_footage(tmp_path / "films", 2, 60), tmp_path / "home"
    calls, real = 0, os.fsync

    def fsync(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(VilcoError) as error:
        open_library(home).add(list(footage), TinyProfile())
    assert error.value.code == "disk-full" and "space" in error.value.remedy
    monkeypatch.setattr(os, "fsync", real)
    kept = open_library(home).videos()[0].indexed_seconds
    assert kept > 0
    profile = TinyProfile()
    assert len(open_library(home).add(list(footage), profile).added) == 2
    library = open_library(home)
    for seed, (path, seconds) in enumerate(footage.items()):
        check_rows(library, library.resolve(path).id, seconds, seed)


LIMITED = """
import json, resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
from tests.library_process import open_library
from tests.library_stand_ins import TinyProfile
from vilco_app.values import VilcoError
try:
    print(open_library(Path(sys.argv[1])).add(sys.argv[3:], TinyProfile()).to_json())
except VilcoError as error:
    print(json.dumps(error.to_json()))
"""


@pytest.mark.parametrize("limit", [8_000, 60_000])
def test_writes_that_the_system_refuses_are_said_clearly(tmp_path: Path, limit: int) -> None:
    """A file size limit fails a real write, in the catalogue or in the arrays, whichever grows beyond it first."""
    footage, home = make_footage(tmp_path / "films", 1, 1500), tmp_path / "home"
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(home), str(limit), *map(str, footage)], capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["error"]["code"] in ("disk-full", "storage-failed")
    assert len(open_library(home).add(list(footage), TinyProfile()).added) == 1
    check_everything(home, footage)


def test_a_home_that_cannot_be_made_or_written_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(VilcoError) as error:
        Library(tmp_path / "file" / "home")
    assert error.value.code == "home-not-writable" and "VILCO_HOME" in error.value.remedy


def test_a_read_only_home_can_still_be_asked(tmp_path: Path) -> None:
    footage, home = make_footage(tmp_path / "films", 1, 60), tmp_path / "home"
    open_library(home).add(list(footage), TinyProfile())
    code = (
        "import faiss, filelock, mmap, numpy as np, os, sys; import vilco_app.library.statistics; from pathlib import Path; from tests.library_process import open_library\n"
        "from tests.library_stand_ins import TinyProfile; from vilco_app.values import VilcoError\n"
        "os.geteuid() == 0 and (os.setgid(65534), os.setuid(65534))  # root may write anywhere\n"
        "library = open_library(Path(sys.argv[1])); print(len(library.search_globals(np.ones(16), 5)[0].rows))\n"
        "print(library.statistics('globals').n)\n"
        "try: library.add(sys.argv[2], TinyProfile())\n"
        "except VilcoError as error: print(error.code)"
    )
    for path in [home, *home.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in [home, *home.parents]:
        if path == Path("/tmp"):
            break
        path.chmod(path.stat().st_mode | 0o555)
    try:
        run = subprocess.run(
            [sys.executable, "-c", code, str(home), str(next(iter(footage)))], capture_output=True, text=True, timeout=60
        )  # fmt: skip
        assert run.stdout.split() == ["5", "120", "home-not-writable"], run.stderr
    finally:
        for path in [home, *home.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_newer_library_is_refused_and_an_older_one_migrated(tmp_path: Path) -> None:
    from vilco_app.jobs.database import Database

    path = tmp_path / "catalogue.sqlite"
    steps = ("CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1)", "ALTER TABLE a ADD COLUMN y INTEGER DEFAULT 7")
    old = Database(path, "part", steps[:1])
    with old.write() as connection:
        connection.execute("INSERT INTO a VALUES (2)")
    new = Database(path, "part", steps)
    assert [tuple(row) for row in new.read("SELECT x, y FROM a ORDER BY x")] == [(1, 7), (2, 7)]
    with pytest.raises(VilcoError) as error:
        Database(path, "part", steps[:1])
    assert error.value.code == "newer-library" and "newer" in error.value.message
    broken = ("CREATE TABLE b (x INTEGER); INSERT INTO nowhere VALUES (1)",)
    with pytest.raises(VilcoError):
        Database(path, "other", broken)
    assert not new.read("SELECT 1 FROM sqlite_master WHERE name = 'b'")  # a step happens whole or not at all


def test_a_damaged_catalogue_is_said_clearly(tmp_path: Path) -> None:
    (tmp_path / "indexes").mkdir()
    (tmp_path / "indexes" / "catalogue.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(VilcoError) as error:
        Library(tmp_path)
    assert error.value.code == "damaged-library"


def test_lost_feature_files_are_made_again(tmp_path: Path) -> None:
    footage, home = make_footage(tmp_path / "films", 2, 60), tmp_path / "home"
    library = open_library(home)
    library.add(list(footage), TinyProfile())
    shutil.rmtree(library.features_folder / library.videos()[0].id)
    report = open_library(home).add(list(footage), TinyProfile())
    assert len(report.added) == 1 and len(report.unchanged) == 1
    check_everything(home, footage)


def test_a_folder_added_again_is_not_read_again(tmp_path: Path) -> None:
    footage, home = make_footage(tmp_path / "films", 30, 1), tmp_path / "home"
    open_library(home).add(tmp_path / "films", TinyProfile())
    opened: list[Path] = []

    class Watched(TinyFootage):
        def _load(self, path: Path):  # type: ignore[no-untyped-def]
            opened.append(path)
            return super()._load(path)

    library = Library(home, "tiny@1", footage=Watched())
    assert len(library.add(tmp_path / "films", TinyProfile()).unchanged) == len(footage) == 30
    assert not opened
