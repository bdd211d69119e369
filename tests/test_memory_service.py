"""EpisodicMemory, as a Python caller uses it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.media import make
from vilco_app import EpisodicMemory
from vilco_app.reading import read_answer
from vilco_app.ui.demo import demo_paths
from vilco_app.values import VilcoError


@pytest.fixture(scope="module")
def memory(make_home: Callable[[], Path]) -> EpisodicMemory:
    memory = EpisodicMemory(make_home())
    steps: list[tuple[float, float, str]] = []
    report = memory.add(demo_paths(), progress=lambda done, total, text: steps.append((done, total, text)))
    assert len(report.added) == 3 and not report.refused
    assert steps and steps[-1][0] == pytest.approx(steps[-1][1], abs=1.0)
    return memory


def test_every_answer_is_its_json(memory: EpisodicMemory) -> None:
    for answer in (memory.ask("a taxi", curve=True), memory.moments(["driving", "cycling"])):
        assert read_answer(answer.to_json()).to_json() == answer.to_json()
        assert answer.searched.videos == 3 and answer.searched.seconds == pytest.approx(44.0, abs=0.5)


@pytest.mark.parametrize(
    ("question", "name"),
    [("a parked bicycle", "bikes"), ("a man wearing a bow tie", "carphone"), ("the earth seen from space", "world")],
)
def test_a_question_finds_its_recording(question: str, name: str, memory: EpisodicMemory) -> None:
    assert name in memory.ask(question).moments[0].path


def test_a_video_is_named_by_path_id_prefix_or_list(memory: EpisodicMemory, street: Path) -> None:
    video = memory.resolve(street)
    for ref in (street, str(street), video.id, video.id[:5], [video.id, street]):
        answer = memory.ask("a car", video=ref)
        assert answer.searched.videos == 1 and {m.video for m in answer.moments} == {video.id}


def test_before_is_seconds_or_a_clock_in_one_video(memory: EpisodicMemory, street: Path) -> None:
    for before in (4.0, "0:00:04", "4"):
        answer = memory.ask("a car", video=street, before=before)
        assert answer.moments and max(m.end for m in answer.moments) <= 4.0
    for video in (None, demo_paths()[:2]):
        with pytest.raises(VilcoError, match="before"):
            memory.ask("a car", video=video, before=4.0)


def test_a_picture_is_found_in_the_recording_it_is_from(memory: EpisodicMemory, street: Path, tmp_path: Path) -> None:
    from PIL import Image

    frame = memory.frame(street, 8.5)
    box = (0.2, 0.1, 0.75, 0.85)
    height, width = frame.shape[:2]
    crop = frame[int(0.1 * height) : round(0.85 * height), int(0.2 * width) : round(0.75 * width)]
    Image.fromarray(crop).save(tmp_path / "bicycle.png")
    for image, corners in ((crop, None), (str(tmp_path / "bicycle.png"), None), (frame, box), (f"{street}@8.5", box)):
        answer = memory.find(image, box=corners)
        assert answer.kind == "visual" and len(answer.tracks) == len(answer.moments)
        assert Path(answer.tracks[0].moment.path).name == "bikes.mp4"
        assert answer.tracks[0].moment.end > 7.0


def test_corrections_answer_first_and_forgetting_takes_them_away(make_home: Callable[[], Path], street: Path) -> None:
    memory = EpisodicMemory(make_home())
    memory.add(street)
    answer = memory.ask("where is my bicycle?")
    memory.correct(answer, rank=1, start="0:00:07", end=9)
    again = memory.ask("Where is my bicycle")
    assert (again.moments[0].start, again.moments[0].end, again.moments[0].source) == (7.0, 9.0, "correction")
    assert again.found
    assert memory.forget(street, 6.5, "0:01:00") == (6.5, 10.0)
    after = memory.ask("where is my bicycle?")
    assert all(m.end <= 6.5 and m.source != "correction" for m in after.moments)
    with pytest.raises(VilcoError, match="span"):
        memory.forget(street, 5, 4)


def test_a_question_without_a_known_word_is_not_found(memory: EpisodicMemory) -> None:
    answer = memory.ask("where is my \N{CAT}?")
    assert answer.confidence == 0 and not answer.found and answer.concepts == ()
    assert memory.ask("where is my cat?").concepts


def test_a_corrected_picture_answer_keeps_a_box(make_home: Callable[[], Path], street: Path) -> None:
    """The person said when, not where: the whole frame, unless boxes were found there."""
    memory = EpisodicMemory(make_home())
    memory.add(street)
    picture = memory.frame(street, 8.5)
    memory.correct(memory.find(picture), rank=1, start=0.1, end=0.4)
    first = memory.find(picture).tracks[0]
    assert first.moment.source == "correction" and first.boxes
    assert all(0.1 <= b.time <= 0.4 for b in first.boxes)


def test_what_is_said_of_categories_is_kept_for_each(make_home: Callable[[], Path], street: Path) -> None:
    """Ego4D's categories carry commas; a correction of one is not one of the others."""
    memory = EpisodicMemory(make_home())
    memory.add(street)
    asked = ["cut, chop or slice a vegetable", "ride_a_bicycle"]
    saved = read_answer(memory.moments(asked, top=2).to_json())
    assert saved.categories == tuple(asked)
    memory.correct(saved, absent=True)
    assert memory.moments(asked[0]).confidence == 0 and not memory.moments(asked[0]).moments
    rank = next(i for i, m in enumerate(saved.moments, 1) if m.category == asked[1])
    memory.correct(saved, rank=rank, start=2, end=4)
    best = memory.moments("ride a bicycle").moments[0]
    assert (best.start, best.end, best.source) == (2.0, 4.0, "correction")
    assert not memory.moments(asked[0]).moments


def test_not_in_here_holds_for_all_that_was_searched(
    make_home: Callable[[], Path], street: Path, tmp_path: Path
) -> None:
    memory = EpisodicMemory(make_home())
    memory.add([street, make(tmp_path / "other.mp4", 100)])
    answer = memory.ask("a parked bicycle", top=1)
    assert len(answer.searched.ids) == 2
    memory.correct(answer, absent=True)
    again = memory.ask("a parked bicycle")
    assert not again.found and not again.moments
    alone = memory.ask("a parked bicycle", video=street)
    memory.correct(alone, start=5, end=6)  # there after all, and no moment to point at
    assert memory.ask("a parked bicycle").moments[0].start == 5.0


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank": 99},
        {"rank": 1, "start": 3, "end": 2},
        {"rank": 1, "end": 1e6},
        {},
        {"absent": True, "rank": 1},
        {"start": 1},
    ],
)
def test_a_correction_that_fits_nothing_is_refused(arguments: dict[str, Any], memory: EpisodicMemory) -> None:
    answer = memory.ask("a car")
    with pytest.raises(VilcoError) as error:
        memory.correct(answer, **arguments)
    assert error.value.remedy


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_question_is_refused(text: str, memory: EpisodicMemory) -> None:
    for ask in (memory.ask, memory.moments):
        with pytest.raises(VilcoError, match="empty"):
            ask(text)
    with pytest.raises(VilcoError):
        memory.moments([])
    with pytest.raises(VilcoError, match="top"):
        memory.ask("x", top=0)


def test_odd_questions_are_answered(memory: EpisodicMemory) -> None:
    for text in ("?", "🚲", "自転車はどこ?", "a " * 2000, "'; DROP TABLE videos; --", "<b>x</b>"):
        assert memory.ask(text).moments


def test_many_threads_ask_one_memory_at_once(make_home: Callable[[], Path], street: Path) -> None:
    memory = EpisodicMemory(make_home())
    memory.add(street)
    fresh = EpisodicMemory(memory.home)  # nothing loaded yet: the threads race for the first load
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        try:
            answers[number] = [(m.start, m.end) for m in fresh.ask("a taxi").moments]
        except Exception as error:
            answers[number] = error

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and all(a == answers[0] and isinstance(a, list) for a in answers.values()), answers


def test_base_snapshot_is_there_and_active(memory: EpisodicMemory) -> None:
    models = memory.models().to_json()
    assert models["active"] == "base" and models["snapshots"][0]["id"] == "base"
    assert memory.use("base") == "base"


def test_a_frame_outside_the_recording_is_refused(memory: EpisodicMemory, street: Path) -> None:
    assert isinstance(memory.frame(street, 0.0), np.ndarray)
    for time in (-1.0, 11.0):
        with pytest.raises(VilcoError, match="outside"):
            memory.frame(street, time)


@pytest.mark.parametrize("name", ["", ".", "folder"])
def test_a_folder_is_not_indexed_by_asking(
    name: str, memory: EpisodicMemory, street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    shutil.copy(street, tmp_path / "folder" / "film.mp4")
    with open(tmp_path / "folder" / "film.mp4", "ab") as film:
        film.write(b"other content")
    monkeypatch.chdir(tmp_path)
    before = [v.id for v in memory.videos()]
    with pytest.raises(VilcoError) as caught:
        memory.ask("a car", video=name)
    assert caught.value.code in ("no-such-video", "not-a-video") and [v.id for v in memory.videos()] == before


def test_a_recording_removed_while_the_library_is_asked_costs_only_itself(
    make_home: Callable[[], Path], street: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = EpisodicMemory(make_home())
    ids = memory.add(demo_paths()).added
    listed = memory.library.videos
    removed: list[str] = []

    def meddle() -> list[Any]:
        found = listed()
        if not removed:
            removed.append(ids[0])
            EpisodicMemory(memory.home).remove(ids[0])
        return found

    monkeypatch.setattr(memory.library, "videos", meddle)
    answer = memory.ask("a car")
    assert removed and answer.searched.videos == 2 and ids[0] not in {m.video for m in answer.moments}


@pytest.mark.parametrize("text", ["a t\udcc3\udca9l\udcc3\udca9phone", "a \ud800 phone", "a \udcff phone"])
def test_words_a_locale_could_not_decode_are_read_all_the_same(text: str, memory: EpisodicMemory) -> None:
    answer = memory.ask(text)
    assert answer.query.encode() and answer.moments
    assert "téléphone" in answer.query or "udcc3" not in ascii(text)
