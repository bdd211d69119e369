"""L2: every shared weight is pulled towards its value after the latest stage, all equally (Kirkpatrick 2017's control;
Continual World section 5). L += strength sum_j w (theta_j - theta*_j)^2 with w = number of finished stages.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vilco_app.continual.protocols import Ctx
from vilco_app.continual.quadratic import QuadraticPenalty


@dataclass(frozen=True)
class Options:
    """Defaults of L2."""

    # best on the network of 0.01, 0.1, 1 (docs/continual.md); a policy in Continual World wants 1e5
    strength: float = 0.1


class Method(QuadraticPenalty):
    """Importance one for every weight and stage."""

    name = "l2"

    def __init__(self, options: Options) -> None:
        super().__init__(options.strength)
        self.options = options

    def measure(self, ctx: Ctx) -> dict[str, Tensor]:
        return {name: torch.ones_like(p) for name, p in ctx.learner.shared_parameters().items()}
