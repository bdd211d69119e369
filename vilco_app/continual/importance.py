"""How much each weight matters: diagonal Fisher and MAS by per-sample gradients, for any declared output.

Fisher (generalised Gauss-Newton): diag(J^T H J) with H the Hessian of the declared likelihood in the outputs. With eps of unit
covariance, E[(J^T H^1/2 eps)^2] = diag(J^T H J) (Hutchinson 1990; Martens 2020, section 9): one backward per probe and sample
instead of one per output. Squares are taken per sample, never of a batch gradient (van de Ven 2025, arXiv 2502.11756).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vilco_app.continual.protocols import Batch, Learner, Output, Sample
from vilco_app.continual.weights import evaluating


def root_probe(output: Output, rng: torch.Generator) -> Tensor:
    """H^1/2 eps for one output (detached), eps = random signs, shaped like its tensor; 0 at masked entries.

    bernoulli: sqrt(p(1-p)) eps. categorical: sqrt(p) eps - p (sqrt(p) . eps), whose covariance is diag(p) - p p^T.
    gaussian: eps / scale. gaussian-logstd: means eps / sigma, log standard deviations sqrt(2) eps. raw: eps.
    """
    z = output.tensor.detach()
    eps = (torch.randint(0, 2, z.shape, generator=rng) * 2 - 1).to(z)
    if output.kind == "bernoulli":
        p = torch.sigmoid(z)
        root = (p * (1 - p)).sqrt() * eps
    elif output.kind == "categorical":
        p = torch.softmax(z, -1)
        root = p.sqrt() * eps - p * (p.sqrt() * eps).sum(-1, keepdim=True)
    elif output.kind == "gaussian":
        root = eps / output.scale
    elif output.kind == "gaussian-logstd":
        mean, logstd = eps.chunk(2, -1)
        root = torch.cat([mean / z.chunk(2, -1)[1].exp(), logstd * 2**0.5], -1)
    else:
        root = eps
    return root * output.valid() * output.weight**0.5


def fisher(
    learner: Learner, samples: Sequence[Sample], task: int, probes: int, rng: torch.Generator
) -> dict[str, Tensor]:
    """Diagonal Fisher of the shared parameters, mean over samples. probes: random probes per sample; the estimate is unbiased
    for any number and exact for one scalar output."""

    def per_sample(outputs: list[Output], named: dict[str, nn.Parameter]) -> list[Tensor | None]:
        total: list[Tensor | None] = [None] * len(named)
        for k in range(probes):
            surrogate = torch.stack([(root_probe(o, rng) * o.tensor).sum() for o in outputs]).sum()
            grads = _grads(surrogate, named, keep=k + 1 < probes)
            total = [
                t if g is None else g**2 / probes + (0 if t is None else t) for t, g in zip(total, grads, strict=True)
            ]
        return total

    return _mean(learner, samples, task, per_sample)


def output_norm(learner: Learner, samples: Sequence[Sample], task: int, normalise: bool = True) -> dict[str, Tensor]:
    """MAS (Aljundi 2018, equation 2): mean over samples of |d ||outputs||^2 / d theta|, labels unused.

    normalise: mean instead of sum over an output's valid entries, else thousands of class logits drown two offsets.
    """

    def per_sample(outputs: list[Output], named: dict[str, nn.Parameter]) -> list[Tensor | None]:
        norms = []
        for o in outputs:
            valid = o.valid()
            norm = o.weight * (o.tensor**2 * valid).sum()
            norms.append(norm / valid.sum().clamp(min=1) if normalise else norm)
        grads = _grads(torch.stack(norms).sum(), named, keep=False)
        return [None if g is None else g.abs() for g in grads]

    return _mean(learner, samples, task, per_sample)


def _grads(value: Tensor, named: dict[str, nn.Parameter], keep: bool) -> list[Tensor | None]:
    if not value.requires_grad:
        return [None] * len(named)
    return list(torch.autograd.grad(value, list(named.values()), retain_graph=keep, allow_unused=True))


def _mean(learner: Learner, samples: Sequence[Sample], task: int, per_sample) -> dict[str, Tensor]:  # type: ignore[no-untyped-def]
    named = {n: p for n, p in learner.shared_parameters().items() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in learner.shared_parameters().items()}
    with evaluating(learner.module), torch.enable_grad():
        for sample in samples:
            batch = Batch.of([sample])
            batch.data = learner.collate(batch.samples)
            values = per_sample(learner.outputs(batch, task), named)
            for name, value in zip(named, values, strict=True):
                if value is not None:
                    total[name] += value / len(samples)
    return total


def subset(samples: Sequence[Sample], count: int | None, rng: torch.Generator) -> list[Sample]:
    """At most `count` samples, chosen uniformly; importance passes cost one backward per sample."""
    if count is None or len(samples) <= count:
        return list(samples)
    return [samples[i] for i in torch.randperm(len(samples), generator=rng)[:count].tolist()]
