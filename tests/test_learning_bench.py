"""The synthetic benchmark: its generator, and the claims made of it (slow: two to three processor minutes)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vilco_app.benchmarks.forgetting import Trained, compare
from vilco_app.benchmarks.learn import learn
from vilco_app.benchmarks.synthetic import SyntheticSettings, synthetic_stages
from vilco_app.benchmarks.transfer import apart, reworded
from vilco_app.values import VilcoError


def test_the_generator_does_what_its_settings_say() -> None:
    settings = SyntheticSettings(stages=2, train=8, held=4)
    stages, again = synthetic_stages(settings), synthetic_stages(settings)
    assert [len(s.train) for s in stages] == [8, 8] and [len(s.held) for s in stages] == [4, 4]
    sample = stages[1].train[0]
    assert torch.equal(sample.features["video"], again[1].train[0].features["video"])
    assert {s.meta["text"] for s in stages[0].train}.isdisjoint({s.meta["text"] for s in stages[1].train})
    start, end = (int(v) for v in sample.targets["windows"][0])
    video = sample.features["video"]
    inside = video[start:end].mean(0)
    assert float(inside.norm()) > 0.7 * settings.signal and settings.shortest <= end - start <= settings.longest
    same = next(s for s in stages[1].held if s.meta["text"] == sample.meta["text"])
    a, b = (int(v) for v in same.targets["windows"][0])
    cosine = torch.nn.functional.cosine_similarity(inside, same.features["video"][a:b].mean(0), dim=0)
    assert float(cosine) > 0.8
    assert not torch.equal(
        video, synthetic_stages(SyntheticSettings(stages=2, train=8, held=4, seed=1))[1].train[0].features["video"]
    )


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(VilcoError, match="nosuch"):
        learn(only=["nosuch"])


@pytest.mark.slow
def test_what_is_said_of_forgetting_holds_at_the_middle_setting() -> None:
    # what is asserted; `vilco bench learn` sets fixed reservoir replay beside it. Equal steps, so that nobody wins by working more
    names = ("naive", "vilco", "episodic", "joint")
    table = compare(names=names, seeds=3, trained=Trained(steps=40))
    joint = table.accs("joint").mean()
    assert table.bwfs("naive").mean() > 0.2  # fine-tuning forgets
    assert joint >= max(table.accs(n).mean() for n in names) - 0.02
    assert table.kept("vilco") >= 0.7
    assert table.kept("episodic") >= 0.9
    assert table.bwfs("episodic").mean() < 0.05


def test_questions_are_reworded_by_rule_and_lists_that_share_a_clip_are_not_each_others_other_videos() -> None:
    assert reworded("When did I see the red cup?") == "find the part that shows the red cup"
    assert reworded("Where is the kettle?") != "Where is the kettle?" and "kettle" in reworded("Where is the kettle?")
    assert reworded("the kettle") == "find: the kettle"
    one, other = {"segments": [{"clip": "a"}, {"clip": "b"}]}, {"segments": [{"clip": "c"}]}
    assert apart(one, other) and not apart(one, one) and not apart(one, {"segments": [{"clip": "b"}]})


def test_transfer_needs_labelled_footage(tmp_path: Path) -> None:
    with pytest.raises(VilcoError, match="no two lists"):
        learn(only=["transfer"], cases=tmp_path)


def test_equal_steps_are_equal_for_every_strategy() -> None:
    settings = SyntheticSettings(stages=2, train=8, held=2, cells=32, longest=12)
    table = compare(settings, ("vilco", "episodic"), [5], 0.25, 1, None, Trained(steps=2))
    assert [r.steps for n in ("vilco", "episodic") for r in table.results[n]] == [[2, 2], [2, 2]]
    assert table.results["vilco"][0].seed == 5
