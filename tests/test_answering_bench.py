"""`bench answers` on a made case whose right answers are known, and the distractor footage."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, make_stored
from vilco_app.answering import Answerer
from vilco_app.benchmarks import answers as bench
from vilco_app.benchmarks.answers_baselines import FrameSimilarity, QueryBlind, ShotBoundaries
from vilco_app.benchmarks.answers_haystack import HEIGHT, RATE, WIDTH, sources, stretches
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
