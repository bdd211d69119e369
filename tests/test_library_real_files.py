"""The library on files made by ffmpeg and read by the real video floor."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.library_stand_ins import DIM, REGION_DIM, TinyProfile
from tests.media import ffmpeg as run_ffmpeg
from vilco_app.encoders.base import Features
from vilco_app.library import Library


class BrightnessProfile(TinyProfile):
    """Whole-frame vector = mean colour of the frame, so that a made-up film says what time it is."""

    short_side = 32

    def encode(self, frames: np.ndarray) -> Features:
        self.encoded += len(frames)
        table = np.zeros((len(frames), DIM), np.float32)
        table[:, :3] = frames.mean(axis=(1, 2)) / 255
        regions = np.tile(np.eye(REGION_DIM, dtype=np.float32)[:1], (len(frames), 1))
        boxes = np.tile(np.array([[0, 0, 1, 1]], np.float32), (len(frames), 1))
        return Features(table, regions, boxes, np.ones(len(frames), int))


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 s at 25 fps, 160x96, a key frame every 2 s; luma rises by 2 every second."""
    path = tmp_path_factory.mktemp("films") / "ramp.mp4"
    source = "color=c=black:s=160x96:r=25:d=90,format=gray,geq=lum='16+2*floor(T)'"
    run_ffmpeg("-f", "lavfi", "-i", source, "-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "ultrafast", "-crf", "4",
               "-g", "50", "-bf", "2", str(path))  # fmt: skip
    return path


def test_samples_are_what_the_film_shows_at_their_time(film: Path, tmp_path: Path) -> None:
    library, profile = Library(tmp_path / "home"), BrightnessProfile()
    states: list[str] = []
    report = library.add(film, profile, progress=lambda *_: states.append(library.videos()[0].state))
    (video,) = library.videos()
    assert report.added == (video.id,) and video.state == "ready" and {"preview", "indexing"} <= set(states)
    assert (video.width, video.height) == (160, 96) and video.duration == pytest.approx(90, abs=0.05)
    stored = library.stored(video.id)
    assert np.allclose(stored.times, np.arange(180) / 2, atol=1 / 25)
    assert stored.durations.sum() == pytest.approx(90, abs=0.05)
    shown = (16 + 2 * np.floor(stored.times + 1e-6)) / 255
    assert np.abs(stored.globals[:, 0].astype(np.float64) - shown).max() < 1.5 / 255
    assert library.recording(video.id).duration == pytest.approx(90, abs=0.05)


def test_a_truncated_file_says_how_far_it_is_readable(film: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.mkv"
    run_ffmpeg("-i", str(film), "-c", "copy", str(cut))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size * 6 // 10])
    library = Library(tmp_path / "home")
    (video_id,) = library.add(cut, BrightnessProfile()).added
    video = library.resolve(video_id)
    assert video.state == "gaps" and video.note
    assert 30 < video.indexed_seconds < 75
    said = re.search(r"up to (\d+\.\d) s", video.note)
    assert said is not None and float(said[1]) == pytest.approx(video.indexed_seconds, abs=1.0)


def test_what_ffmpeg_cannot_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "zero.mp4").write_bytes(b"")
    (tmp_path / "text.mp4").write_text("hello " * 1000)
    sound = tmp_path / "sound.mp4"
    run_ffmpeg("-f", "lavfi", "-i", "sine=d=2", "-c:a", "aac", str(sound))
    library = Library(tmp_path / "home")
    report = library.add(tmp_path, BrightnessProfile())
    assert len(report.refused) == 3 and not report.added and not library.videos()
    assert all(r.reason and r.remedy for r in report.refused)
