"""The network as a grounder: windows stay in their passage, long recordings in pieces agree with the whole, caches hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.learning_fakes import DIM, TEXT, TinyLibrary, TinyProfile
from vilco_app.answering.curve import passages_of
from vilco_app.learning import grounder as module
from vilco_app.learning.grounder import NetworkGrounder
from vilco_app.learning.samples import Sampler, clip_of
from vilco_app.network.config import NetworkConfig
from vilco_app.network.learner import ViLCoLearner
from vilco_app.stages import Example


@pytest.fixture
def library() -> TinyLibrary:
    return TinyLibrary({"long.mp4": (700.0, [("kettle", 300.0, 320.0)]), "short.mp4": (30.0, [])})


def config(**changes: object) -> NetworkConfig:
    sizes = {"width": 16, "heads": 2, "levels": 3, "stem_blocks": 1, "window": 4, "prompt_length": 2}
    return NetworkConfig(DIM, TEXT, 1, **{**sizes, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["text", "moment"])
@pytest.mark.parametrize("fusion", ["late", "early"])
def test_windows_lie_in_their_passages_and_follow_the_zero_shot_curve_untrained(
    library: TinyLibrary, kind: str, fusion: str
) -> None:
    profile, grounder = TinyProfile(), NetworkGrounder(ViLCoLearner(config(fusion=fusion)), TinyProfile.blocks)
    passages = [p for v in library.videos() for p in passages_of(library.stored(v.id))]
    found = grounder.propose(profile.text("where is the kettle"), kind, passages)  # type: ignore[arg-type]
    assert found.source == "vilco" and [len(c) for c in found.curves] == [len(p) for p in passages]
    for start, end, p in zip(found.windows.starts, found.windows.ends, found.windows.passage, strict=True):
        assert passages[p].start <= start < end <= passages[p].end
    best = int(found.windows.scores.argmax())
    assert (
        295 < found.windows.starts[best] < 325 and passages[found.windows.passage[best]].stored.video.id == "long.mp4"
    )
    assert 300 <= passages[0].times[found.curves[0].argmax()] <= 320


def test_a_long_recording_in_pieces_agrees_with_the_whole(
    library: TinyLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, query = ViLCoLearner(config()), TinyProfile().text("where is the kettle")
    passage = passages_of(library.stored("long.mp4"))[0]
    whole = NetworkGrounder(learner, TinyProfile.blocks)._passage(
        query, NetworkGrounder(learner, TinyProfile.blocks)._code(query), "text", passage
    )
    monkeypatch.setattr(module, "PIECE", 512)
    pieces = NetworkGrounder(learner, TinyProfile.blocks)
    parts = pieces._passage(query, pieces._code(query), "text", passage)
    assert np.allclose(whole[0], parts[0], atol=1e-4) and len(pieces._pieces) > 3
    assert np.allclose(whole[1][:5], parts[1][:5], atol=1e-3)


def test_the_video_side_is_computed_once(library: TinyLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    grounder, profile = NetworkGrounder(ViLCoLearner(config()), TinyProfile.blocks), TinyProfile()
    passages = passages_of(library.stored("long.mp4"))
    first = grounder.propose(profile.text("where is the kettle"), "text", passages)
    monkeypatch.setattr(type(grounder.learner.net), "video", lambda *_: pytest.fail("the video side ran again"))
    again = grounder.propose(profile.text("where is the kettle"), "text", passages)
    assert np.array_equal(first.windows.scores, again.windows.scores)
    grounder.propose(profile.text("where is the phone"), "text", passages)


def test_only_the_part_before_is_answered_from(library: TinyLibrary) -> None:
    grounder = NetworkGrounder(ViLCoLearner(config()), TinyProfile.blocks)
    passages = passages_of(library.stored("long.mp4"), before=310.0)
    found = grounder.propose(TinyProfile().text("where is the kettle"), "text", passages)
    assert len(found.windows.ends) and found.windows.ends.max() <= 310.0


def test_forgotten_footage_is_no_cell(library: TinyLibrary) -> None:
    library.forgotten["long.mp4"] = ((290.0, 330.0),)  # type: ignore[assignment]
    clip = clip_of(library.stored("long.mp4"), TinyProfile.blocks, 0.5)
    assert not clip.valid[580:660].any() and clip.valid[:580].all() and clip.valid[660:].all()
    assert float(clip.features(580, 660).abs().sum()) == 0.0


def test_zero_shot_curves_have_the_scale_of_the_whole_recording(library: TinyLibrary) -> None:
    clip = clip_of(library.stored("long.mp4"), TinyProfile.blocks, 0.5)
    query = TinyProfile().text("where is the kettle")
    curve = clip.priors(query, TinyProfile.blocks, 0, clip.grid.length)[:, 0]
    scores = np.asarray(library.stored("long.mp4").globals, dtype=np.float32) @ query.scene
    assert np.allclose(curve, ((scores - scores.mean()) / scores.std()).clip(-8, 8), atol=1e-2)
    assert np.allclose(curve[600:640], clip.priors(query, TinyProfile.blocks, 600, 640)[:, 0])


def test_training_stretches_hold_the_moment_in_cells(library: TinyLibrary) -> None:
    sampler = Sampler(library, TinyProfile(), config())
    example = Example("a", "long.mp4", ((300.25, 320.5),), query="where is the kettle")
    sample = sampler.sample(example, "nlq", "long.mp4", 0, ())
    start = sample.meta["start"]
    window = sample.targets["windows"][0].double().numpy() * 0.5 + start
    assert np.allclose(window, [300.25, 320.5], atol=1e-3) and len(sample.features["video"]) == 512
    other = sampler.sample(Example("b", "long.mp4", ((305.0, 306.0),), query="x"), "nlq", "long.mp4", 0, ())
    assert other.features["video"].data_ptr() == sample.features["video"].data_ptr()
    assert torch.equal(sample.features["valid"], other.features["valid"])


def test_prompt_slots_are_looked_up_in_faiss(library: TinyLibrary) -> None:
    learner = ViLCoLearner(config())
    queries = torch.stack([torch.as_tensor(TinyProfile().text(w).sentence) for w in ("kettle", "phone", "book")])
    learner.net.prompts.open(queries, 0, torch.Generator().manual_seed(0))
    slots = NetworkGrounder(learner, TinyProfile.blocks).slots(TinyProfile().text("phone"), 3)
    assert len(slots) == 3 and slots[0][1] == pytest.approx(1.0, abs=1e-4)
    assert slots[0][0] == int(learner.net.prompts.weights(queries[1:2]).argmax())
