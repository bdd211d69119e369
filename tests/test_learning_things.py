"""The footage in which things recur, what is taught and asked of it, and what teaching brings there."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from vilco_app.benchmarks.things import ASKED, KINDS, PHOTOS, Settings, films, names, write_film
from vilco_app.benchmarks.transfer import OWN, TAUGHT, Asked, Question, lesson, made
from vilco_app.home import resolve_home
from vilco_app.learning import presets
from vilco_app.values import VilcoError
from vilco_app.video import frames_at, open_recording, probe


def test_every_recording_shows_its_things_once_and_the_same_seed_gives_the_same_films() -> None:
    settings = Settings()
    shown = films(settings)
    assert shown == films(settings) and shown != films(Settings(seed=settings.seed + 1)) and len(shown) == 8
    for film in shown:
        things = [t for t, _, _ in film.showings if t]
        assert len(things) == len(set(things)) == settings.shown and set(things) <= set(PHOTOS)
        ends = [e for _, _, e in film.showings]
        assert [s for _, s, _ in film.showings] == [0.0, *ends[:-1]]
        assert all(settings.showing[0] <= e - s <= settings.showing[1] for t, s, e in film.showings if t)


def test_three_trainings_name_each_thing_in_each_way() -> None:
    for thing in PHOTOS:
        called = [names(k)[thing] for k in range(3)]
        assert {kind for kind, _, _ in called} == set(KINDS)
        assert all(taught != asked for _, taught, asked in called)
    assert len({taught for _, taught, _ in names(0).values()}) == len(PHOTOS)


def test_a_film_is_as_long_as_planned_and_changes_with_what_is_shown(tmp_path: Path) -> None:
    settings = Settings(recordings=1, shown=2, width=96, height=64)
    film = films(settings)[0]
    for name in ("a.mp4", "b.mp4"):
        write_film(film, settings, tmp_path / name)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    assert probe(tmp_path / "a.mp4").duration == pytest.approx(film.showings[-1][2], abs=0.3)
    middles = [(s + e) / 2 for _, s, e in film.showings]
    frames = frames_at(open_recording([tmp_path / "a.mp4"]), middles).frames.astype(float)
    assert all(abs(a - b).mean() > 5 for a, b in itertools.pairwise(frames))


def test_what_is_asked_lies_in_other_recordings_and_in_other_words() -> None:
    settings = Settings()
    shown = films(settings)
    ids = [f"v{f.number}" for f in shown]
    taught, questions = lesson(shown, ids, settings, 0, "nlq")
    assert len(taught) == TAUGHT and {t["video"] for t in taught} <= set(ids[:3])
    elsewhere = [q for q in questions if q.group != OWN]
    assert {q.video for q in elsewhere} == set(ids[3:]) and not {q.text for q in questions} & {
        t["query"] for t in taught
    }
    assert sum(bool(q.windows) for q in elsewhere) == 50 and sum(not q.windows for q in elsewhere) == 10
    named = {names(0)[thing][2] for thing in PHOTOS}
    assert {q.text for q in elsewhere} <= {wording.format(name) for wording in ASKED for name in named}
    categories, _ = lesson(shown, ids, settings, 0, "mq")
    assert all("query" not in t and t["category"] for t in categories)


def test_questions_asked_after_several_trainings_count_once() -> None:
    def asked(unit: str, group: str, there: bool = True) -> Question:
        return Question("q", "v", ((0.0, 1.0),) if there else (), unit, group, unit[0])

    questions = [asked("a1", "x"), asked("a1", "x"), asked("b1", "y"), asked("c1", "x", False), asked("d1", OWN)]
    found = Asked(questions, {"before": [0.0] * 5, "after": [1.0, 0.0, 1.0, 1.0, 1.0]})
    assert found.paired("after") == ([0.5, 1.0], [0.0, 0.0]) and found.paired("after", "x") == ([0.5], [0.0])
    assert found.paired("after", OWN) == ([1.0], [0.0])


def test_a_missing_photo_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PHOTOS, "cat", ("skimage", "data/none.png"))
    with pytest.raises(VilcoError, match=r"none\.png"):
        write_film(films(Settings(recordings=1))[0], Settings(), tmp_path / "film.mp4")


@pytest.mark.slow
def test_teaching_helps_where_things_recur(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured on eight recordings: 19 to 65 (docs/learning.md); here on five, with a network that is hardly trained."""
    monkeypatch.setattr(presets, "QUICK", presets.Preset("quick", 1e-3, 1, 8, 2, 2))
    (tmp_path / "models").mkdir()
    encoders = resolve_home() / "models" / "encoders"
    if encoders.is_dir():  # converted once for all tests
        (tmp_path / "models" / "encoders").symlink_to(encoders)
    rows = {r["name"]: r["value"] for r in made(None, tmp_path, Settings(recordings=5), trainings=1)}
    for family in ("nlq", "mq"):
        assert rows[f"{family}: after - before: 95 % interval, low"] > 0
    assert rows["nlq: ordinary: after - before: 95 % interval, high"] >= 0
