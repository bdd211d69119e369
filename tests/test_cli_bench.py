"""The speed bench: its rows, its clock, its films. The numbers themselves are for reading, not for asserting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vilco_app.benchmarks.machine import decode_rate, make_film, measured
from vilco_app.benchmarks.rows import Row
from vilco_app.benchmarks.speed import GROUPS, speed
from vilco_app.benchmarks.standin import StandIn
from vilco_app.cli_print import bench_text
from vilco_app.encoders.base import Profile
from vilco_app.values import VilcoError
from vilco_app.video import probe


def test_a_film_has_the_length_size_and_key_frames_asked_for(tmp_path: Path) -> None:
    film = make_film(tmp_path / "film.mp4", 25, 320, 180, gop=60)
    info = probe(film)
    assert info.duration == pytest.approx(25, abs=0.2)
    assert (info.width, info.height, info.codec) == (320, 180, "h264")
    assert info.keyframe_interval is not None and info.keyframe_interval <= 2.01
    frames, cpu = decode_rate(film)
    assert frames == pytest.approx(750, abs=6) and cpu > 0
    assert [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


def test_the_clock_counts_work_and_not_waiting() -> None:
    with measured() as waiting:
        time.sleep(0.2)
    with measured() as working:
        until = time.process_time() + 0.2
        while time.process_time() < until:
            pass
    assert waiting.cpu < 0.1 < waiting.wall
    assert working.cpu >= 0.19


def test_an_unknown_group_is_an_error_and_a_failing_one_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VilcoError, match="nonsense"):
        speed(only=["nonsense"])

    def broken(_: object) -> list[Row]:
        raise RuntimeError("no luck")

    monkeypatch.setitem(GROUPS, "machine", lambda _: [Row("one", 1.0, "s", 2.0, "max")])
    monkeypatch.setitem(GROUPS, "ask", broken)
    rows = speed(only=["ask"])
    assert [set(r) for r in rows] == [{"name", "value", "unit", "target", "limit"}] * 2
    assert rows[1]["value"] is None and "no luck" in rows[1]["name"]


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    rows = [
        Row("a", 1.0, "s", 2.0, "max"),
        Row("b", 3.0, "s", 2.0, "max"),
        Row("c", 3.0, "x", 2.0, "min"),
        Row("d", None, ""),
    ]
    lines = bench_text([r.to_json() for r in rows]).splitlines()
    assert lines[1].endswith("ok") and lines[2].endswith("MISSED") and lines[3].endswith("ok")
    assert "at most 2" in lines[1] and "at least 2" in lines[3] and "not measured" in lines[4]


def test_the_stand_in_is_a_profile() -> None:
    import numpy as np

    profile: Profile = StandIn()
    features = profile.encode(np.zeros((2, 32, 48, 3), np.uint8))
    assert features.globals.shape == (2, profile.global_dim) and features.counts.sum() == len(features.regions)
