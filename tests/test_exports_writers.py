"""Exports, read back by other readers than ours where there is one (csv, opentimelineio, ffmpeg)."""

from __future__ import annotations

import csv
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from vilco_app.exports import FORMATS, export, exported_paths
from vilco_app.values import Answer, Moment, Searched, VilcoError
from vilco_app.video import probe


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two short films: 25 and 30 frames per second, 6 s."""
    folder = tmp_path_factory.mktemp("films")
    paths = []
    for rate in (25, 30):
        path = folder / f"film, {rate}.mp4"
        source = f"testsrc2=size=160x120:rate={rate}:duration=6"
        command = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-pix_fmt", "yuv420p", str(path)]
        subprocess.run(command, check=True)
        paths.append(path)
    return paths


def answer_of(films: list[Path], query: str = 'where is "the" cup, <mine>?', found: bool = True) -> Answer:
    moments = (
        Moment("aaaaaaaaaaaa", str(films[0]), 2.0, 3.5, 0.9),
        Moment("bbbbbbbbbbbb", str(films[1]), 1.0, 1.5, 0.8, "correction"),
        Moment("aaaaaaaaaaaa", str(films[0]), 0.5, 1.0, 0.7),
    )
    return Answer(query, "text", 0.8 if found else 0.2, 0.5, Searched(2, 12.0, 12.0), moments)


def test_csv_rows_come_back_whole(films: list[Path], tmp_path: Path) -> None:
    answer = answer_of(films)
    out = export(answer, "csv", tmp_path / "a.csv")
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [r["rank"] for r in rows] == ["1", "2", "3"]
    assert rows[0]["query"] == answer.query
    assert rows[0]["path"] == str(films[0])
    assert (rows[0]["start"], rows[0]["end_time"]) == ("2.000", "0:00:03.500")
    assert rows[1]["source"] == "correction"


def test_csv_of_no_moments_is_the_heading(films: list[Path], tmp_path: Path) -> None:
    out = export(replace(answer_of(films), moments=()), "csv", tmp_path / "a.csv")
    assert out.read_text().count("\n") == 1
    with pytest.raises(VilcoError, match="no moments"):
        export(replace(answer_of(films), moments=()), "srt", tmp_path / "a.srt")


def test_srt_cues_in_time_order_one_file_per_recording(films: list[Path], tmp_path: Path) -> None:
    paths = exported_paths(answer_of(films, "a --> b\nc", found=False), "srt", tmp_path / "a.srt")
    assert [p.name for p in paths] == ["a.srt", "a.bbbbbbbbbbbb.srt"]
    first, second = paths[0].read_text().strip().split("\n\n")
    assert first.splitlines() == ["1", "00:00:00,500 --> 00:00:01,000", "#3 a -> b c (guess)"]
    assert second.splitlines()[1] == "00:00:02,000 --> 00:00:03,500"


def test_vtt_escapes_and_parses(films: list[Path], tmp_path: Path) -> None:
    out = export(answer_of(films), "vtt", tmp_path / "a.vtt")
    text = out.read_text()
    assert text.startswith("WEBVTT\n\n")
    assert "&lt;mine&gt;" in text and "<mine>" not in text
    assert "00:00:02.000 --> 00:00:03.500" in text


def test_edl_frames_of_its_stated_timebase(films: list[Path], tmp_path: Path) -> None:
    lines = export(answer_of(films), "edl", tmp_path / "a.edl").read_text().splitlines()
    assert lines[1] == "FCM: NON-DROP FRAME"
    assert lines[2].startswith("* TIMEBASE: 25 FRAMES")
    events = [line for line in lines if line[:3].isdigit()]
    # 2.0 to 3.5 s at 25 per second: frames 50 to 88 (87.5 rounds to even), placed at the head of the record side
    assert events[0].split() == [
        "001",
        "FILM2001",
        "V",
        "C",
        "00:00:02:00",
        "00:00:03:13",
        "00:00:00:00",
        "00:00:01:13",
    ]
    assert events[1].split()[-2] == "00:00:01:13"  # the next event starts where the first ended
    assert "* SOURCE RATE: 30.000 FRAMES PER SECOND" in lines
    assert "* FROM CLIP NAME: film, 25.mp4" in lines


def test_otio_is_read_by_opentimelineio(films: list[Path], tmp_path: Path) -> None:
    import opentimelineio as otio

    timeline = otio.adapters.read_from_file(str(export(answer_of(films), "otio", tmp_path / "a.otio")))
    clips = list(timeline.find_clips())
    assert len(clips) == 3
    span = clips[0].source_range
    assert span.start_time.to_seconds() == pytest.approx(2.0)
    assert span.duration.to_seconds() == pytest.approx(1.5, abs=0.03)
    assert clips[0].media_reference.target_url == films[0].resolve().as_uri()
    assert clips[1].media_reference.available_range.duration.to_seconds() == pytest.approx(6.0, abs=0.1)
    assert clips[1].metadata["vilco"]["source"] == "correction"


def test_clips_have_the_length_of_the_moments_and_replace_nothing(films: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    written = exported_paths(answer_of(films), "clips", folder)
    assert written[0] == folder and len(written) == 4
    assert probe(written[1]).duration == pytest.approx(1.5, abs=0.1)
    before = {p: p.read_bytes() for p in written[1:]}
    with pytest.raises(VilcoError, match="there already"):
        export(answer_of(films), "clips", folder)
    assert {p: p.read_bytes() for p in written[1:]} == before


@pytest.mark.parametrize("to", FORMATS)
def test_an_output_that_cannot_be_written_is_named(to: str, films: list[Path], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(VilcoError) as error:
        export(answer_of(films), to, blocked / f"out.{to}")
    assert error.value.code == "cannot-write"
    assert str(blocked) in error.value.message


@pytest.mark.parametrize("to", ["csv", "srt", "vtt", "edl", "otio"])
def test_a_failed_write_leaves_the_old_file_and_no_litter(
    to: str, films: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / f"out.{to}"
    out.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(VilcoError, match="No space left"):
        export(answer_of(films), to, out)
    assert out.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


def test_unknown_format_and_missing_recording(films: list[Path], tmp_path: Path) -> None:
    with pytest.raises(VilcoError, match="csv, srt, vtt, edl, otio, clips"):
        export(answer_of(films), "avi", tmp_path / "x")
    gone = replace(answer_of(films), moments=(Moment("c" * 12, str(tmp_path / "gone.mp4"), 0.0, 1.0, 0.5),))
    with pytest.raises(VilcoError) as error:
        export(gone, "edl", tmp_path / "x.edl")
    assert error.value.code == "file-missing"


@pytest.mark.parametrize("to", ["csv", "srt"])
def test_a_recording_named_as_the_output_by_mistake_is_not_written_over(
    to: str, films: list[Path], tmp_path: Path
) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(films[0].read_bytes())
    with pytest.raises(VilcoError) as caught:
        export(answer_of(films), to, film)
    assert caught.value.code == "exists" and film.read_bytes() == films[0].read_bytes()
    earlier = export(answer_of(films), to, tmp_path / f"a.{to}")
    assert export(answer_of(films, "cup?"), to, earlier) == earlier and "cup?" in earlier.read_text()


def test_a_clip_that_cannot_be_cut_leaves_no_half_folder(films: list[Path], tmp_path: Path) -> None:
    beyond = Moment("aaaaaaaaaaaa", str(films[0]), 900.0, 901.0, 0.1)
    answer = answer_of(films)
    with pytest.raises(VilcoError, match="900"):
        export(replace(answer, moments=(*answer.moments, beyond)), "clips", tmp_path / "clips")
    assert not (tmp_path / "clips").exists()
