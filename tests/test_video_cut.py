"""Clips and proxies: the right frames at the right times, playable, whole or not there at all."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests import media
from tests.video_cases import CASES
from vilco_app.values import VilcoError
from vilco_app.video import browser_playable, cut_clip, make_proxy, open_recording, probe, samples

NAMES = ("h264", "start at 5 s", "edit list", "transport stream", "resolution change", "xvid avi", "vfr", "two streams")


def shown(path: Path) -> list[tuple[float, int]]:
    return [
        (float(time), media.number_in(frame))
        for batch in samples(open_recording(path), 1000, 90)
        for time, frame in zip(batch.times, batch.frames, strict=True)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_clip_holds_the_frames_of_its_window(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert case.truth is not None
    recording = open_recording(case.make(tmp_path))
    start, end = 1.5, 2.75
    out = tmp_path / "clip.mp4"
    cut_clip(recording, start, end, out)
    before = [pair for pair in case.truth if pair[0] <= start][-1]  # what is on the screen when the clip begins
    expected = [before, *[pair for pair in case.truth if start < pair[0] < end]]
    got = shown(out)
    assert [number for _, number in got] == [number for _, number in expected]
    assert [time for time, _ in got] == pytest.approx([max(0.0, time - start) for time, _ in expected], abs=1e-3)
    info = probe(out)
    assert info.first_pts == 0 and browser_playable(info) and info.codec == "h264"
    assert out.read_bytes().index(b"moov") < out.read_bytes().index(b"mdat")  # plays before it is loaded


def test_a_clip_far_into_a_file_is_reached_by_seeking(tmp_path: Path) -> None:
    path = media.make(tmp_path / "long.mp4", 700, "-output_ts_offset", "3", sound=True, size=(160, 90))
    out = tmp_path / "clip.mp4"
    cut_clip(open_recording(path), 20.0, 20.4, out)
    assert [number for _, number in shown(out)] == list(range(500, 510))
    assert probe(out).audio == "aac"


@pytest.mark.parametrize("name", ["edit list", "wide pixels", "rotation 90", "odd sizes", "bare h264", "hevc 10 bit"])
def test_a_proxy_has_our_times_and_plays(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    recording = open_recording(case.make(tmp_path))
    out = tmp_path / "proxy.mp4"
    seen: list[tuple[float, float]] = []
    make_proxy(recording, out, progress=lambda done, total, text: seen.append((done, total)))
    info = probe(out)
    assert browser_playable(info) and info.duration == pytest.approx(recording.duration, abs=0.05)
    assert abs(info.width - case.size[0]) <= 1 and abs(info.height - case.size[1]) <= 1 and info.rotation == 0
    batches = list(samples(open_recording(out), 1000, 90))
    got = [(t, media.number_in(case.upright(f))) for b in batches for t, f in zip(b.times, b.frames, strict=True)]
    assert [n for _, n in got] == [n for _, n in case.truth or ()]
    assert [t for t, _ in got] == pytest.approx([t for t, _ in case.truth or ()], abs=1e-3)
    assert seen and all(0 <= done <= total for done, total in seen)


def test_chapters_join_in_clip_and_proxy(tmp_path: Path) -> None:
    parts = [media.make(tmp_path / f"GX0{i + 1}0001.MP4", range(40 * i, 40 * i + 40), sound=True) for i in range(3)]
    recording = open_recording(parts)
    cut_clip(recording, 1.0, 4.0, tmp_path / "clip.mp4")
    got = shown(tmp_path / "clip.mp4")
    assert [number for _, number in got] == list(range(25, 100))
    assert [time for time, _ in got] == pytest.approx([n / 25 - 1 for n in range(25, 100)], abs=2e-3)
    make_proxy(recording, tmp_path / "proxy.mp4")
    got = shown(tmp_path / "proxy.mp4")
    assert [time for time, _ in got] == pytest.approx([n / 25 for _, n in got], abs=2e-3) and len(got) == 120


def test_failures_leave_nothing_behind(tmp_path: Path) -> None:
    recording = open_recording(media.make(tmp_path / "a.mp4", 25))
    for start, end in ((0.5, 0.5), (2.0, 3.0), (0.9, 0.2)):
        with pytest.raises(VilcoError, match="not inside"):
            cut_clip(recording, start, end, tmp_path / "clip.mp4")
    with pytest.raises(VilcoError, match=r"clip\.mp4") as error:
        cut_clip(recording, 0.0, 0.5, tmp_path / "missing folder" / "clip.mp4")
    assert error.value.code == "not-written"
    kept = tmp_path / "kept.mp4"
    kept.write_bytes(b"old")
    (tmp_path / "a.mp4").write_bytes(b"\0" * 100)
    with pytest.raises(VilcoError):
        make_proxy(recording, kept)
    assert kept.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "kept.mp4"]


def test_what_browsers_play(tmp_path: Path) -> None:
    info = probe(media.make(tmp_path / "a.mp4", 5))
    assert browser_playable(info)
    for change in (
        {"codec": "hevc"}, {"codec": "mpeg4"}, {"pixel_format": "yuv420p10le"}, {"container": "matroska,webm"},
        {"container": "avi"}, {"first_pts": 5.0},
    ):  # fmt: skip
        assert not browser_playable(dataclasses.replace(info, **change)), change  # type: ignore[arg-type]
    webm = dataclasses.replace(info, path=Path("a.webm"), container="matroska,webm")
    assert browser_playable(dataclasses.replace(webm, codec="vp9")) and not browser_playable(webm)
