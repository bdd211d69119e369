"""Taught directions: what was taught helps on other footage and in other words, and nothing else is touched."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning_fakes import DIM, TEXT, TinyLibrary, TinyProfile, direction
from vilco_app import learning
from vilco_app.answering.answerer import Answerer
from vilco_app.cli_print import learnt_text
from vilco_app.encoders.base import Blocks, TextVectors
from vilco_app.learning import presets, restoring
from vilco_app.learning.active import serving
from vilco_app.learning.directions import SHRINKAGE, Directions, Footing, Taught, discriminant, look, spread_of
from vilco_app.learning.resolving import resolve_stage
from vilco_app.learning.snapshots import DIRECTIONS, Snapshots
from vilco_app.learning.teaching import (
    CAREFUL,
    bounded,
    choose_strength,
    decide,
    load_directions,
    save_directions,
    teach,
)
from vilco_app.learning.types import Fusion
from vilco_app.network.config import NetworkConfig
from vilco_app.values import Answer, MomentQuery, TextQuery, VilcoError

WORDS = ("kettle", "phone", "book", "cat", "ball", "lamp")
OTHER = ("spoon", "chair", "plant", "shoe", "clock", "towel")


class Speechless(TinyProfile):
    """Not aligned: words have no look of their own."""

    aligned = False

    def text(self, text: str) -> TextVectors:
        return replace(super().text(text), scene=None)


def footage(words: Any = (WORDS, WORDS, WORDS, WORDS)) -> TinyLibrary:
    """Recordings v0, v1, ...: each thing once, in an order of its own, among two things nobody is taught."""
    videos = {}
    for v, shown in enumerate(words):
        order = [*np.random.default_rng(v).permutation([*shown, "noise", f"decoy{v}"])]
        videos[f"v{v}.mp4"] = (128.0, [(str(w), 5.0 + 15 * k + v, 11.0 + 15 * k + v) for k, w in enumerate(order)])
    return TinyLibrary(videos)


def lesson(library: TinyLibrary, videos: tuple[str, ...], asked: str = "query", name: str = "one") -> dict[str, Any]:
    examples = [
        {"video": v, asked: f"where is the {w}" if asked == "query" else w, "windows": [[s, e]], "split": "train"}
        for v in videos for w, s, e in library.contents[v][1] if w in (*WORDS, *OTHER)
    ]  # fmt: skip
    numbered = [{"id": f"{name}{k}", **e} for k, e in enumerate(examples)]
    return {"schema": 1, "name": name, "family": "nlq" if asked == "query" else "mq", "examples": numbered}


def memory(library: TinyLibrary, stage: dict[str, Any], known: Directions | None = None) -> Directions:
    profile = TinyProfile(blind=True)
    made = teach(known, resolve_stage(stage, library, profile), library, profile)
    assert made is not None
    return made


def when(library: TinyLibrary, video: str, word: str) -> tuple[float, float]:
    return next((s, e) for w, s, e in library.contents[video][1] if w == word)


def right(answer: Answer, window: tuple[float, float]) -> bool:
    found = answer.moments[0]
    inter = min(found.end, window[1]) - max(found.start, window[0])
    return inter / (max(found.end, window[1]) - min(found.start, window[0])) >= 0.3


def farthest(count: int) -> list[str]:
    """Words unlike the taught ones: in 16 dimensions words drawn at random are often alike."""
    others = ["umbrella", "window", "carpet", "engine", "violin", "ladder", "candle", "bridge", "pillow", "hammer"]
    likeness = {
        w: max(float(direction(w, TEXT, "t") @ direction(t, TEXT, "t")) for t in (*WORDS, "the")) for w in others
    }
    return sorted(others, key=likeness.__getitem__)[:count]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    config = NetworkConfig(DIM, TEXT, 1, width=16, heads=2, levels=4, stem_blocks=1, window=8, prompt_length=2)
    monkeypatch.setattr(restoring, "config_for", lambda profile: config)
    monkeypatch.setattr(presets, "QUICK", presets.Preset("quick", 2e-3, 1, 8, 2, 2))
    torch.set_num_threads(1)


def answerer(home: Path, library: TinyLibrary, profile: Any) -> Answerer:
    now = serving(home, profile)
    return Answerer(
        library, profile, network=now.network, weights=now.weights, snapshot=now.snapshot, doubts=now.doubts, bend=now.bend
    )  # type: ignore[arg-type]  # fmt: skip


def test_teaching_helps_in_other_words_over_other_recordings_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    library, profile = footage(), TinyProfile(blind=True)
    before = Answerer(library, profile)  # type: ignore[arg-type]
    report = learning.learn(tmp_path, library, profile, lesson(library, ("v0.mp4", "v1.mp4", "v2.mp4")))
    assert report.fusion.taught["nlq"][0] > 0 and "against zero-shot alone" in report.fusion.reasons["nlq taught"]
    after, video = answerer(tmp_path, library, profile), [library.video("v3.mp4")]
    hits = []
    for word in WORDS:
        query = TextQuery(f"find that dear old {word}")
        hits.append((right(before.text(query, video), when(library, "v3.mp4", word)),
                     right(after.text(query, video), when(library, "v3.mp4", word))))  # fmt: skip
        assert any(c.name == f"taught: where is the {word}" for c in after.text(query, video).concepts)
    assert sum(b for b, _ in hits) <= 2 and sum(a for _, a in hits) >= 5
    for word in farthest(2):
        query = TextQuery(f"{word} {word}")
        one, other = before.text(query, video), after.text(query, video)
        assert one.moments == other.moments and one.confidence == other.confidence
    asked = MomentQuery(("kettle",))
    assert before.moments(asked, video).moments == after.moments(asked, video).moments  # another family: nothing chosen


def test_categories_are_taught_as_questions_are(tmp_path: Path) -> None:
    library, profile = footage(), TinyProfile(blind=True)
    report = learning.learn(tmp_path, library, profile, lesson(library, ("v0.mp4", "v1.mp4", "v2.mp4"), "category"))
    assert report.fusion.taught["mq"][0] > 0 and "nlq" not in report.fusion.taught
    after, video = answerer(tmp_path, library, profile), [library.video("v3.mp4")]
    found = [right(after.moments(MomentQuery((w,)), video), when(library, "v3.mp4", w)) for w in WORDS]
    assert sum(found) >= 5


def test_stages_add_up_roll_back_and_forget(tmp_path: Path) -> None:
    library, profile = footage((WORDS, WORDS, OTHER, OTHER)), TinyProfile(blind=True)
    first = learning.learn(tmp_path, library, profile, lesson(library, ("v0.mp4", "v1.mp4")))
    second = learning.learn(tmp_path, library, profile, lesson(library, ("v2.mp4", "v3.mp4"), name="two"))
    snapshots = Snapshots(tmp_path)
    kept = snapshots.directions(second.snapshot, profile.blocks)
    assert kept is not None and len(kept) == 24 and snapshots.card(second.snapshot)["directions"] == 24
    video, query = [library.video("v1.mp4")], TextQuery("the good old kettle")
    assert any(c.name.startswith("taught: ") for c in answerer(tmp_path, library, profile).text(query, video).concepts)
    learning.use(tmp_path, "base")
    assert not any(
        c.name.startswith("taught: ") for c in answerer(tmp_path, library, profile).text(query, video).concepts
    )
    start, end = when(library, "v0.mp4", "kettle")
    assert set(learning.forget(tmp_path, "v0.mp4", start + 1, start + 2)) == {first.snapshot, second.snapshot}
    for snapshot, count in ((first.snapshot, 11), (second.snapshot, 23)):
        left = snapshots.directions(snapshot, profile.blocks)
        assert left is not None and len(left) == count
        assert not any(e.meets("v0.mp4", start, end) for e in left.entries)


def test_taught_again_replaces_and_not_here_removes() -> None:
    library = footage()
    known = memory(library, lesson(library, ("v0.mp4", "v1.mp4")))
    one = {"id": "a", "video": "v0.mp4", "query": "When did I see the kettle?", "split": "train"}
    again = memory(
        library, {"schema": 1, "name": "n", "family": "nlq", "examples": [{**one, "windows": [[1, 4]]}]}, known
    )
    assert len(again) == len(known) == 12
    assert [e.windows for e in again.entries if e.key == "the kettle" and e.video == "v0.mp4"] == [((1.0, 4.0),)]
    gone = memory(library, {"schema": 1, "name": "n", "family": "nlq", "examples": [{**one, "windows": []}]}, known)
    assert len(gone) == 11 and not any(e.key == "the kettle" and e.video == "v0.mp4" for e in gone.entries)


def test_the_memory_is_bounded_and_the_commonest_question_gives_way() -> None:
    def entry(word: str, k: int) -> Taught:
        return Taught(word, "nlq", f"v{k}", ((0.0, 1.0),), np.zeros(2), np.zeros(2), np.zeros(2))

    rows = [entry("cup", k) for k in range(5)] + [entry("cat", k) for k in range(2)]
    kept = bounded(rows, 4)
    assert [(e.text, e.video) for e in kept] == [("cup", "v3"), ("cup", "v4"), ("cat", "v0"), ("cat", "v1")]


def test_things_that_come_once_are_only_known_in_nearly_the_same_words() -> None:
    library = footage((WORDS,))
    choice, why = choose_strength(
        memory(library, lesson(library, ("v0.mp4",))), "nlq", library, TinyProfile(blind=True)
    )
    assert choice == CAREFUL and "nearly the same words" in why
    few = lesson(library, ("v0.mp4",))
    few["examples"] = few["examples"][:4]
    choice, why = choose_strength(memory(library, few), "nlq", library, TinyProfile(blind=True))
    assert choice is None and "5 are needed" in why


def test_what_zero_shot_answers_rightly_is_not_bent_away() -> None:
    """Labels that contradict one another between recordings: every other recording's direction is wrong."""
    library = footage()
    stage = lesson(library, ("v0.mp4", "v1.mp4", "v2.mp4"))
    for k, e in enumerate(stage["examples"]):
        video = e["video"]
        turned = WORDS[(WORDS.index(e["query"].split()[-1]) + int(video[1])) % 6]
        stage["examples"][k] = {**e, "windows": [list(when(library, video, turned))]}
    choice, why = choose_strength(memory(library, stage), "nlq", library, TinyProfile(blind=True))
    assert choice in (None, CAREFUL) and "no gain" in why


def test_a_profile_without_zero_shot_answers_gets_them_for_what_was_taught(tmp_path: Path) -> None:
    library, profile = footage(), Speechless()
    report = learning.learn(tmp_path, library, profile, lesson(library, ("v0.mp4", "v1.mp4", "v2.mp4")))
    assert report.fusion.nlq == 1.0 and report.fusion.taught["nlq"][0] > 0
    after, video = answerer(tmp_path, library, profile), [library.video("v3.mp4")]
    found = [after.text(TextQuery(f"my {w}"), video) for w in WORDS]
    assert sum(right(a, when(library, "v3.mp4", w)) for a, w in zip(found, WORDS, strict=True)) >= 5
    assert {m.source for a in found for m in a.moments} == {"zero-shot"} and all(0 <= a.confidence <= 1 for a in found)
    word = farthest(1)[0]
    assert {m.source for m in after.text(TextQuery(f"{word} {word}"), video).moments} == {"vilco"}


def test_the_direction_is_fishers_of_unit_deviation() -> None:
    covariance, apart = np.diag([4.0, 1.0]), np.array([1.0, 1.0])
    found = discriminant(apart, covariance)
    ridge = SHRINKAGE * 2.5
    assert found[1] / found[0] == pytest.approx((4.0 + ridge) / (1.0 + ridge), rel=1e-6)
    assert found @ covariance @ found == pytest.approx(1.0)
    assert not discriminant(apart, np.zeros((2, 2))).any()


def test_a_look_scores_its_window_highest_and_deviates_by_one() -> None:
    library = footage()
    stored, window = library.stored("v0.mp4"), when(library, "v0.mp4", "cat")
    scene, thing = look(stored, [window], TinyProfile.blocks, Footing.of(stored, TinyProfile.blocks))
    scores = np.asarray(stored.globals, np.float32) @ scene
    inside = (stored.times >= window[0]) & (stored.times < window[1])
    assert scores[inside].min() > scores[~inside].max() and scores.std() == pytest.approx(1.0, rel=0.02)
    assert not thing.any()  # this footage has no regions


def test_spread_is_the_deviation_of_a_unit_questions_scores() -> None:
    stored = footage().stored("v0.mp4")
    vectors = TinyProfile().text("kettle")
    assert vectors.scene is not None
    want = float((np.asarray(stored.globals, np.float32) @ vectors.scene).std())
    long = replace(vectors, scene=5 * vectors.scene)
    assert spread_of([vectors, long], [stored], TinyProfile.blocks)[0] == pytest.approx(want, rel=1e-4)


def test_only_a_question_nearer_than_different_ones_are_is_known() -> None:
    axes = np.eye(3)
    blend = np.array([0.8, 0.6, 0.0])
    rows = [Taught(t, "nlq", "v", ((10.0 * k, 10.0 * k + 5),), s, np.eye(2)[k % 2], np.zeros(2))
            for k, (t, s) in enumerate((("cup", axes[0]), ("mug", blend), ("dog", axes[2])))]  # fmt: skip
    made = Directions(rows, np.ones(2), -np.ones((1, 3)) / 3**0.5, Blocks(("one",), (2,), (1.0,)))
    assert made.knows(axes[0], 1.0) and not made.knows(np.array([0.0, 0.7, -0.7]), 1.0)
    plain = TextVectors(axes[0], axes[:1], np.array([0.0, 2.0]), None)
    bent, named = made.bend(plain, axes[0], 1.0, 1.0)
    assert bent.scene is not None and bent.scene == pytest.approx(
        [1.0, 1.0], abs=1e-3
    )  # own look of unit length + taught
    assert list(named) == ["cup"] and named["cup"] > 0.99
    assert made.bend(plain, axes[0], 0.0, 1.0) == (plain, {})


def test_the_file_says_what_was_saved_and_damage_is_told(tmp_path: Path) -> None:
    library = footage()
    made, path = memory(library, lesson(library, ("v0.mp4",))), tmp_path / DIRECTIONS
    save_directions(made, path)
    back = load_directions(path, TinyProfile.blocks)
    assert back is not None and [e.windows for e in back.entries] == [e.windows for e in made.entries]
    assert np.allclose(back.entries[0].scene, made.entries[0].scene, atol=5e-3)
    assert load_directions(tmp_path / "none", TinyProfile.blocks) is None
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(VilcoError) as caught:
        load_directions(path, TinyProfile.blocks)
    assert caught.value.code == "bad-snapshot"


def test_answering_from_directions_needs_no_torch(tmp_path: Path) -> None:
    library, profile = footage(), TinyProfile(blind=True)
    report = learning.learn(tmp_path, library, profile, lesson(library, ("v0.mp4", "v1.mp4", "v2.mp4")))
    if report.fusion.nlq > 0:
        Snapshots(tmp_path).change_card(report.snapshot, {"fusion": {**report.fusion.to_json(), "nlq": 0.0}})
    code = (
        "import sys; from vilco_app.learning.active import serving; from tests.learning_fakes import TinyProfile;"
        f"from pathlib import Path; assert serving(Path({str(tmp_path)!r}), TinyProfile(blind=True)).bend is not None;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent).returncode == 0


def test_learning_says_what_was_taught_does() -> None:
    library = footage()
    fusion = decide(
        Fusion(), memory(library, lesson(library, tuple(library.contents))), "nlq", library, TinyProfile(True)
    )
    assert Fusion.from_json(fusion.to_json()) == fusion
    report = {"seconds": 1.0, "train_seconds": 1.0, "stage": "s", "strategy": "naive", "snapshot": "x"}
    assert "what was taught is used for other questions (" in learnt_text({**report, "fusion": fusion.to_json()})
    quiet = replace(fusion, taught={}, reasons={"nlq taught": "only 2"})
    assert "does not change other questions (only 2)" in learnt_text({**report, "fusion": quiet.to_json()})
