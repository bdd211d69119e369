"""Probe and examine: what a file is, and what a person should know of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import media
from tests.video_cases import CASES
from vilco_app.video import FAULTS, examine, probe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probe")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.truth is not None])
def test_duration_and_size_are_the_true_ones(name: str, folder: Path) -> None:
    case = CASES[name]
    truth = case.truth or ()
    info = probe(case.make(folder))
    last = truth[-1][0] - truth[-2][0] if len(truth) > 1 else 0.04
    # a cut file promises packets whose last bytes are missing, so its end is known to a few frames only
    assert info.duration == pytest.approx(truth[-1][0] + last, abs=0.25 if "truncated" in name else 0.011)
    assert (info.width, info.height) == case.size
    assert info.vfr == (name == "vfr")
    assert any("truncated" in fault for fault in info.faults) == ("truncated" in name)


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("h264", set()),
        ("no audio", set()),
        ("vfr", {"vfr", "far-key-frames"}),
        ("rotation 90", {"rotated"}),
        ("wide pixels", {"wide-pixels"}),
        ("hevc 8 bit", {"hevc-needs-proxy"}),
        ("mpeg-4", {"needs-proxy"}),
        ("start at 5 s mp4", {"offset-start", "needs-proxy"}),
        ("gop 250", {"far-key-frames"}),
        ("bare h264", {"no-clock", "needs-proxy"}),
        ("resolution change", {"clock-restarts", "offset-start", "needs-proxy"}),
        ("truncated mp4", {"truncated"}),
        ("zero bytes", {"empty-file"}),
        ("audio only", {"no-video-stream"}),
        ("text", {"not-a-video"}),
    ],
)
def test_findings(name: str, codes: set[str], folder: Path) -> None:
    findings = examine(CASES[name].make(folder))
    assert {finding.code for finding in findings} == codes
    assert all(finding.message.endswith((".", "s", "on", "rate")) for finding in findings)


def test_only_a_thorough_look_finds_damage_inside(folder: Path) -> None:
    path = media.damage(CASES["h264"].make(folder), folder / "damaged.mp4", 0.4, 3000)
    assert examine(path) == []
    (finding,) = examine(path, thorough=True)
    assert finding.code == "damaged" and finding.code in FAULTS and "0:00:02" in finding.message


def test_clock_rate_key_frames_and_sound(folder: Path) -> None:
    info = probe(CASES["start at 5 s"].make(folder))
    assert info.first_pts == pytest.approx(5.0) and info.rate == pytest.approx(25) and info.audio == "aac"
    assert info.keyframe_interval == pytest.approx(1.0) and info.codec == "h264" and info.pixel_format == "yuv420p"
    assert probe(CASES["one frame"].make(folder)).keyframe_interval is None


@pytest.mark.parametrize(
    ("date", "expected"),
    [("2024-05-06T07:08:09Z", "2024-05-06T07:08:09+00:00"), ("1904-01-01T00:00:00Z", None)],
)
def test_recording_date(date: str, expected: str | None, folder: Path) -> None:
    base = CASES["h264"].make(folder)
    info = probe(media.remux(base, folder / f"{date[:4]}.mp4", "-metadata", f"creation_time={date}"))
    assert info.recorded_at == expected


def test_sound_that_outlasts_the_picture_is_no_fault(folder: Path) -> None:
    base = CASES["h264"].make(folder)
    for suffix in ("mp4", "mkv"):
        path = folder / f"longsound.{suffix}"
        media.ffmpeg(
            "-i", base, "-f", "lavfi", "-i", "sine=440:duration=12", "-map", "0:v", "-map", "1:a", "-c:v", "copy", path
        )
        info = probe(path)
        assert info.duration == pytest.approx(6.0, abs=0.01) and info.faults == ()
