"""Each weight-space strategy against its formula: penalties, path integrals, masks, projections, variational terms."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from tests.continual_learners import Bowl, Detector, Linear, Policy, detector_samples, plain, policy_samples
from vilco_app.continual.loop import Plan, fit, make_optimizer, step
from vilco_app.continual.protocols import Batch, Ctx, Task
from vilco_app.continual.strategies import make_strategy
from vilco_app.continual.strategies.agem import project

ONE = plain([1.0])
SGD = Plan(epochs=1, batch_size=4, lr=0.1, weight_decay=0.0, clip=None, optimizer="sgd", warmup=0, schedule="constant")


def context(learner, plan: Plan = SGD, task: int = 1, samples=ONE) -> Ctx:
    return Ctx(learner, Task(task), list(samples), torch.Generator().manual_seed(0), plan)


@pytest.mark.parametrize("name", ["l2", "ewc", "mas", "si"])
def test_the_penalty_and_its_gradient_are_the_quadratic(name: str) -> None:
    bowl = Bowl(h=[0.0, 0.0, 0.0], c=[0.0] * 3, start=[1.0, -2.0, 0.5])  # the task loss is flat
    strategy = make_strategy(name, strength=0.7)
    weight, anchor = torch.tensor([[1.0, 2.0, 0.0]]).double(), torch.tensor([[0.5, 0.0, 3.0]]).double()
    strategy.importance, strategy.anchor = {"theta": weight}, {"theta": anchor}  # type: ignore[attr-defined]
    ctx = context(bowl)
    strategy.before_task(ctx)
    ctx.optimizer = make_optimizer(strategy, ctx, SGD)
    before = bowl.theta.clone()
    record = step(bowl, strategy, ONE, ctx)
    expected = 0.7 * (weight[0] * (before - anchor[0]) ** 2).sum()
    assert record.extra["penalty"] == pytest.approx(float(expected)) and record.total == pytest.approx(float(expected))
    assert torch.allclose(bowl.theta, before - 0.1 * 2 * 0.7 * weight[0] * (before - anchor[0]))


def test_a_penalised_quadratic_settles_where_the_formula_says() -> None:
    """min 1/2 h2 (x - c2)^2 + s F (x - x1)^2 is at (h2 c2 + 2 s F x1) / (h2 + 2 s F)."""
    bowl = Bowl(h=[1.0, 4.0], c=[1.0, -1.0], start=[0.0, 0.0])
    strategy = make_strategy("mas", strength=0.5, normalise=False)
    plan = Plan(epochs=400, lr=0.05, clip=None, weight_decay=0.0, optimizer="sgd", warmup=0, schedule="constant")
    fit(bowl, strategy, ONE, Task(0), plan)
    first = bowl.theta.clone()
    assert torch.allclose(first, torch.tensor([1.0, -1.0]).double(), atol=1e-6)
    omega = 2 * first.abs()  # MAS of the output theta itself: |d theta^2 / d theta|
    bowl.h, bowl.c = torch.tensor([2.0, 1.0]).double(), torch.tensor([3.0, 3.0]).double()
    fit(bowl, strategy, ONE, Task(1), plan)
    expected = (bowl.h * bowl.c + 2 * 0.5 * omega * first) / (bowl.h + 2 * 0.5 * omega)
    assert torch.allclose(bowl.theta, expected, atol=1e-5)


def test_l2_weighs_every_stage_and_new_rows_are_free() -> None:
    learner = Linear(torch.ones(2, 3), "gaussian")
    samples = plain([1.0, 0.0, 0.0], targets=[[0.0, 0.0]])
    strategy = make_strategy("l2", strength=1.0)
    for task in range(2):
        fit(learner, strategy, samples, Task(task), SGD)
    assert torch.equal(strategy.importance["weight"], torch.full((2, 3), 2.0))  # type: ignore[attr-defined]
    grown = Linear(torch.cat([learner.module.weight.detach() + 1, torch.full((1, 3), 9.0)]), "gaussian")
    ctx = context(grown)
    value = strategy.penalty(None, ctx)["penalty"]  # type: ignore[arg-type]
    assert float(value) == pytest.approx(1.0 * 2.0 * 6)  # six old weights moved by one; the new row costs nothing
    strategy.after_backward("add", ctx)
    assert torch.allclose(grown.module.weight.grad, torch.tensor([[4.0] * 3, [4.0] * 3, [0.0] * 3]))


@pytest.mark.parametrize("clip", [None, 0.05])
def test_si_path_integral_is_each_weights_share_of_the_loss_drop(clip: float | None) -> None:
    h, c = [1.0, 4.0, 0.0], [1.0, -0.5, 3.0]
    bowl = Bowl(h, c, [0.0, 0.0, 0.0])
    strategy = make_strategy("si", damping=0.1)
    plan = Plan(epochs=600, lr=0.01, weight_decay=0.0, clip=clip, optimizer="sgd", warmup=0, schedule="constant")
    fit(bowl, strategy, ONE, Task(0), plan)
    hh, cc = bowl.h, bowl.c
    drop = 0.5 * hh * (cc**2 - (bowl.theta - cc) ** 2)
    path = strategy.path["theta"][0]  # type: ignore[attr-defined]
    assert torch.allclose(path, drop, rtol=0.03)
    omega = strategy.importance["theta"][0]  # type: ignore[attr-defined]
    assert torch.allclose(omega, path / (bowl.theta**2 + 0.1)) and float(omega[2]) == 0


def test_si_gives_no_importance_to_weights_that_raised_the_loss() -> None:
    bowl = Bowl([1.0, 1.0], [0.0, 0.0], [2.0, 2.0])
    strategy = make_strategy("si", damping=0.5)
    strategy.start = {"theta": torch.zeros(1, 2).double()}  # type: ignore[attr-defined]
    strategy.path = {"theta": torch.tensor([[3.0, -3.0]]).double()}  # type: ignore[attr-defined]
    values = strategy.measure(context(bowl))["theta"]  # type: ignore[attr-defined]
    assert values.tolist() == [[pytest.approx(3.0 / 4.5), 0.0]]


def outputs(learner: Policy, task: int) -> torch.Tensor:
    learner.module.eval()
    samples = policy_samples(task, 16, seed=5)
    batch = Batch.of(samples)
    batch.data = learner.collate(samples)
    with torch.no_grad():
        return learner.outputs(batch, task)[0].tensor.clone()


def test_packnet_gives_each_stage_an_equal_share_and_keeps_it_to_the_bit() -> None:
    learner, strategy = Policy(4, width=20), make_strategy("packnet")
    plan = Plan(epochs=6, batch_size=8, lr=1e-2, weight_decay=0.5, optimizer="adamw")
    kept, answers = [], []
    for task in range(4):
        fit(learner, strategy, policy_samples(task, 32), Task(task, total=4), plan)
        owner = strategy.owner  # type: ignore[attr-defined]
        kept.append({n: p.detach()[owner[n] <= task].clone() for n, p in learner.shared_parameters().items()})
        with strategy.view(learner, task):
            answers.append(outputs(learner, task))
    for task in range(4):  # three more stages of Adam momentum and weight decay moved nothing that is owned
        for n, p in learner.shared_parameters().items():
            assert torch.equal(p.detach()[owner[n] <= task], kept[task][n]), (task, n)
        with strategy.view(learner, task):
            assert torch.equal(outputs(learner, task), answers[task])
    for n, p in learner.shared_parameters().items():
        shares = [int((owner[n] == t).sum()) for t in range(4)]
        if p.dim() >= 2:
            assert max(shares) - min(shares) <= 2 and sum(shares) == p.numel(), (n, shares)
        else:
            assert shares == [p.numel(), 0, 0, 0]
    assert not torch.equal(answers[0], outputs(learner, 0))  # without the view, later weights take part


def test_packnet_without_a_known_number_of_stages_keeps_half_of_what_is_free() -> None:
    learner, strategy = Policy(3, width=16), make_strategy("packnet", keep=0.5)
    for task in range(3):
        fit(learner, strategy, policy_samples(task, 16), Task(task), Plan(epochs=1))
    owner = strategy.owner["4.weight"]  # type: ignore[attr-defined]
    assert [int((owner == t).sum()) for t in range(4)] == [128, 64, 32, 32]


def test_agem_turns_a_conflicting_gradient_to_a_right_angle_and_leaves_others() -> None:
    g = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([-3.0])}
    against = {"a": torch.tensor([-1.0, 0.5]), "b": torch.tensor([2.0]), "c": torch.tensor([1.0])}
    out = project(g, against)
    assert sum(float((out[n] * against[n]).sum()) for n in against) == pytest.approx(0, abs=1e-6)
    # the component at right angles to the reference is untouched
    change = torch.cat([out["a"] - g["a"], out["b"] - g["b"], out["c"]])
    direction = torch.cat([against["a"], against["b"], against["c"]])
    cosine = float(change @ direction / change.norm() / direction.norm())
    assert cosine == pytest.approx(1, abs=1e-6)
    assert project(g, {"a": torch.tensor([1.0, 0.0])}) == {} and project(g, {"a": torch.zeros(2)}) == {}


def test_an_agem_step_does_not_raise_the_memory_loss() -> None:
    old, new = plain([1.0, 0.2], targets=[[1.0]]), plain([1.0, 0.4], targets=[[-1.0]], task=1)

    def memory_change(name: str) -> float:
        learner = Linear(torch.tensor([[0.5, 0.3]]), "gaussian")
        strategy = make_strategy(name)
        if name == "agem":
            strategy.buffer.add(old, torch.Generator())  # type: ignore[attr-defined]
        ctx = context(learner, Plan(lr=1e-3, clip=None, optimizer="sgd", weight_decay=0.0))
        ctx.optimizer = make_optimizer(strategy, ctx, ctx.plan)
        before = memory_loss(learner)
        step(learner, strategy, new, ctx)
        return memory_loss(learner) - before

    def memory_loss(learner: Linear) -> float:
        batch = Batch.of(old)
        batch.data = learner.collate(old)
        return float(learner.loss(batch, 0).total(batch.weights).detach())

    assert memory_change("naive") > 1e-4
    assert abs(memory_change("agem")) < 2e-6  # zero to first order


def test_vcl_gradients_are_those_of_the_reparameterised_bound() -> None:
    learner = Linear(torch.tensor([[0.4, -0.3]]), "gaussian")
    samples = plain([1.0, 2.0], [0.5, -1.0], targets=[[1.0], [0.0]], task=1)
    strategy = make_strategy("vcl", strength=2.0, log_sigma=-1.0)
    ctx = context(learner, SGD, samples=samples)
    strategy.before_task(ctx)
    prior_mean, prior_log = torch.tensor([[0.1, 0.1]]), torch.tensor([[-0.5, -2.0]])
    strategy.prior_mean, strategy.prior_log_sigma = {"weight": prior_mean}, {"weight": prior_log}  # type: ignore[attr-defined]
    ctx.optimizer = make_optimizer(strategy, ctx, SGD)
    record = step(learner, strategy, samples, ctx)
    # the same step by autograd
    eps = torch.randn(1, 2, generator=torch.Generator().manual_seed(0))
    mean = torch.tensor([[0.4, -0.3]], requires_grad=True)
    log_sigma = torch.full((1, 2), -1.0, requires_grad=True)
    x, y = torch.tensor([[1.0, 2.0], [0.5, -1.0]]), torch.tensor([[1.0], [0.0]])
    weight = mean + log_sigma.exp() * eps
    loss = 0.5 * ((x @ weight.T - y) ** 2).sum(1).mean()
    kl = kl_divergence(Normal(mean, log_sigma.exp()), Normal(prior_mean, prior_log.exp())).sum()
    (loss + 2.0 * kl / 2).backward()
    assert record.extra["penalty"] == pytest.approx(float(kl.detach()), rel=1e-5)
    assert torch.allclose(learner.module.weight.detach(), mean.detach() - 0.1 * mean.grad, atol=1e-6)
    assert torch.allclose(strategy.log_sigma["weight"], log_sigma.detach() - 0.1 * log_sigma.grad, atol=1e-6)  # type: ignore[attr-defined]


def test_vcl_has_no_prior_in_the_first_stage_and_remembers_the_posterior() -> None:
    learner, strategy = Policy(2, dropout=0.0), make_strategy("vcl")
    first = fit(learner, strategy, policy_samples(0, 16), Task(0), Plan(epochs=2))
    assert all("penalty" not in r.extra for r in first.losses)
    mean = {n: p.detach().clone() for n, p in learner.shared_parameters().items() if p.dim() >= 2}
    assert strategy.prior_mean.keys() == mean.keys()  # type: ignore[attr-defined]
    assert all(torch.equal(strategy.prior_mean[n], mean[n]) for n in mean)  # type: ignore[attr-defined]
    second = fit(learner, strategy, policy_samples(1, 16), Task(1), Plan(epochs=2))
    assert second.losses[0].extra["penalty"] == pytest.approx(0, abs=1e-5) and second.losses[-1].extra["penalty"] > 0


def test_online_ewc_fades_old_stages() -> None:
    samples = plain([2.0, 1.0], targets=[[0.0]])
    for decay, factor in ((1.0, 2.0), (0.5, 1.5), (0.0, 1.0)):
        learner, strategy = Linear(torch.zeros(1, 2), "gaussian"), make_strategy("ewc", decay=decay)
        for task in range(2):
            fit(learner, strategy, samples, Task(task), SGD)
        assert torch.allclose(strategy.importance["weight"], factor * torch.tensor([[4.0, 1.0]]))  # type: ignore[attr-defined]


def test_closed_prompt_slots_do_not_move_under_momentum_and_decay() -> None:
    for name in ("vilco", "episodic"):
        learner, strategy = Detector(), make_strategy(name)
        plan = Plan(epochs=5, batch_size=8, lr=1e-2, weight_decay=0.5)
        learner.module.slots.data.fill_(0.3)
        for task in range(3):
            learner.begin(task)
            fit(learner, strategy, detector_samples(task, 16), Task(task), plan)
            if task == 0:
                first = learner.module.slots.detach()[0].clone()
        assert torch.equal(learner.module.slots.detach()[0], first)
        assert not torch.equal(learner.module.slots.detach()[2], torch.full((10,), 0.3))


def test_rates_rise_then_fall() -> None:
    plan = Plan(warmup=0.1)
    rates = [plan.rate(s, 100) for s in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[10] == pytest.approx(1) and max(rates) == pytest.approx(1)
    assert rates[55] == pytest.approx(0.5) and rates[-1] < 0.01
    assert all(b <= a for a, b in pairwise(rates[10:]))
    assert math.isclose(Plan(warmup=0, schedule="constant").rate(3, 10), 1.0)
