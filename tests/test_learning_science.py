"""Benchmarks of the continual-learning science on tiny settings: what they measure and that they leave nothing behind."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vilco_app.benchmarks import inside, prompting, strategies
from vilco_app.benchmarks.forgetting import Trained, hits, run, small_network
from vilco_app.benchmarks.synthetic import SyntheticSettings, synthetic_stages
from vilco_app.continual import make_strategy
from vilco_app.network.learner import ViLCoLearner
from vilco_app.network.prompts import PromptMemory

TINY = SyntheticSettings(stages=2, train=8, held=4, cells=32, longest=12)


def learner_of(**network: object) -> ViLCoLearner:
    learner = ViLCoLearner(small_network(TINY, 0, **network))
    for k, stage in enumerate(synthetic_stages(TINY)):
        learner.register(stage.train, k)
    return learner


def test_a_run_scores_one_stage_ahead_and_before_the_first() -> None:
    found = run("reservoir", TINY, 0, 0.25, Trained(steps=1))
    assert not np.isnan(found.matrix).any() and found.untrained.shape == (2,)
    assert found.fwt == pytest.approx(found.matrix[0, 1] - found.untrained[1])
    assert found.cost.bytes > 0 and len(found.hits) == 2


def test_a_watch_changes_nothing_and_sees_every_stage() -> None:
    look = inside.Inside(probe=2, every=1)
    plain, seen = (run("vilco", TINY, 3, 0.25, Trained(steps=2), watch=w) for w in (None, look))
    assert np.array_equal(plain.matrix, seen.matrix) and plain.steps == seen.steps
    assert [len(c) for c in look.curves] == [6, 3] and len(look.seen) == 6  # two steps and the end, of either stage
    assert len(look.stages) == 2 and math.isnan(look.stages[0]["stability gap"])
    last = look.stages[-1]
    assert last["routing accuracy, as taught"] == 1  # keys are the centres of the very questions
    assert 1 < last["effective rank"] <= last["srank"] <= 48 and 0 <= last["dormant units"] < 0.5
    assert set(look.end()) == {"anytime score", "min-ACC", "WC-ACC"}


def test_units_that_never_answer_are_found_dormant() -> None:
    learner = learner_of()
    probe = synthetic_stages(TINY)[0].held
    first = inside.state(learner, probe)
    with torch.no_grad():  # half the units of one layer fall silent: gelu(-50) is 0
        named = dict(learner.net.named_parameters())
        named["video_side.stem.0.mlp.0.weight"][:48] = 0
        named["video_side.stem.0.mlp.0.bias"][:48] = -50
    assert inside.state(learner, probe)["dormant units"] > first["dormant units"]


@pytest.mark.parametrize("name", ["icarl", "bic", "ridge"])
def test_what_a_strategy_shows_is_what_is_scored(name: str) -> None:
    learner = learner_of()
    held = synthetic_stages(TINY)[0].held
    plain = hits(learner, held, 0.5)
    if name == "ridge":
        learner.ridge_view = lambda x: torch.zeros(len(x), TINY.video_dim)
        assert hits(learner, held, 0.5).tolist() == [0.0] * len(held)  # every cell alike: the first one is no moment
    else:
        learner.class_view = lambda logits, _: logits
        assert hits(learner, held, 0.5).tolist() == plain.tolist()
        seen: list[int] = []

        def view(logits: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
            seen.append(logits.shape[-1])
            return logits

        learner.class_view = view
        hits(learner, held, 0.5)
        assert seen == [8]  # all categories beside each other


def test_grid_and_table_name_real_options_and_strategies() -> None:
    for name, options in strategies.GRID.items():
        for option, values in options.items():
            make_strategy(name, **{option: values[0]})
    rows = strategies.strategies(
        workers=1, names=("naive", "packnet"), settings=TINY, seeds=(5,), trained=Trained(steps=1)
    )
    found = {r["name"]: r["value"] for r in rows}
    assert found["naive: training against naive"] == 1
    assert {"packnet: R@1", "packnet, stage known: R@1", "packnet: BwF", "packnet: FwT"} <= set(found)
    assert found["naive: R@1, low"] <= found["naive: R@1"] <= found["naive: R@1, high"]


def test_later_stages_move_their_prompts_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    states = []

    def scores(learner: ViLCoLearner, stages: list[object]) -> list[float]:
        states.append({n: v.clone() for n, v in learner.net.state_dict().items()})
        return [0.0] * len(stages)

    monkeypatch.setattr(prompting, "_scores", scores)
    monkeypatch.setattr(prompting, "LATER", 2)
    prompting.learnt("own prompts that bend the question", 0, steps=1, prompt_steps=1)
    base, _, second, third, stage, category = states  # after the base (twice), two stages, two exchanges
    rows = len(base["prompts.prompts"])
    for name, value in base.items():
        if not name.startswith("prompts."):
            assert torch.equal(value, third[name]), name
    assert torch.equal(base["prompts.prompts"], second["prompts.prompts"][:rows])
    assert torch.equal(second["prompts.prompts"], third["prompts.prompts"][: rows + 4])
    own = third["prompts.prompts"]
    assert torch.equal(stage["prompts.prompts"][rows : rows + 4], own[rows + 4 :])  # stages exchanged
    assert torch.equal(category["prompts.prompts"][rows + 1], own[rows])  # classes of a stage exchanged
    assert torch.equal(category["prompts.prompts"][:rows], own[:rows])


def test_a_prompt_bends_the_question_by_what_it_learnt() -> None:
    config = small_network(TINY, 0, prompt_bend=0.5, stage_slots=2)
    memory = PromptMemory(config, torch.Generator().manual_seed(0))
    asked = torch.eye(config.text_dim)[:2]
    assert memory.bent(asked) is asked  # no slot yet
    memory.open(asked, 0, torch.Generator().manual_seed(0))
    weights = memory.weights(asked)
    want = asked + 0.5 * weights @ memory.prompts.mean(1)
    assert torch.allclose(memory.bent(asked), want)
    tokens, _, _ = memory(asked, asked[:, None], torch.ones(2, 1, dtype=torch.bool))
    assert torch.allclose(tokens[:, 0], asked + weights @ memory.prompts[:, 0], atol=1e-6)
    memory.bent(asked).sum().backward()
    assert memory.prompts.grad is not None and float(memory.prompts.grad.abs().sum()) > 0
    plain = PromptMemory(small_network(TINY, 0), torch.Generator().manual_seed(0))
    plain.open(asked, 0, torch.Generator().manual_seed(0))
    assert plain.bent(asked) is asked
