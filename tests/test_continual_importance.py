"""Fisher and MAS against cases worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.continual_learners import Detector, Linear, Policy, detector_samples, plain, policy_samples
from vilco_app.continual.importance import fisher, output_norm, root_probe, subset
from vilco_app.continual.protocols import Batch, Output


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SAMPLES = plain([1.0, 2.0, -1.0], [0.5, -3.0, 2.0], [2.0, 0.0, 1.0])
X = torch.tensor([[1.0, 2.0, -1.0], [0.5, -3.0, 2.0], [2.0, 0.0, 1.0]])
WEIGHT = torch.tensor([[0.3, -0.2, 0.5], [0.1, 0.4, -0.6]])


def test_fisher_of_logistic_regression_is_p_times_one_minus_p_x_squared() -> None:
    learner = Linear(WEIGHT[:1], "bernoulli")
    p = torch.sigmoid(X @ WEIGHT[0])
    expected = ((p * (1 - p))[:, None] * X**2).mean(0)
    estimate = fisher(learner, SAMPLES, 0, 1, generator())["weight"][0]  # exact with one probe: one scalar output
    assert torch.allclose(estimate, expected, atol=1e-7)
    # and not the square of the batch's mean gradient, which nearly cancels
    wrong = ((p - 0.5)[:, None] * X).mean(0) ** 2
    assert not torch.allclose(estimate, wrong, rtol=0.2)


def test_fisher_of_a_linear_gaussian_is_x_squared_over_variance() -> None:
    learner = Linear(WEIGHT, "gaussian", scale=0.5, factor=3.0)
    expected = (X**2).mean(0) / 0.25 * 3.0
    estimate = fisher(learner, SAMPLES, 0, 1, generator())["weight"]  # each weight feeds one output: exact
    assert torch.allclose(estimate, expected.expand(2, 3), rtol=1e-6)


def test_masked_outputs_do_not_count() -> None:
    masked = [replace(s, targets={"valid": torch.tensor([True, False])}) for s in SAMPLES]
    estimate = fisher(Linear(WEIGHT, "gaussian"), masked, 0, 1, generator())["weight"]
    assert torch.allclose(estimate[0], (X**2).mean(0)) and float(estimate[1].abs().sum()) == 0
    norm = output_norm(Linear(WEIGHT, "raw"), masked, 0)["weight"]
    assert float(norm[1].abs().sum()) == 0 and float(norm[0].abs().sum()) > 0


def test_fisher_of_softmax_regression() -> None:
    weight = torch.cat([WEIGHT, torch.tensor([[0.2, 0.2, 0.2]])])
    p = torch.softmax(X @ weight.T, -1)
    expected = torch.einsum("nk,nd->kd", p * (1 - p), X**2) / 3
    estimate = fisher(Linear(weight, "categorical"), SAMPLES, 0, 4000, generator())["weight"]
    assert torch.allclose(estimate, expected, rtol=0.06, atol=0.01)


def test_probes_have_the_declared_covariance() -> None:
    z = torch.tensor([[0.3, -0.7, 0.2, 0.5]])
    n = 20000
    for kind in ("categorical", "gaussian-logstd", "bernoulli"):
        probes = root_probe(Output("z", z.expand(n, -1), kind), generator(1))  # type: ignore[arg-type]
        cov = probes.T @ probes / n
        if kind == "categorical":
            p = torch.softmax(z[0], -1)
            expected = torch.diag(p) - torch.outer(p, p)
        elif kind == "bernoulli":
            p = torch.sigmoid(z[0])
            expected = torch.diag(p * (1 - p))
        else:
            expected = torch.diag(torch.cat([(-2 * z[0, 2:]).exp(), torch.tensor([2.0, 2.0])]))
        assert torch.allclose(cov, expected, atol=0.05), kind


def test_fisher_of_a_policy_equals_the_full_jacobian() -> None:
    learner, samples = Policy(1, dropout=0.0), policy_samples(0, 2)
    learner.module.eval()
    named = learner.shared_parameters()
    exact = {n: torch.zeros_like(p) for n, p in named.items()}
    for s in samples:
        batch = Batch.of([s])
        batch.data = learner.collate([s])
        z = learner.outputs(batch, 0)[0].tensor[0]
        curvature = torch.cat([(-2 * z[2:]).exp(), torch.tensor([2.0, 2.0])]).detach()
        for k in range(4):
            grads = torch.autograd.grad(z[k], list(named.values()), retain_graph=True)
            for n, g in zip(named, grads, strict=True):
                exact[n] += curvature[k] * g**2 / len(samples)
    estimate = fisher(learner, samples, 0, 600, generator())
    for n in named:
        assert torch.allclose(estimate[n], exact[n], rtol=0.35, atol=0.05 * float(exact[n].max())), n
        assert float(estimate[n].sum()) == pytest.approx(float(exact[n].sum()), rel=0.1)


def test_mas_of_a_linear_map_is_two_z_x() -> None:
    z = X @ WEIGHT.T
    expected = (2 * torch.einsum("nk,nd->nkd", z, X)).abs().mean(0)
    learner = Linear(WEIGHT, "raw")
    assert torch.allclose(output_norm(learner, SAMPLES, 0, normalise=False)["weight"], expected, rtol=1e-5)
    assert torch.allclose(output_norm(learner, SAMPLES, 0)["weight"], expected / 2, rtol=1e-5)  # two outputs


def test_importance_passes_leave_the_learner_as_it_was() -> None:
    learner = Detector()
    learner.begin(0)
    learner.module.train()
    before = {k: v.clone() for k, v in learner.state_dict().items()}
    values = fisher(learner, detector_samples(0, 6), 0, 2, generator())
    assert all(torch.equal(v, before[k]) for k, v in learner.state_dict().items())
    assert all(p.grad is None for p in learner.module.parameters()) and learner.module.training
    assert values.keys() == learner.shared_parameters().keys()
    # rows of classes not known yet feed no output
    assert float(values["classes.weight"][2:].sum()) == 0 and float(values["classes.weight"][:2].sum()) > 0
    assert all(not v.requires_grad and bool((v >= 0).all()) for v in values.values())


def test_subset_is_a_choice_without_repetition() -> None:
    chosen = subset(SAMPLES * 1, 2, generator())
    assert len({s.id for s in chosen}) == 2 and subset(SAMPLES, None, generator()) == SAMPLES
