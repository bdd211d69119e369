"""The loop: order of hooks, loss split, repeatability, stopping, state without pickles."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from tests.continual_learners import Bowl, Detector, Policy, detector_samples, plain, policy_samples
from vilco_app.continual.loop import Plan, fit, seeded, step
from vilco_app.continual.protocols import Batch, Ctx, Result, Strategy, Task
from vilco_app.continual.state import pack, unpack
from vilco_app.continual.strategies import make_strategy
from vilco_app.values import VilcoError


class Diary(Strategy):
    """Writes down when each hook is called, and the gradient's norm when masks are due."""

    name = "diary"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.norm = 0.0

    def before_task(self, ctx):
        assert ctx.optimizer is None
        self.said.append("before_task")

    def training_set(self, samples, ctx):
        self.said.append("training_set")
        return samples

    def compose_batch(self, batch, ctx):
        self.said.append("compose_batch")
        return batch

    def penalty(self, result, ctx):
        self.said.append("penalty")
        return {"penalty": 0.5 * result.outputs[0].tensor.sum()}

    def after_backward(self, stage, ctx):
        self.said.append(stage)
        if stage == "mask":
            self.norm = float(
                torch.cat([p.grad.flatten() for p in ctx.trained().values() if p.grad is not None]).norm()
            )

    def after_step(self, ctx):
        self.said.append("after_step")

    def after_task(self, ctx):
        assert not ctx.learner.module.training
        self.said.append("after_task")


def test_hooks_come_in_order_and_masks_after_clipping() -> None:
    diary, bowl = Diary(), Bowl([1.0], [100.0], [0.0])
    result = fit(bowl, diary, plain([1.0]), Task(0), Plan(epochs=1, clip=0.25))
    middle = ["compose_batch", "penalty", "add", "project", "mask", "after_step"]
    assert diary.said == ["before_task", "training_set", *middle, "after_task"]
    assert diary.norm == pytest.approx(0.25) and result.losses[0].grad_norm == pytest.approx(99.5)
    assert result.losses[0].extra["penalty"] == 0 and result.losses[0].total == pytest.approx(5000)


def test_the_loss_is_split_by_origin_and_weighted_by_share() -> None:
    per_sample = torch.tensor([1.0, 3.0, 10.0, 20.0, 30.0])
    new = Batch.of(plain([0.0], [0.0], task=1))
    batch = new.join(plain([0.0], [0.0], [0.0]), share=0.25)
    assert batch.origin == ["new", "new", "replay", "replay", "replay"] and batch.tasks == [1, 1, 0, 0, 0]
    assert float(batch.weights.sum()) == pytest.approx(1)
    total = Result({"l": per_sample, "whole": torch.tensor(7.0)}, []).total(batch.weights)
    assert float(total) == pytest.approx(0.75 * 2 + 0.25 * 20 + 7)
    plainly = new.join(plain([0.0], [0.0], [0.0]))
    assert float(Result({"l": per_sample}, []).total(plainly.weights)) == pytest.approx(64 / 5)
    assert new.join([]) is new


def test_records_say_what_new_and_replayed_samples_lost() -> None:
    learner, strategy = Detector(), make_strategy("reservoir")
    learner.begin(0)
    first = fit(learner, strategy, detector_samples(0, 12), Task(0), Plan(epochs=2))
    learner.begin(1)
    second = fit(learner, strategy, detector_samples(1, 12), Task(1), Plan(epochs=2))
    assert all(r.replay is None and r.new is not None for r in first.losses)
    r = second.losses[-1]
    assert r.new is not None and r.replay is not None
    assert r.total == pytest.approx((r.new + r.replay) / 2, rel=1e-4)  # half and half
    assert {"step", "steps", "total", "new", "replay", "grad_norm"} <= r.to_json().keys()
    json.dumps([x.to_json() for x in second.losses])


def test_a_run_is_a_function_of_its_seed_and_leaves_the_process_alone() -> None:
    ends = []
    for noise, seed in ((1, 0), (2, 0), (1, 5)):
        torch.manual_seed(noise)
        expected = torch.rand(1, generator=torch.Generator().manual_seed(noise))
        learner = Policy(1)
        fit(learner, make_strategy("naive"), policy_samples(0, 20), Task(0), Plan(epochs=2, seed=seed))
        assert torch.equal(torch.rand(1), expected)  # the global generator is where it was
        ends.append(torch.cat([p.flatten() for p in learner.module.parameters()]).detach())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


def test_steps_follow_the_plan() -> None:
    def steps(**plan: object) -> int:
        learner = Policy(1)
        return len(
            fit(learner, make_strategy("naive"), policy_samples(0, 20), Task(0), Plan(batch_size=8, **plan)).losses
        )  # type: ignore[arg-type]

    assert steps(epochs=2) == 6
    assert steps(epochs=2, min_steps=10) == 10
    assert steps(epochs=9, max_steps=4) == 4


def test_checkpoints_come_regularly_and_stop_comes_before_the_end_of_the_stage() -> None:
    learner, strategy, states = Policy(1), make_strategy("reservoir"), []
    fit(
        learner,
        strategy,
        policy_samples(0, 32),
        Task(0),
        Plan(epochs=3, batch_size=8),
        checkpoint=states.append,
        checkpoint_every=5,
    )
    assert [s["step"] for s in states] == [5, 10]
    learner, strategy = Policy(1), make_strategy("reservoir")
    cut = fit(learner, strategy, policy_samples(0, 32), Task(0), should_stop=lambda: True)
    assert not cut.done and cut.losses == [] and len(strategy.buffer) == 0  # type: ignore[attr-defined]


def test_batches_of_the_learners_own_are_used() -> None:
    class Grouped(Policy):
        def batches(self, samples, size, rng):
            return [[i for i in range(len(samples)) if i % 2 == k] for k in (0, 1)]

    sizes: list[int] = []

    class Count(Strategy):
        def compose_batch(self, batch, ctx):
            sizes.append(len(batch.samples))
            return batch

    fit(Grouped(1), Count(), policy_samples(0, 9), Task(0), Plan(epochs=2, batch_size=3))
    assert sizes == [5, 4, 5, 4]


def test_a_caller_with_its_own_loop_uses_single_steps() -> None:
    learner, strategy = Policy(2, dropout=0.0), make_strategy("agem", reference=4)
    for task in range(2):
        ctx = Ctx(learner, Task(task), policy_samples(task, 16), torch.Generator().manual_seed(0), Plan())
        strategy.before_task(ctx)
        ctx.optimizer = torch.optim.Adam(ctx.parameters().values(), lr=1e-2)
        losses = [step(learner, strategy, ctx.samples, ctx).total for ctx.step in range(20)]
        assert losses[-1] < losses[0]
        strategy.after_task(ctx)
    assert len(strategy.buffer) == 32  # type: ignore[attr-defined]


def test_state_survives_tables_and_json() -> None:
    state = {
        "a": torch.arange(6).reshape(2, 3).T, "b": [1, 2.5, None, "x", True], "c": {0: {"step": torch.tensor(3.0)}, 1: ()},
        "betas": (0.9, 0.999), "d.e": torch.ones(1), "d": {"e": torch.zeros(1)}, "none": {},
    }  # fmt: skip
    tensors, tree = pack(state)
    assert all(t.is_contiguous() for t in tensors.values()) and len(tensors) == 4
    back = unpack(tensors, json.loads(json.dumps(tree)))
    assert back.keys() == state.keys() and back["b"] == state["b"] and back["betas"] == state["betas"]
    assert list(back["c"]) == [0, 1] and float(back["c"][0]["step"]) == 3 and back["c"][1] == ()
    assert torch.equal(back["a"], state["a"]) and float(back["d.e"]) == 1 and float(back["d"]["e"]) == 0
    with pytest.raises(TypeError):
        pack({"x": object()})


def test_seeding_is_local() -> None:
    torch.manual_seed(3)
    a = torch.rand(1)
    torch.manual_seed(3)
    with seeded(11):
        inside = torch.rand(1)
    assert torch.equal(torch.rand(1), a)
    with seeded(11):
        assert torch.equal(torch.rand(1), inside)


@pytest.mark.parametrize("name", ["reservoir", "derpp", "vilco", "episodic", "icarl", "gdumb", "joint"])
def test_a_corrected_example_is_not_rehearsed_in_its_old_form(name: str) -> None:
    learner, strategy = Detector(), make_strategy(name)
    learner.begin(0)
    fit(learner, strategy, detector_samples(0, 12), Task(0), Plan(epochs=1))
    seen: list[bool] = []

    class Spy(Detector):
        def collate(self, samples):
            if self.module.training:
                seen.extend(bool((s.targets["label"] == 1).all()) for s in samples if s.id == "d0-3")
            return super().collate(samples)

    spy = Spy()
    spy.begin(0)
    spy.load_state_dict(learner.state_dict())
    corrected = replace(detector_samples(0, 12)[3], task=1)
    corrected = replace(corrected, targets={"label": torch.ones_like(corrected.targets["label"])})
    fit(spy, strategy, [corrected], Task(1), Plan(epochs=12))
    assert seen and all(seen)
    kept = [s for s in strategy.buffer if s.id == "d0-3"]  # type: ignore[attr-defined]
    assert len(kept) == 1 and bool((kept[0].targets["label"] == 1).all())


def test_checkpoints_do_not_repeat_a_buffer_the_stage_has_not_changed() -> None:
    learner, strategy = Policy(2), make_strategy("reservoir")
    fit(learner, strategy, policy_samples(0, 16), Task(0))
    started = strategy.state_dict()
    cut = fit(learner, strategy, policy_samples(1, 16), Task(1), should_stop=lambda: True)
    assert cut.state is not None and not any("features" in path for path in pack(cut.state)[0])
    other = make_strategy("reservoir")
    other.load_state_dict(started)
    other.forget("v0", 0.0, 1.0)  # meanwhile a person had something forgotten
    with pytest.raises(VilcoError) as error:
        fit(Policy(2), other, policy_samples(1, 16), Task(1), resume=cut.state)
    assert error.value.code == "other-buffer"
    # a buffer that has changed since the stage began is saved whole
    joint = make_strategy("joint")
    cut = fit(Policy(2), joint, policy_samples(0, 16), Task(0), should_stop=lambda: True)
    assert cut.state is not None and len(cut.state["strategy"]["buffer"]["samples"]) == 16
