"""ViLCo and episodic: memory, narrations, stored outputs and their trust, moving average, re-alignment."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.continual_learners import (
    Detector,
    Linear,
    detector_samples,
    narration_samples,
    plain,
)
from vilco_app.continual.distil import flat_outputs
from vilco_app.continual.loop import Plan, fit
from vilco_app.continual.protocols import Batch, Ctx, Task
from vilco_app.continual.storing import with_outputs
from vilco_app.continual.strategies import make_strategy
from vilco_app.continual.weights import outputs_of

PLAN = Plan(epochs=6, batch_size=8, lr=1e-2)


def learn(learner, strategy, tasks: int = 2, count: int = 24, plan: Plan = PLAN):
    for task in range(tasks):
        learner.begin(task)
        samples = detector_samples(task, count)
        result = fit(learner, strategy, samples, Task(task), plan, narrations=narration_samples(task, 8))
    return result


def collated(learner, samples) -> Batch:
    batch = Batch.of(samples)
    batch.data = learner.collate(samples)
    return batch


def test_vilco_concatenates_its_memory_and_contrasts_narrations() -> None:
    learner, strategy = Detector(), make_strategy("vilco", memory=10, narrations=5)
    result = learn(learner, strategy, 3)
    record = result.losses[0]
    assert record.extra["narrations"] > 0 and any(r.replay is not None for r in result.losses)
    assert len(strategy.buffer) == 10 and len(strategy.told.buffer) == 5  # type: ignore[attr-defined]
    ctx = Ctx(learner, Task(3), detector_samples(2, 4), torch.Generator().manual_seed(0), PLAN)
    assert len(strategy.training_set(ctx.samples, ctx)) == 14
    assert {s.task for s in strategy.told.buffer} != {2}  # type: ignore[attr-defined]
    assert strategy.forget("v0", 0.0, 1e9) > 0


def test_episodic_slows_the_trunk_trusts_right_answers_and_stores_them() -> None:
    learner, strategy = Detector(), make_strategy("episodic", memory=12, trunk=0.3, boundary=0.2)
    learn(learner, strategy)
    ctx = Ctx(learner, Task(2), detector_samples(1, 4), torch.Generator().manual_seed(0), PLAN)
    scale = {n: strategy.lr_scale(n, ctx) for n in learner.shared_parameters()}
    assert scale["trunk.weight"] == 0.3 and scale["boundary.bias"] == 0.2 and scale["classes.weight"] == 1.0
    assert strategy.lr_scale("trunk.weight", replace(ctx, task=Task(0))) == 1.0
    kept = strategy.buffer.samples  # type: ignore[attr-defined]
    assert all(s.stored["classes"].dtype == torch.float16 for s in kept)
    assert all(0 < s.trust <= 1 for s in kept) and sum(s.trust == 1 for s in kept) >= 3
    latest = [s for s in kept if s.task == 1]
    fresh = flat_outputs(outputs_of(learner, collated(learner, latest), 1), len(latest))
    for s, out in zip(latest, fresh, strict=True):
        assert torch.allclose(s.stored["classes"].float(), out["classes"], atol=2e-2)


def test_episodic_ends_a_stage_with_the_moving_average_of_its_weights() -> None:
    learner, strategy = Detector(), make_strategy("episodic", ema=0.9)
    learner.begin(0)
    average = learner.trunk.weight.detach().clone()
    records = []

    def follow(record) -> None:
        nonlocal average
        decay = min(0.9, (1 + record.step) / (10 + record.step))
        average = decay * average + (1 - decay) * learner.trunk.weight.detach()
        records.append(record)

    fit(learner, strategy, detector_samples(0, 24), Task(0), replace(PLAN, epochs=40), on_step=follow)
    assert len(records) == 120 and torch.allclose(learner.trunk.weight.detach(), average, atol=1e-5)


def test_episodic_realigns_the_heads_and_nothing_else() -> None:
    ends = []
    for realign in (0.0, 0.5):
        learner = Detector()
        learn(learner, make_strategy("episodic", realign=realign, memory=12))
        ends.append({n: p.detach().clone() for n, p in learner.shared_parameters().items()})
    heads = learner.head_names()
    assert all(torch.equal(ends[0][n], ends[1][n]) != (n in heads) for n in ends[0])


@pytest.mark.parametrize(
    ("squared", "distance"), [(True, 2.0**2), (False, 0.5 * 2.0**2)], ids=["outputs", "likelihoods"]
)
def test_what_the_old_model_got_wrong_is_hardly_distilled(squared: bool, distance: float) -> None:
    learner = Linear(torch.tensor([[1.0]]), "gaussian")
    old = plain([1.0], [1.0], targets=[[1.0], [1.0]])
    old = [replace(s, stored={"z": torch.tensor([3.0])}, trust=t) for s, t in zip(old, (1.0, 0.25), strict=True)]
    strategy = make_strategy("episodic", stored=0.6, least=2, squared=squared)
    strategy.buffer.add(old, torch.Generator())  # type: ignore[attr-defined]
    new = plain([0.0], targets=[[0.0]], task=1)
    ctx = Ctx(learner, Task(1), new, torch.Generator().manual_seed(0), PLAN)
    ctx.batch = strategy.compose_batch(Batch.of(new), ctx)
    ctx.batch.data = learner.collate(ctx.batch.samples)
    value = strategy.penalty(learner.loss(ctx.batch, 1), ctx)["distillation"]
    assert float(value.detach()) == pytest.approx(0.6 * (1.0 + 0.25) / 2 * distance)


def test_trust_falls_with_the_loss_above_the_median() -> None:
    learner = Linear(torch.tensor([[1.0]]), "gaussian")
    samples = plain([0.0], [1.0], [2.0], targets=[[1.0], [2.0], [6.0]])  # losses 0.5, 0.5, 8
    trust = [s.trust for s in with_outputs(learner, samples, 0, judge=True)]
    assert trust[:2] == [1.0, 1.0] and trust[2] == pytest.approx(2.718281828 ** (1 - 16), rel=1e-4)


def test_episodic_shares_the_batch_with_replay_instead_of_doubling_it() -> None:
    learner, strategy = Detector(), make_strategy("episodic", least=1)
    sizes: list[tuple[int, int]] = []
    compose = strategy.compose_batch

    def spy(batch, ctx):
        batch = compose(batch, ctx)
        sizes.append((batch.origin.count("new"), batch.origin.count("replay")))
        return batch

    strategy.compose_batch = spy  # type: ignore[method-assign]
    learn(learner, strategy, 2, plan=replace(PLAN, epochs=1))
    assert sizes == [(8, 0)] * 3 + [(4, 4)] * 6
