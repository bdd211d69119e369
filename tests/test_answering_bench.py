"""`bench answers` on a made case whose right answers are known, and the distractor footage."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, make_stored
from vilco_app.answering import Answerer
from vilco_app.benchmarks import answers as bench
from vilco_app.benchmarks.answers_baselines import FrameSimilarity, QueryBlind, ShotBoundaries
from vilco_app.benchmarks.answers_calibration import Cases, fit, held_out
from vilco_app.benchmarks.answers_distractors import given_files, part, segment_clips, varied
from vilco_app.benchmarks.answers_haystack import (
    HEIGHT,
    RATE,
    WIDTH,
    Made,
    add_given,
    sources,
    stretches,
    write_footage,
)
from vilco_app.benchmarks.answers_hidden import Hay, hidden
from vilco_app.benchmarks.answers_scores import Scores
from vilco_app.values import MomentQuery, TextQuery, VilcoError

SCENES = {0: (0.0, 5.0), 1: (5.0, 10.0), 2: (10.0, 15.0), 3: (15.0, 20.0), 4: (20.0, 25.0)}


class FakeMemory:
    """The parts of EpisodicMemory the bench uses, over made features."""

    def __init__(self, home, profile=None):
        scene = np.repeat(np.eye(8)[list(SCENES)], 10, axis=0)
        self.library = FakeLibrary([make_stored(scene)])
        self.profile = self.library.profile
        self.answerer = Answerer(self.library, self.profile)

    def add(self, path):
        pass

    def resolve(self, path):
        return self.library.videos()[0]

    def ask(self, text, video, top):
        return self.answerer.text(TextQuery(text), self.library.videos(), top)

    def moments(self, category, video, top):
        return self.answerer.moments(MomentQuery((category,)), self.library.videos(), top)


@pytest.fixture
def cases(tmp_path, monkeypatch):
    monkeypatch.setattr("vilco_app.memory.EpisodicMemory", FakeMemory)
    text = [{"text": f"Where is thing {k}?", "windows": [list(w)], "also_plausible": []} for k, w in SCENES.items()]
    data = {
        "text_queries": text, "moments": {"thing_2": [[10.0, 15.0]]}, "visual_queries": [],
        "absent_queries": ["thing 6", "thing 7"],
    }  # fmt: skip
    (tmp_path / "made.json").write_text(json.dumps(data))
    (tmp_path / "made.mp4").write_bytes(b"")
    return tmp_path


def test_every_question_is_scored_beside_the_baselines(cases):
    result = bench.answers(cases)
    rows = {(r["name"], r["family"]): r for r in result["lists"]}
    assert rows["made", "text"]["n"] == 5 and rows["made", "text"]["metrics"]["R@1@0.3"] == 1.0
    assert rows["made", "moment"]["metrics"]["R@1@0.5"] == 1.0
    assert rows["made", "absent"]["metrics"]["AUROC"] == 1.0
    blind = next(r for r in result["baselines"] if r["baseline"] == "query-blind" and r["family"] == "text")
    assert blind["metrics"]["R@1@0.3"] == pytest.approx(0.2)  # one window for five questions
    gain = next(g for g in result["gain"] if g["baseline"] == "query-blind")["metrics"]["R@1@0.3"]
    assert gain[0] == pytest.approx(0.8) and gain[1] <= gain[0] <= gain[2]
    table = bench.format_table(result)
    assert "made" in table and "query-blind" in table and "AUROC" in table
    json.dumps(result)


def test_bad_cases_say_what_is_wrong(tmp_path):
    with pytest.raises(VilcoError, match="no NAME"):
        bench.answers(tmp_path)
    with pytest.raises(VilcoError, match=r"gone\.json"):
        bench.answers(tmp_path, ["gone"])


def test_windows_in_other_recordings_hit_nothing():
    own, other = SimpleNamespace(video="a", start=1.0, end=2.0), SimpleNamespace(video="b", start=1.0, end=2.0)
    answer = SimpleNamespace(moments=(other, own))
    assert bench._windows(answer, "a") == [(-2.0, -1.0), (1.0, 2.0)]


def test_repeated_occurrences_are_scored_without_the_querys_own():
    q = {
        "query": {"time": 2.0, "box": [0, 0, 1, 1]}, "occurrences": [[0, 5], [20, 25]],
        "targets": [{"time": 4.0, "box": [0.1, 0.1, 0.5, 0.5]}],
    }  # fmt: skip
    at_own = [[4.0, 0.1, 0.1, 0.5, 0.5]]
    again = [[22.0, 0.1, 0.1, 0.5, 0.5]]
    elsewhere = [[12.0, 0.1, 0.1, 0.5, 0.5]]
    assert bench._visual([at_own, again], q) == ([True, True, True], [True, True])
    assert bench._visual([elsewhere, at_own, again], q) == ([False, True, False], [False, True])
    assert bench._visual([], q) == ([False, False, False], [False, False])
    once = {**q, "occurrences": [[0, 5]]}
    assert bench._visual([at_own], once) == ([True, True, True], None)


def test_baselines_answer_by_their_own_rule():
    memory = FakeMemory(None)
    video = memory.resolve(None)
    assert FrameSimilarity(memory, video).windows("thing 3")[0] == (15.0, 20.0)
    shots = ShotBoundaries(memory, video)
    assert [(a / 2, b / 2) for a, b in shots.shots()] == list(SCENES.values())
    assert shots.windows("thing 1")[0] == (5.0, 10.0)
    blind = QueryBlind(memory, video)
    assert blind.windows("thing 1") == blind.windows("thing 2") and len(blind.windows("x")) == 5


def test_distractors_are_the_same_film_for_the_same_seed():
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 255, size=(300, 400, 3), dtype=np.uint8) for _ in range(3)]
    film = np.stack(list(stretches(pictures, 8.0, 3)))
    assert film.shape == (8 * RATE, HEIGHT, WIDTH, 3)
    assert (film == np.stack(list(stretches(pictures, 8.0, 3)))).all()
    assert film.std() > 10 and not (film == np.stack(list(stretches(pictures, 8.0, 4)))).all()


@pytest.mark.slow
def test_distractor_footage_comes_from_what_is_installed():
    pictures = sources()
    assert len(pictures) >= 10 and all(p.shape[2] == 3 and min(p.shape[:2]) >= 200 for p in pictures)


def labelled(folder, name, clips):
    (folder / f"{name}.mp4").write_bytes(b"")
    (folder / f"{name}.json").write_text(json.dumps({"segments": [{"clip": c} for c in clips]}))
    return folder / f"{name}.mp4"


def test_given_distractors_share_no_clip_with_what_is_asked(tmp_path):
    asked = labelled(tmp_path, "asked", ["a.mp4", "b.mp4"])
    labelled(tmp_path, "shares", ["c.mp4", "b.mp4"])
    other = labelled(tmp_path, "other", ["c.mp4"])
    (tmp_path / "a.mp4").write_bytes(b"")  # the clip itself
    plain = tmp_path / "holiday.avi"
    plain.write_bytes(b"")
    (tmp_path / "notes.txt").write_text("x")
    assert segment_clips(asked) == {"a.mp4", "b.mp4"} and segment_clips(plain) == set()
    assert given_files(tmp_path, asked, segment_clips(asked)) == [plain, other]
    with pytest.raises(VilcoError, match="free of what asked"):
        given_files(tmp_path, asked, {"a.mp4", "c.mp4", "b.mp4", "holiday.avi"})


def test_a_cut_keeps_our_shape_and_stays_in_the_frame():
    x, y, w, h = part(1000, 400, 0.5, np.array([1.0, 1.0]))
    assert w / h == pytest.approx(WIDTH / HEIGHT) and h == pytest.approx(200)
    assert (x + w, y + h) == (pytest.approx(1000), pytest.approx(400))
    assert part(1000, 400, 0.5, np.array([0.0, 0.0]))[:2] == (0.0, 0.0)


@pytest.fixture
def film(tmp_path):
    rng = np.random.default_rng(1)
    pictures = [rng.integers(0, 255, size=(300, 400, 3), dtype=np.uint8) for _ in range(2)]
    path = tmp_path / "films" / "film.mp4"
    path.parent.mkdir()
    write_footage(path, stretches(pictures, 8.0, 0), 8.0)
    return path


def test_given_footage_is_varied_until_it_is_long_enough(film):
    frames = varied([film], 5)
    passes = np.stack([next(frames) for _ in range(8 * RATE * 3)])
    assert passes.shape[1:] == (HEIGHT, WIDTH, 3) and passes.dtype == np.uint8
    again = varied([film], 5)
    assert (passes[:20] == np.stack([next(again) for _ in range(20)])).all()
    other = varied([film], 6)
    assert not (passes[:20] == np.stack([next(other) for _ in range(20)])).all()


class Shelf:
    """add, videos, resolve, remove, by file name."""

    def __init__(self, *there):
        self.names = list(there)

    def add(self, paths):
        new = [p for p in (paths if isinstance(paths, list) else [paths]) if p.name not in self.names]
        self.names += [p.name for p in new]
        return SimpleNamespace(refused=[])

    def videos(self):
        return [SimpleNamespace(id=n) for n in self.names]

    def resolve(self, path):
        return SimpleNamespace(id=str(path).rsplit("/", 1)[-1])

    def remove(self, video):
        self.names.remove(video)


def test_given_footage_fills_the_hours_and_what_was_there_stays(film, tmp_path):
    shelf = Shelf("film.mp4")
    made = add_given(shelf, tmp_path / "made", [film], 30 / 3600)
    assert made.seconds == pytest.approx(30.0, abs=0.1) and made.videos[0] == "film.mp4"
    assert made.new == made.videos[1:] and len(made.new) == 1  # 22 s in one film
    assert "1 videos given (8 s)" in made.description and "3 times over" in made.description
    enough = add_given(shelf, tmp_path / "none", [film], 5 / 3600)
    assert enough.videos == ["film.mp4"] and not enough.new and "the rest" not in enough.description


def test_every_list_is_hidden_in_its_own_footage_and_the_library_is_left_as_it_was():
    shelf = Shelf("one.mp4", "two.mp4")
    asked = []

    def make(memory, name, progress):
        memory.names.append(f"hay-{name}")
        return Made(
            [f"hay-{name}", "two.mp4" if name == "one" else "one.mp4"], 7200.0, f"hay for {name}", [f"hay-{name}"]
        )

    def ask(memory, video, name, data, scores, whole):
        asked.append(whole)
        scores.text[name], scores.moment[name], scores.visual[name] = [[False, name == "one", False, False]], [], []
        scores.present[name], scores.absent[name] = [(0.4, False)], [(0.6, True)]

    alone = Scores(text={"one": [[True] * 4], "two": [[True] * 4]})
    result = hidden(shelf, Path("/cases"), {"one": {}, "two": {}}, make, alone, ask, None)
    assert asked == [["hay-one", "two.mp4", "one.mp4"], ["hay-two", "one.mp4", "two.mp4"]]
    assert result["lost"]["text"][0] == pytest.approx(0.5) and result["hours"] == 2.0
    assert result["footage"] == "hay for one; hay for two" and shelf.names == ["one.mp4", "two.mp4"]
    assert {(r["name"], r["family"]) for r in result["lists"]} >= {("one", "text"), ("all", "text")}


def test_the_bench_prints_the_hidden_lists_beside_the_open_ones(cases, monkeypatch):
    made = Made(["a" * 12], 3600.0, "footage of the day")
    monkeypatch.setattr(Hay, "_given", lambda self, memory, name, progress: made)
    result = bench.answers(cases, distractors=cases)
    assert "haystack" not in result and result["haystack_given"]["lost"]["text"][0] == 0.0
    assert not [r for r in result["haystack_given"]["lists"] if r["family"] == "absent"]  # it may well be in there
    table = bench.format_table(result)
    assert "hidden (given)" in table and "1 h of footage of the day" in table


def test_the_calibration_is_a_logistic_regression_with_both_labels_alike():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2)) * [1.0, 10.0]
    odds = 1.5 * x[:, 0] - 0.1 * x[:, 1]
    labels = (rng.random(4000) < 1 / (1 + np.exp(-odds))).astype(int)
    assert fit(x, labels) == pytest.approx([1.5, -0.1, 0.0], abs=0.12)
    rare = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:400]])
    assert fit(x[rare], labels[rare]) == pytest.approx(
        [1.5, -0.1, 0.0], abs=0.25
    )  # a fifth of the ones: no other offset


def test_a_clip_is_scored_by_the_others_alone():
    x = np.array([[1.0], [0.9], [-1.0], [-0.9], [5.0], [5.1]])
    labels = np.array([1, 1, 0, 0, 0, 0])  # clip c says the opposite of a and b
    odds = held_out(Cases(x, labels, np.array(["a", "b", "a", "b", "c", "c"])), (0,))
    assert (odds[4:] > 0).all()  # it had no say in its own score
