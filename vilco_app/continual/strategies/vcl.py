"""Variational continual learning (Nguyen et al. 2018, equation 4), mean-field Gaussians, without coresets.

theta = mu + exp(log_sigma) eps, one eps per step; L += strength KL(q || q_previous) / N, q_previous the posterior after the
earlier stages. As Continual World found best: no KL in the first stage. The learner's own parameters hold mu; they are
perturbed for the forward pass and put back before the step, so any learner can be made variational.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vilco_app.continual.protocols import Batch, Ctx, Result, Stage, Strategy
from vilco_app.continual.weights import copy_of, fitted


@dataclass(frozen=True)
class Options:
    """Defaults of VCL."""

    # times KL / N as in the paper. Best on the network of 0.001, 0.01, 0.1, 1 (docs/continual.md): the loss is a mean over samples of
    # per-clip sums, so the KL weighs too much at 1 (Continual World's optimum, for policies) and nothing new is learnt
    strength: float = 0.001
    # initial: sigma 0.007; Continual World's 0.05 is noise this network does not learn under in 50 steps
    log_sigma: float = -5.0
    only: tuple[str, ...] = ()  # parameter name prefixes made variational; (): all of dimension 2 and more


class Method(Strategy):
    """Declared parameters are Gaussian; the mean answers questions."""

    name = "vcl"
    saved = ("log_sigma", "prior_mean", "prior_log_sigma")

    def __init__(self, options: Options) -> None:
        self.options = options
        self.log_sigma: dict[str, Tensor] = {}
        self.prior_mean: dict[str, Tensor] = {}
        self.prior_log_sigma: dict[str, Tensor] = {}
        self._free: dict[str, nn.Parameter] = {}
        self._eps: dict[str, Tensor] = {}
        self._mean: dict[str, Tensor] = {}

    def declared(self, ctx: Ctx) -> dict[str, nn.Parameter]:
        """The variational parameters of the learner."""
        only = self.options.only
        named = ctx.learner.shared_parameters().items()
        return {n: p for n, p in named if p.requires_grad and (n.startswith(only) if only else p.dim() >= 2)}

    def before_task(self, ctx: Ctx) -> None:
        for name, p in self.declared(ctx).items():
            self.log_sigma[name] = fitted(self.log_sigma.get(name, p[:0].detach()), p, self.options.log_sigma)

    def extra_parameters(self, ctx: Ctx) -> dict[str, nn.Parameter]:
        named = self.declared(ctx)
        self._free = {f"log_sigma.{n}": nn.Parameter(v.to(named[n])) for n, v in self.log_sigma.items()}
        return self._free

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        with torch.no_grad():
            for name, p in self.declared(ctx).items():
                self._eps[name] = torch.randn(p.shape, generator=ctx.rng).to(p)
                self._mean[name] = p.detach().clone()
                p.add_(self._eps[name] * self._free[f"log_sigma.{name}"].exp())
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        if not self.prior_mean:
            return {}
        total = torch.zeros(())
        with torch.no_grad():
            for name, mean in self._mean.items():
                if name in self.prior_mean:
                    prior, logs = self._prior(name, mean)
                    log_sigma = self._free[f"log_sigma.{name}"]
                    kl = logs - log_sigma + 0.5 * (((2 * log_sigma).exp() + (mean - prior) ** 2) / (2 * logs).exp() - 1)
                    total = total.to(kl.device) + kl.sum()
        return {"penalty": self._factor(ctx) * total}

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        if stage != "add":
            return
        with torch.no_grad():
            for name, p in self.declared(ctx).items():
                p.copy_(self._mean[name])
                log_sigma = self._free[f"log_sigma.{name}"]
                sigma = log_sigma.exp()
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                slope = grad * self._eps[name] * sigma  # d theta / d log_sigma = eps sigma
                if name in self.prior_mean:
                    prior, logs = self._prior(name, p)
                    grad = grad + self._factor(ctx) * (p - prior) / (2 * logs).exp()
                    slope = slope + self._factor(ctx) * ((2 * (log_sigma - logs)).exp() - 1)
                p.grad, log_sigma.grad = grad, slope

    def after_step(self, ctx: Ctx) -> None:
        self.log_sigma = {n: self._free[f"log_sigma.{n}"].detach().clone() for n in self.log_sigma}

    def after_task(self, ctx: Ctx) -> None:
        self.prior_mean = copy_of(self.declared(ctx))
        self.prior_log_sigma = {n: v.clone() for n, v in self.log_sigma.items()}

    def _factor(self, ctx: Ctx) -> float:
        return self.options.strength / max(1, len(ctx.samples))

    def _prior(self, name: str, like: Tensor) -> tuple[Tensor, Tensor]:
        return fitted(self.prior_mean[name], like), fitted(self.prior_log_sigma[name], like)
