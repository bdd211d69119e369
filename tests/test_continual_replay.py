"""Replay and output-space strategies against closed forms: DER++, LwF, iCaRL, BiC, ridge, GDumb."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from tests.continual_learners import (
    Detector,
    Linear,
    Policy,
    detector_samples,
    narration_samples,
    plain,
    policy_samples,
)
from vilco_app.continual.distil import Rule, distance, divergence
from vilco_app.continual.loop import Plan, fit
from vilco_app.continual.protocols import Batch, Ctx, Output, Result, Task
from vilco_app.continual.storing import with_outputs
from vilco_app.continual.strategies import make_strategy
from vilco_app.continual.strategies.bic import fit_bias
from vilco_app.continual.weights import copy_of, swapped

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


def test_distances_are_the_divergences_of_the_declared_likelihoods() -> None:
    rng = torch.Generator().manual_seed(0)
    new, old = torch.randn(5, 6, generator=rng), torch.randn(5, 6, generator=rng)

    def of(kind: str, scale: float = 1.0) -> torch.Tensor:
        return distance(Output("z", new, kind, scale=scale), new, old, Rule())  # type: ignore[arg-type]

    assert torch.allclose(of("bernoulli"), kl_divergence(Bernoulli(logits=old), Bernoulli(logits=new)), atol=1e-5)
    assert torch.allclose(of("categorical"), kl_divergence(Categorical(logits=old), Categorical(logits=new)), atol=1e-5)
    assert torch.allclose(of("gaussian", 0.5), kl_divergence(Normal(old, 0.5), Normal(new, 0.5)), atol=1e-5)
    policy = kl_divergence(Normal(old[:, :3], old[:, 3:].exp()), Normal(new[:, :3], new[:, 3:].exp())).sum(-1)
    assert torch.allclose(of("gaussian-logstd"), policy, rtol=1e-4, atol=1e-4)
    assert torch.allclose(of("raw"), (new - old) ** 2)


def test_stored_outputs_line_up_whatever_the_batch_is_padded_to() -> None:
    learner = Detector()
    learner.begin(0)
    samples = detector_samples(0, 6)
    stored = with_outputs(learner, samples, 0)
    for order in ([5, 0, 3], [2], list(range(6))):
        batch = collated(learner, [stored[i] for i in order])
        outputs = learner.outputs(batch, 0)
        for k, i in enumerate(order):
            assert torch.allclose(outputs[0].flat(k), stored[i].stored["classes"], atol=1e-6)
        value = divergence(outputs, [s.stored for s in batch.samples], Rule(squared=True))
        assert float(value.detach()) == pytest.approx(0, abs=1e-9)


def test_derpp_loss_is_its_equation() -> None:
    learner = Linear(torch.tensor([[1.0, -1.0]]), "gaussian")
    old = [
        replace(s, stored={"z": torch.tensor([float(i)])})
        for i, s in enumerate(plain([1.0, 0.0], [0.0, 1.0], targets=[[2.0], [0.0]]))
    ]
    new = plain([1.0, 1.0], targets=[[3.0]], task=1)
    strategy = make_strategy("derpp", alpha=0.3, beta=0.6, least=2)
    strategy.buffer.add(old, torch.Generator())  # type: ignore[attr-defined]
    ctx = Ctx(learner, Task(1), new, torch.Generator().manual_seed(0), PLAN)
    batch = strategy.compose_batch(Batch.of(new), ctx)
    batch.data = learner.collate(batch.samples)
    ctx.batch = batch
    assert batch.origin == ["new", "replay", "replay"]
    result = learner.loss(batch, 1)
    total = result.total(batch.weights) + strategy.penalty(result, ctx)["distillation"]
    z = {0: 1.0, 1: -1.0}  # outputs on the two old samples; stored 0 and 1
    by_hand = (
        0.5 * 9 + 0.6 * (0.5 * (1 - 2) ** 2 + 0.5 * (-1 - 0) ** 2) / 2 + 0.3 * ((z[0] - 0) ** 2 + (z[1] - 1) ** 2) / 2
    )
    assert float(total.detach()) * 1.6 == pytest.approx(by_hand, rel=1e-5)  # up to the common factor 1 + beta


def test_offsets_are_distilled_only_where_the_old_model_saw_something() -> None:
    scores = Output("classes", torch.zeros(1, 3, 2), "bernoulli", torch.ones(1, 3, dtype=torch.bool), classes=True)
    offsets = Output("offsets", torch.zeros(1, 3, 2), "gaussian", torch.ones(1, 3, dtype=torch.bool), gate="classes")
    sure, unsure = 3.0, -3.0
    target = {
        "classes": torch.tensor([[sure, unsure], [unsure, unsure], [unsure, unsure]]),
        "offsets": torch.tensor([[2.0, 2.0], [50.0, 50.0], [9.0, 9.0]]),
    }
    only = divergence([offsets, scores], [{"offsets": target["offsets"], "classes": target["classes"]}], Rule(gate=0.5))
    alone = divergence([scores], [{"classes": target["classes"]}], Rule(gate=0.5))
    assert float(only - alone) == pytest.approx(0.5 * 4.0)  # the first place's 0.5 x 2^2, not 50^2
    gated = divergence([scores], [{"classes": target["classes"]}], Rule(gate=0.5, gate_scores=True))
    first = divergence(
        [replace(scores, tensor=torch.zeros(1, 1, 2), mask=None)], [{"classes": target["classes"][:1]}], Rule()
    )
    assert float(gated) == pytest.approx(float(first)) and float(gated) > float(alone) * 0.9
    none = divergence([scores], [{"classes": torch.full((3, 2), unsure)}], Rule(gate=0.5, gate_scores=True))
    assert none is None  # nothing confident: nothing to distil


def test_new_classes_are_not_taught_by_a_model_that_never_saw_them() -> None:
    learner, strategy = Detector(), make_strategy("lwf", gate=0.0)
    learn(learner, strategy, 1)
    learner.begin(1)
    ctx = Ctx(learner, Task(1), detector_samples(1, 4), torch.Generator().manual_seed(0), PLAN)
    strategy.before_task(ctx)
    ctx.batch = strategy.compose_batch(Batch.of(ctx.samples), ctx)
    result = Result({}, learner.outputs(ctx.batch, 1))
    assert result.outputs[0].tensor.shape[-1] == 4 and ctx.batch.teacher["lwf"][0].tensor.shape[-1] == 2
    assert float(strategy.penalty(result, ctx)["distillation"].detach()) == pytest.approx(0, abs=1e-7)
    with torch.no_grad():
        learner.classes.bias[2:] += 5.0  # rows of the new classes only
        still = float(strategy.penalty(Result({}, learner.outputs(ctx.batch, 1)), ctx)["distillation"])
        learner.classes.bias[:2] += 0.5
        moved = float(strategy.penalty(Result({}, learner.outputs(ctx.batch, 1)), ctx)["distillation"])
    assert still == pytest.approx(0, abs=1e-7) and moved > 0.01


def test_lwf_keeps_the_old_heads_answers_of_a_policy() -> None:
    learner, strategy = Policy(2, dropout=0.0), make_strategy("lwf")
    fit(learner, strategy, policy_samples(0, 16), Task(0), PLAN)
    new = policy_samples(1, 16)
    ctx = Ctx(learner, Task(1), new, torch.Generator().manual_seed(0), PLAN)
    strategy.before_task(ctx)
    ctx.batch = strategy.compose_batch(Batch.of(new), ctx)
    ctx.batch.data = learner.collate(new)
    with torch.no_grad():
        assert float(strategy.penalty(learner.loss(ctx.batch, 1), ctx)["distillation"]) == pytest.approx(0, abs=1e-6)
        learner.heads[1].weight += 3.0  # the new head is free
        assert float(strategy.penalty(learner.loss(ctx.batch, 1), ctx)["distillation"]) == pytest.approx(0, abs=1e-6)
        learner.heads[0].bias += 0.5  # the old one is not
        assert float(strategy.penalty(learner.loss(ctx.batch, 1), ctx)["distillation"]) > 0.05


def test_ridge_is_the_closed_form_in_any_order_and_number_of_stages() -> None:
    stages = [detector_samples(t, 20) for t in range(3)]
    results = []
    for order in ([[0], [1], [2]], [[2], [0], [1]], [[0, 1, 2]]):
        learner, strategy = Detector(), make_strategy("ridge", width=40, ridge=0.05)
        learner.begin(2)
        for index, part in enumerate(order):
            fit(learner, strategy, [s for t in part for s in stages[t]], Task(index))
        results.append(strategy.solve())  # type: ignore[attr-defined]
    learner = Detector()
    learner.begin(2)
    rows = [learner.ridge_rows(s) for t in range(3) for s in stages[t]]
    h, y = strategy.lift(torch.cat([x for x, _ in rows])), torch.cat([v for _, v in rows]).double()  # type: ignore[attr-defined]
    level = 0.05 * (h**2).sum(0).mean()
    stacked = torch.cat(
        [h, level.sqrt() * torch.eye(40, dtype=torch.float64)]
    )  # ridge as least squares on augmented rows
    expected = torch.linalg.lstsq(stacked, torch.cat([y, torch.zeros(40, 6, dtype=torch.float64)])).solution
    for weights in results:
        assert torch.allclose(weights, expected, atol=1e-8)


def test_ridge_learns_classes_one_stage_at_a_time() -> None:
    learner, strategy = Detector(), make_strategy("ridge")
    for task in range(3):
        learner.begin(task)  # the class list grows, and so do the columns
        fit(learner, strategy, detector_samples(task, 20), Task(task))
    assert learner.accuracy(detector_samples(0, 30, 9)) < 0.6
    with strategy.view(learner):
        assert min(learner.accuracy(detector_samples(t, 30, 9)) for t in range(3)) > 0.95
    assert learner.ridge_view is None


def test_icarl_answers_by_the_nearest_mean_of_its_exemplars() -> None:
    learner, strategy = Detector(), make_strategy("icarl", memory=12)
    learn(learner, strategy)
    exemplars = strategy.buffer.samples  # type: ignore[attr-defined]
    assert {s.group for s in exemplars} == {f"class {k}" for k in range(4)} and len(exemplars) == 12
    learner.module.eval()
    means = []
    for k in range(4):
        batch = collated(learner, [s for s in exemplars if s.group == f"class {k}"])
        vectors = learner.class_rows(batch)[1].detach()
        means.append(torch.nn.functional.normalize(torch.nn.functional.normalize(vectors, dim=1).mean(0), dim=0))
    test = detector_samples(0, 20, 5) + detector_samples(1, 20, 5)
    _, embedding, _ = learner.class_rows(collated(learner, test))
    by_hand = torch.cdist(torch.nn.functional.normalize(embedding.detach(), dim=1), torch.stack(means)).argmin(1)
    with strategy.view(learner):
        predicted, _ = learner.predict(test)
    assert torch.equal(predicted, by_hand) and learner.class_view is None


def test_bic_recovers_a_planted_bias() -> None:
    rng = torch.Generator().manual_seed(0)
    true = torch.randn(6000, 6, generator=rng) * 2
    labels = torch.distributions.Categorical(logits=true).probs.multinomial(1, generator=rng)[:, 0]
    new = torch.tensor([False, False, False, False, True, True])
    biased = torch.where(new, (true - 1.5) / 0.6, true)  # what the network says of new classes: too sure of them
    found = fit_bias(biased, labels, new, torch.ones(len(labels)), damping=0.0)
    assert found.tolist() == pytest.approx([0.6, 1.5], abs=0.12)


def test_bic_holds_out_a_balanced_split_and_its_layer_answers() -> None:
    learner, strategy = Detector(), make_strategy("bic", memory=40)
    learn(learner, strategy, 1)
    learner.begin(1)
    new = detector_samples(1, 24)
    seen: set[str] = set()
    original = learner.collate

    def spy(samples):
        seen.update(s.id for s in samples if learner.module.training)
        return original(samples)

    learner.collate = spy  # type: ignore[method-assign]
    fit(learner, strategy, new, Task(1), PLAN)
    held = set(strategy.validation)  # type: ignore[attr-defined]
    assert len(held) == 4 and not held & seen and len(seen) == 24 + 24 - 4
    pair = strategy.bias["1"]  # type: ignore[attr-defined]
    test = collated(learner, detector_samples(1, 10, 5))
    logits, embedding, _ = learner.class_rows(test)
    with strategy.view(learner):
        corrected = learner.class_view(logits, embedding)  # type: ignore[misc]
    assert torch.equal(corrected[:, :2], logits[:, :2])
    assert torch.allclose(corrected[:, 2:], logits[:, 2:] * pair[0] + pair[1])


def test_gdumb_never_sees_what_its_memory_refused() -> None:
    learner, strategy = Detector(), make_strategy("gdumb", memory=8)
    seen: set[str] = set()
    original = learner.collate
    learner.collate = lambda samples: seen.update(s.id for s in samples) or original(samples)  # type: ignore[method-assign,func-returns-value]
    learner.begin(0)
    fit(learner, strategy, detector_samples(0, 24), Task(0), PLAN)
    assert seen == {s.id for s in strategy.buffer} and len(seen) == 8  # type: ignore[attr-defined]


def test_bic_drops_a_bias_layer_that_later_training_has_absorbed() -> None:
    learner, strategy = Detector(), make_strategy("bic", memory=40)
    learn(learner, strategy, 2)
    assert set(strategy.bias) == {"1"}  # type: ignore[attr-defined]
    learner.begin(2)
    fit(learner, strategy, detector_samples(2, 1), Task(2), PLAN)  # one example: none can be held out
    assert strategy.bias == {}  # type: ignore[attr-defined]


def test_swapping_weights_gives_back_the_same_storage() -> None:
    learner = Detector()
    named = learner.shared_parameters()
    pointers = {n: p.data_ptr() for n, p in named.items()}
    other = {n: torch.zeros_like(p) for n, p in copy_of(named).items()}
    other["classes.weight"] = other["classes.weight"][:2]  # from before the head grew
    with swapped(named, other):
        assert float(named["trunk.weight"].detach().abs().sum()) == 0
        assert (
            float(named["classes.weight"].detach()[:2].abs().sum()) == 0
            and float(named["classes.weight"].detach()[2:].abs().sum()) > 0
        )
    assert {n: p.data_ptr() for n, p in named.items()} == pointers and float(
        named["trunk.weight"].detach().abs().sum()
    ) > 0


@pytest.mark.parametrize(
    "name", ["joint", "gdumb", "reservoir", "perfect-memory", "derpp", "icarl", "bic", "vilco", "episodic"]
)
def test_what_is_kept_is_trained_on(name: str) -> None:
    """Exemplars that are stored and never rehearsed are a bug other libraries have had."""
    learner = Detector()
    result = learn(learner, make_strategy(name), plan=replace(PLAN, epochs=2))
    assert any(r.replay is not None for r in result.losses) and any(r.new is not None for r in result.losses)


@pytest.mark.parametrize("name", ["joint", "gdumb"])
def test_training_from_scratch_owes_nothing_to_the_weights_before(name: str) -> None:
    ends = []
    for shift in (0.0, 1.0):
        learner, strategy = Detector(), make_strategy(name)
        learn(learner, strategy, 1, plan=replace(PLAN, epochs=1))
        with torch.no_grad():
            learner.trunk.weight += shift
        learner.begin(1)
        fit(learner, strategy, detector_samples(1, 12), Task(1), replace(PLAN, epochs=1))
        ends.append(learner.trunk.weight.detach().clone())
    assert torch.equal(ends[0], ends[1])
