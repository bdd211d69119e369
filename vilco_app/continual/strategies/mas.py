"""Memory aware synapses (Aljundi et al. 2018, equations 2 and 4).

L += strength sum_j Omega_j (theta_j - theta*_j)^2, Omega = mean over samples of |d ||F(x)||^2 / d theta|: sensitivity of the
outputs, without labels. (The ViLCo release takes the gradient of the task loss of one batch.)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from vilco_app.continual.importance import output_norm, subset
from vilco_app.continual.protocols import Ctx
from vilco_app.continual.quadratic import QuadraticPenalty


@dataclass(frozen=True)
class Options:
    """Defaults of MAS."""

    # best on the network of 0.1, 3, 100 (docs/continual.md): .933; 100 learns nothing new, 0.1 forgets a little more
    strength: float = 3.0
    samples: int | None = 256  # as for EWC
    normalise: bool = True  # per output, else thousands of class logits drown two offsets


class Method(QuadraticPenalty):
    """Importance = sensitivity of the squared output norm."""

    name = "mas"

    def __init__(self, options: Options) -> None:
        super().__init__(options.strength)
        self.options = options

    def measure(self, ctx: Ctx) -> dict[str, Tensor]:
        chosen = subset(ctx.samples, self.options.samples, ctx.rng)
        return output_norm(ctx.learner, chosen, ctx.task.index, self.options.normalise)
