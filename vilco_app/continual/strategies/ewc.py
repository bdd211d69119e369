"""Elastic weight consolidation (Kirkpatrick et al. 2017, equation 3; single anchor and decay as in Schwarz et al. 2018).

L += strength sum_j F_j (theta_j - theta*_j)^2, F the diagonal Fisher of the declared outputs, per sample, at the end of the
stage. The ViLCo release squares the gradient of one leftover mini-batch instead; this is the estimator the paper means.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vilco_app.continual.importance import fisher, subset
from vilco_app.continual.protocols import Ctx
from vilco_app.continual.quadratic import QuadraticPenalty


@dataclass(frozen=True)
class Options:
    """Defaults of EWC."""

    # best on the network of 0.03, 0.2, 1, 30, 1000 (docs/continual.md): thousands of logits make a large Fisher, and from 30 on
    # nothing new is learnt. Laplace says N_old / (2 N_new) for a mean loss; Continual World's policies want 1e4
    strength: float = 0.03
    decay: float = 1.0  # plain sum over stages; below 1 old stages fade (online EWC)
    probes: int = 1  # unbiased at any number; averaging over samples does more than averaging over probes
    samples: int | None = 256  # per stage: the diagonal of 256 samples is stable to a few per cent
    floor: float = 0.0  # least importance; Continual World clips at 1e-5


class Method(QuadraticPenalty):
    """Importance = diagonal Fisher."""

    name = "ewc"

    def __init__(self, options: Options) -> None:
        super().__init__(options.strength, options.decay)
        self.options = options

    def measure(self, ctx: Ctx) -> dict[str, Tensor]:
        chosen = subset(ctx.samples, self.options.samples, ctx.rng)
        values = fisher(ctx.learner, chosen, ctx.task.index, self.options.probes, ctx.rng)
        return {name: value.clamp(min=self.options.floor) for name, value in values.items()}
