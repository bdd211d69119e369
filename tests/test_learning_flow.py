"""Learning through its doors: stages one after the other, resumed, rolled back, forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.learning_fakes import DIM, TEXT, TinyLibrary, TinyProfile
from vilco_app import learning
from vilco_app.answering.answerer import Answerer
from vilco_app.answering.calibrate import Doubt
from vilco_app.answering.grounding import Grounded, fuse
from vilco_app.answering.windows import Windows
from vilco_app.learning import presets, restoring, run
from vilco_app.learning.doubting import fit_doubt
from vilco_app.learning.packing import load_state, save_state
from vilco_app.learning.scoring import Probe, Prober, choose_weight, recalls
from vilco_app.learning.snapshots import Snapshots
from vilco_app.learning.types import Stopped
from vilco_app.network.config import NetworkConfig
from vilco_app.stages import Example
from vilco_app.values import Correction, TextQuery, VilcoError

WORDS = ("kettle", "phone", "book", "cat", "ball", "lamp")


@pytest.fixture
def library() -> TinyLibrary:
    videos = {}
    for v in range(4):
        events = [(w, 8.0 + 16 * k + v, 14.0 + 16 * k + v) for k, w in enumerate(WORDS[:3] if v % 2 else WORDS[3:])]
        videos[f"v{v}.mp4"] = (64.0, events)
    return TinyLibrary(videos)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network and a training short enough for tests."""
    config = NetworkConfig(DIM, TEXT, 1, width=16, heads=2, levels=4, stem_blocks=1, window=8, prompt_length=2)
    monkeypatch.setattr(restoring, "config_for", lambda profile: config)
    quick = presets.Preset("quick", 2e-3, 2, 4, 6, 6)
    monkeypatch.setattr(presets, "QUICK", quick)
    torch.set_num_threads(1)


def stage(library: TinyLibrary, name: str, odd: bool, asked: str = "query", **changes: Any) -> dict[str, Any]:
    examples = []
    for video, (_, events) in library.contents.items():
        if (int(video[1]) % 2 == 1) == odd:
            for word, start, end in events:
                examples.append(
                    {"id": f"{name}-{video}-{word}", "video": video, asked: f"where is the {word}", "windows": [[start, end]],
                     "split": "heldout" if video > "v1.mp4" else "train"}
                )  # fmt: skip
    return {"schema": 1, "name": name, "family": "nlq" if asked == "query" else "mq", "examples": examples, **changes}


def test_two_stages_make_two_snapshots_and_a_score_matrix(tmp_path: Path, library: TinyLibrary) -> None:
    profile = TinyProfile()
    first = learning.learn(tmp_path, library, profile, stage(library, "one", True), strategy="reservoir")
    second = learning.learn(tmp_path, library, profile, stage(library, "two", False))
    assert first.parent == "base" and second.parent == first.snapshot and second.strategy == "reservoir"
    assert second.matrix.stages == ("one", "two")
    assert second.matrix.values[0][1] is None and all(v is not None for v in second.matrix.values[1])
    assert [len(h) for h in second.matrix.hits[1]] == [3, 3]
    assert {"new", "replay", "total"} <= set(second.losses)
    listed = learning.models(tmp_path)
    assert listed.active == second.snapshot
    assert [s.stages for s in listed.snapshots] == [(), ("one",), ("one", "two")]
    data = second.to_json()
    assert {"snapshot", "parent", "stage", "strategy", "losses", "seconds", "matrix", "fusion"} <= set(data)
    assert json.loads(json.dumps(data)) == data
    assert learning.use(tmp_path, first.snapshot[:6]) == first.snapshot
    assert learning.models(tmp_path).active == first.snapshot
    snapshots = Snapshots(tmp_path)
    for ref in ("base", first.snapshot):
        with pytest.raises(VilcoError, match="vilco use"):
            snapshots.remove(ref)
    assert snapshots.remove(second.snapshot[:6]) == second.snapshot
    assert [s.id for s in learning.models(tmp_path).snapshots] == ["base", first.snapshot]
    assert not list((tmp_path / "models").glob(".*gone"))


def test_nothing_but_tensors_and_json_is_in_a_snapshot(tmp_path: Path, library: TinyLibrary) -> None:
    made = learning.learn(tmp_path, library, TinyProfile(), stage(library, "one", True))
    names = {p.suffix for p in Snapshots(tmp_path).path(made.snapshot).iterdir()}
    assert names == {".json", ".safetensors"}
    assert not list((tmp_path / "models").glob(".*tmp"))


@pytest.mark.parametrize("strategy", ["reservoir", "episodic"])
def test_a_stopped_stage_goes_on_with_the_same_result(
    tmp_path: Path, library: TinyLibrary, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vilco_app.learning import fitting

    monkeypatch.setattr(fitting, "CHECKPOINT", 2)
    profile = TinyProfile()
    for home in ("a", "b"):
        learning.learn(tmp_path / home, library, profile, stage(library, "one", True), strategy=strategy)
    whole = run.learn_stage(tmp_path / "a", library, profile, stage(library, "two", False), job="j")
    asked: list[int] = []

    def stop_at_third() -> bool:
        asked.append(1)
        return len(asked) == 4

    with pytest.raises(Stopped):
        run.learn_stage(
            tmp_path / "b", library, profile, stage(library, "two", False), job="j", should_stop=stop_at_third
        )
    assert len(learning.models(tmp_path / "b").snapshots) == 2
    resumed = run.learn_stage(tmp_path / "b", library, profile, stage(library, "two", False), job="j")
    one, two = (
        load_state(Snapshots(tmp_path / h).path(s.snapshot) / "model.safetensors")["learner"]["module"]
        for h, s in (("a", whole), ("b", resumed))
    )
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert whole.losses == resumed.losses and not (tmp_path / "b" / "models" / ".work" / "j").exists()


def test_one_example_and_a_negative_are_a_stage(tmp_path: Path, library: TinyLibrary) -> None:
    one = {"schema": 1, "name": "one", "family": "nlq", "examples": [
        {"id": "x", "video": "v1.mp4", "query": "where is the umbrella", "windows": []}]}  # fmt: skip
    report = learning.learn(tmp_path, library, TinyProfile(), one)
    assert report.fusion.nlq == 0.0 and "needed" in report.fusion.reasons["nlq"]
    assert report.matrix.values == ((None,),)


def test_absences_are_weighed_and_an_unknown_preset_is_refused(tmp_path: Path, library: TinyLibrary) -> None:
    made = stage(library, "one", True)
    made["examples"] += [
        {"id": f"n{w}", "video": "v1.mp4", "query": f"where is the {w}", "windows": []} for w in WORDS[3:]
    ]
    report = learning.learn(tmp_path, library, TinyProfile(), made)
    assert "3 not in the footage" in report.fusion.reasons["nlq absent"] and not report.fusion.doubts
    with pytest.raises(VilcoError, match="nosuch"):
        learning.learn(tmp_path, library, TinyProfile(), made, preset="nosuch")


def test_moments_are_learnt_and_their_names_kept(tmp_path: Path, library: TinyLibrary) -> None:
    made = learning.learn(tmp_path, library, TinyProfile(), stage(library, "acts", True, "category"), strategy="vilco")
    state = load_state(Snapshots(tmp_path).path(made.snapshot) / "model.safetensors")["learner"]
    assert sorted(state["categories"]) == sorted(f"where is the {w}" for w in WORDS[:3])
    assert state["closed"] == len(state["module"]["prompts.keys"]) > 0
    scores = learning.evaluate(tmp_path, library, TinyProfile(), [stage(library, "acts", True, "category")])
    assert scores.stages[0].family == "mq" and scores.stages[0].n == 3 and "R@5@0.5" in scores.stages[0].metrics


def test_forgetting_takes_replay_examples_and_probes_and_marks(tmp_path: Path, library: TinyLibrary) -> None:
    made = learning.learn(tmp_path, library, TinyProfile(), stage(library, "one", True), strategy="reservoir")
    folder = Snapshots(tmp_path).path(made.snapshot)
    before = load_state(folder / "buffer.safetensors")["buffer"]["samples"]
    assert {s["meta"]["video"] for s in before} == {"v1.mp4"}
    assert learning.forget(tmp_path, "v1.mp4", 0.0, 64.0) == [made.snapshot]
    assert load_state(folder / "buffer.safetensors")["buffer"]["samples"] == []
    assert "forgotten" in learning.models(tmp_path).snapshots[1].marked
    learning.forget(tmp_path, "v3.mp4", 0.0, 64.0)
    assert Snapshots(tmp_path).probes(made.snapshot)[0]["examples"] == []


@pytest.mark.parametrize(
    ("change", "word"),
    [({"windows": [[30, 20]]}, "zz9"), ({"windows": [[60, 900]]}, "zz9"), ({"video": "gone.mp4"}, "zz9")],
)
def test_a_wrong_example_is_named_and_nothing_is_written(
    tmp_path: Path, library: TinyLibrary, change: dict[str, Any], word: str
) -> None:
    row = {"id": "zz9", "video": "v1.mp4", "query": "x", "windows": [[1, 2]], **change}
    with pytest.raises(VilcoError, match=word):
        learning.learn(tmp_path, library, TinyProfile(), {"schema": 1, "family": "nlq", "examples": [row]})
    assert learning.models(tmp_path).active == "base"


def test_unknown_strategy_and_foreign_profile_are_refused(tmp_path: Path, library: TinyLibrary) -> None:
    with pytest.raises(VilcoError, match="nosuch"):
        learning.learn(tmp_path, library, TinyProfile(), stage(library, "one", True), strategy="nosuch")
    learning.learn(tmp_path, library, TinyProfile(), stage(library, "one", True))
    other = TinyProfile()
    other.id = "other@1"
    with pytest.raises(VilcoError, match="tiny@1"):
        learning.learn(tmp_path, library, other, stage(library, "two", False))
    assert learning.serving(tmp_path, other).network is None


def test_corrections_become_a_stage_and_the_last_word_counts() -> None:
    made = [
        Correction("1", "text:a", "where is a", "text", "v", ((1.0, 2.0),), "t"),
        Correction("2", "text:a", "where is a", "text", "v", (), "t"),
        Correction("3", "visual:x", "picture", "visual", "v", ((1.0, 2.0),), "t"),
    ]
    found = learning.corrections_stage(made)
    assert [(e.id, e.windows, e.split) for e in found.examples] == [("2", (), "train")]
    with pytest.raises(VilcoError, match="no correction"):
        learning.corrections_stage(made[2:])


def test_state_packs_into_one_file_and_back(tmp_path: Path) -> None:
    state = {"a": torch.arange(3), "b": [1, 2.5, None, "x", True], "c": {0: {"step": torch.tensor(1.0)}, 7: (1, [2])}}
    save_state(state, tmp_path / "s.safetensors")
    back = load_state(tmp_path / "s.safetensors")
    assert torch.equal(back["a"], state["a"]) and back["b"] == state["b"]
    assert back["c"][7] == (1, [2]) and float(back["c"][0]["step"]) == 1.0
    (tmp_path / "s.safetensors").write_bytes(b"broken")
    with pytest.raises(VilcoError, match="safetensors"):
        load_state(tmp_path / "s.safetensors")
    with pytest.raises(TypeError):
        save_state({"x": object()}, tmp_path / "t.safetensors")


def grounded(starts: list[float], scores: list[float], source: str = "zero-shot") -> Grounded:
    s = np.array(starts)
    return Grounded((np.zeros(3),), Windows(s, s + 10, np.array(scores), np.zeros(len(s), dtype=int)), source)  # type: ignore[arg-type]


def probes(network_right: list[bool], zero_right: list[bool]) -> list[Probe]:
    out = []
    for k, (n, z) in enumerate(zip(network_right, zero_right, strict=True)):
        e = Example(str(k), "v", ((100.0, 110.0),), query="q")
        zero = grounded([100.0, 0.0, 300.0], [2.0, 1.0, 0.5] if z else [1.0, 2.0, 0.5])
        net = grounded([100.0, 200.0, 400.0], [0.9, 0.3, 0.1] if n else [0.3, 0.9, 0.1], "vilco")
        out.append(Probe(e, "nlq", [], zero, net))
    return out


def test_the_fusion_weight_follows_the_evidence() -> None:
    weight, reason = choose_weight(probes([True] * 12, [False] * 12))
    assert weight > 0 and "leave-one-out over 12" in reason
    weight, reason = choose_weight(probes([False] * 12, [True] * 12))
    assert weight == 0 and "no gain" in reason
    assert choose_weight(probes([True] * 3, [False] * 3))[0] == 0
    assert "10-fold" in choose_weight(probes([True] * 30, [False] * 30))[1]


def test_without_zero_shot_answers_the_network_answers_alone() -> None:
    alone = [Probe(p.example, "nlq", [], None, p.network) for p in probes([True], [True])]
    assert choose_weight(alone)[0] == 1.0 and alone[0].ranked(1.0)[0, 0] == 100.0


def test_fusion_weighs_votes_and_keeps_both_grounders_windows() -> None:
    zero, net = grounded([0.0, 100.0, 200.0], [3.0, 1.0, 0.0]), grounded([100.0, 0.0, 300.0], [0.9, 0.2, 0.1], "vilco")
    assert fuse(zero, net, 0.0) is zero and fuse(zero, None, 0.7) is zero and fuse(zero, net, 1.0) is net
    low, high = fuse(zero, net, 0.2), fuse(zero, net, 0.9)
    assert low.source == "fused" and len(low.windows.scores) == 6
    assert low.windows.starts[low.windows.scores.argmax()] == 0.0
    assert high.windows.starts[high.windows.scores.argmax()] == 100.0


def test_recall_of_moments_counts_instances() -> None:
    ranked = np.array([[0.0, 10.0, 0.9], [50.0, 60.0, 0.8], [20.0, 30.0, 0.7]])
    two = [(0.0, 10.0), (20.0, 30.0)]
    assert recalls(ranked, two, "mq")["R@1@0.5"] == 0.5  # the first 2 predictions meet one of 2 instances
    assert recalls(ranked, two, "mq")["R@5@0.5"] == 1.0
    assert recalls(ranked, two, "nlq")["R@1@0.5"] == 1.0
    assert recalls(np.zeros((0, 3)), two, "nlq") == {"R@1@0.3": 0, "R@1@0.5": 0, "R@5@0.3": 0, "R@5@0.5": 0, "mIoU": 0}


def test_listing_and_answering_zero_shot_import_no_torch(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom pathlib import Path\nfrom vilco_app import learning\n"
        "import vilco_app.stages.importers, vilco_app.network\n"
        f"home = Path({str(tmp_path)!r})\nprofile = type('P', (), {{'id': 'tiny@1'}})()\n"
        "assert learning.models(home).active == 'base' and learning.serving(home, profile).network is None\n"
        "print([m for m in ('torch', 'faiss', 'gradio', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_was_learnt_of_absence_lowers_confidence_only_when_it_made_confidences_truer() -> None:
    present = np.array([True, False] * 15)
    before = np.full(30, 0.6)
    doubt, why = fit_doubt(present, before, np.where(present, 0.7, 0.1))
    assert doubt is not None and "truer" in why
    assert doubt.lowered(0.6, 0.1) < 0.4 and doubt.lowered(0.6, 0.9) == pytest.approx(0.6)  # it never raises
    rng = np.random.default_rng(0)
    doubt, why = fit_doubt(present, before, rng.random(30))
    assert doubt is None and "no truer" in why
    backwards, _ = fit_doubt(present, before, np.where(present, 0.1, 0.7))
    assert backwards is None


def test_an_answer_is_less_sure_where_the_network_sees_nothing(library: TinyLibrary) -> None:
    class Network:
        source = "vilco"

        def propose(self, query: Any, kind: Any, passages: Any, scale: Any = None) -> Grounded:
            return grounded([0.0], [0.01], "vilco")

    video = [library.resolve("v1.mp4")]
    query = TextQuery(f"where is the {WORDS[0]}")
    plain = Answerer(library, TinyProfile(), network=Network()).text(query, video)  # type: ignore[arg-type]
    doubted = Answerer(library, TinyProfile(), network=Network(), doubts={"text": Doubt(1.0, 0.0)}).text(query, video)  # type: ignore[arg-type]
    assert doubted.confidence < plain.confidence - 0.05
    assert [(m.start, m.end) for m in doubted.moments] == [(m.start, m.end) for m in plain.moments]
    assert doubted.moments[0].score <= doubted.confidence + 1e-9


def test_examples_are_asked_as_people_ask(library: TinyLibrary) -> None:
    """The asking words are stripped for the zero-shot side here as in answers: what is compared is what would be said."""
    said: list[str] = []

    class Listening(TinyProfile):
        def text(self, text: str) -> Any:
            said.append(text)
            return super().text(text)

    profile = Listening()
    Prober(library, profile).probe(
        Example("e", "v1.mp4", ((8.0, 9.0),), query=f"where is the {WORDS[0]}"), "nlq", "v1.mp4", None
    )
    asked = list(said)
    said.clear()
    Answerer(library, profile).text(TextQuery(f"where is the {WORDS[0]}"), [library.resolve("v1.mp4")])
    assert asked == said[: len(asked)] and len(asked) == 2
