"""Every odd file through both backends: the samples the file's own frame times demand, or the refusal the table names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import media
from tests.video_cases import CASES, Case, Truth
from vilco_app.values import VideoRefused
from vilco_app.video import ReadSettings, Recording, frames_at, open_recording, samples
from vilco_app.video.decord_reader import DecordReader
from vilco_app.video.pyav_reader import PyavReader
from vilco_app.video.types import Reader, SampleBatch

RATE, SIDE = 2.0, 96


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def made(folder: Path) -> Callable[[Case], Path]:
    """Makes a case's file, once."""
    known: dict[int, Path] = {}

    def make(case: Case) -> Path:
        if id(case) not in known:
            known[id(case)] = case.make(folder)
        return known[id(case)]

    return make


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def demanded(truth: Truth, rate: float, start: float = 0.0) -> Truth:
    """The rule in its plainest form: for each tick the first frame at or after it, each frame once."""
    chosen = []
    for tick in np.arange(0, truth[-1][0] + 1 / rate, 1 / rate):
        behind = [pair for pair in truth if pair[0] >= tick - 1e-3]
        if behind and behind[0] not in chosen:
            chosen.append(behind[0])
    return [pair for pair in chosen if pair[0] >= start]


def read(batches: Iterator[SampleBatch], case: Case) -> tuple[list[float], list[int], list[np.ndarray]]:
    times, numbers, frames = [], [], []
    for batch in batches:
        times += batch.times.tolist()
        frames += list(batch.frames)
        numbers += [0 if frame.max() < 30 else media.number_in(case.upright(frame)) for frame in batch.frames]
    return times, numbers, frames


def agree(times: list[float], numbers: list[int], truth: Truth) -> None:
    assert numbers == [number for _, number in truth]
    assert times == pytest.approx([time for time, _ in truth], abs=1.1e-3)  # Matroska and FLV clocks tick in ms


def test_pyav_gives_what_the_file_shows(case: Case, made: Callable[[Case], Path]) -> None:
    path = made(case)
    if case.truth is None:
        with pytest.raises(VideoRefused) as refusal:
            list(PyavReader().samples(path, RATE, SIDE))
        assert path.name in refusal.value.message and case.refused in refusal.value.message and refusal.value.remedy
        return
    times, numbers, frames = read(PyavReader().samples(path, RATE, SIDE), case)
    agree(times, numbers, demanded(case.truth, RATE))
    assert min(frames[0].shape[:2]) == SIDE
    width, height = case.size
    assert frames[0].shape[1] / frames[0].shape[0] == pytest.approx(width / height, rel=0.02)
    # leaving packets out changes nothing, not one pixel
    plain = read(PyavReader(ReadSettings(skip=False)).samples(path, RATE, SIDE), case)
    assert times == plain[0]
    assert all(np.array_equal(a, b) for a, b in zip(frames, plain[2], strict=True))


def test_decord_gives_the_same_or_refuses(case: Case, made: Callable[[Case], Path]) -> None:
    path = made(case)
    reader: Reader = DecordReader()
    if case.truth is None or case.decord != "same":
        with pytest.raises(VideoRefused) as refusal:
            list(reader.samples(path, RATE, SIDE))
        assert (case.refused or case.decord) in refusal.value.message
        return
    times, numbers, frames = read(reader.samples(path, RATE, SIDE), case)
    agree(times, numbers, demanded(case.truth, RATE))
    expected = read(PyavReader().samples(path, RATE, SIDE), case)[2]
    for ours, theirs in zip(expected, frames, strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours.astype(float) - theirs).mean() < 4  # two scalers, one picture


def test_reading_on_gives_the_rest_of_the_whole(case: Case, made: Callable[[Case], Path]) -> None:
    if case.truth is None:
        return
    path = made(case)
    last = case.truth[-1][0]
    for start in (0.3, 0.5 * last, 0.5 * last + 0.011, last):
        times, numbers, _ = read(PyavReader().samples(path, RATE, SIDE, start=start), case)
        agree(times, numbers, demanded(case.truth, RATE, start - 1e-3))


def test_frames_at_any_time(case: Case, made: Callable[[Case], Path]) -> None:
    """Both backends, far and near times in any order: the last frame whose time is not behind the wanted one."""
    if case.truth is None:
        return
    path = made(case)
    known = np.array([time for time, _ in case.truth])
    wanted = np.random.default_rng(3).uniform(-0.2, known[-1] + 0.3, 12)
    wanted = np.append(wanted, [*known[len(known) // 2 :][:1], wanted[0]])
    expected = [case.truth[max(0, int(np.searchsorted(known, t + 1e-3, side="right")) - 1)] for t in wanted]
    readers: list[Reader] = [PyavReader(), *([DecordReader()] if case.decord == "same" else [])]
    for reader in readers:
        batch = reader.at(path, wanted.tolist(), SIDE)
        numbers = [0 if frame.max() < 30 else media.number_in(case.upright(frame)) for frame in batch.frames]
        assert numbers == [number for _, number in expected], reader.name
        assert batch.times.tolist() == pytest.approx([time for time, _ in expected], abs=1.1e-3)


def test_the_product_falls_back_on_pyav(made: Callable[[Case], Path]) -> None:
    """Through the public door many times at once work for a file decord refuses, and for one it takes."""
    settings = ReadSettings(decord_from=1)
    for name in ("edit list", "open gop", "h264"):
        case = CASES[name]
        assert case.truth is not None
        recording = open_recording(made(case))
        batch = frames_at(recording, [2.0, 0.5], SIDE, settings)
        assert [media.number_in(frame) for frame in batch.frames] == [case.truth[50][1], case.truth[12][1]]


def test_damage_in_the_middle_costs_only_what_it_hit(folder: Path, made: Callable[[Case], Path]) -> None:
    path = media.damage(made(CASES["h264"]), folder / "damaged.mp4", 0.4, 3000)
    recording: Recording = open_recording(path)
    stream = samples(recording, RATE, SIDE)
    times, numbers, _ = read(stream, CASES["h264"])
    assert numbers == [round(time * 25) for time in times]  # whatever is shown is shown at its true time
    assert len(times) >= 10 and times[0] == 0 and times[-1] > 5
    assert not stream.report.complete and stream.report.errors
    assert stream.report.first_error is not None and 1.5 < stream.report.first_error < 4
    assert "damaged" in stream.report.status and "6.0 s" in stream.report.status
