"""Ridge regression on frozen features, after RanPAC (McDonnell et al. 2023, equations 5 to 7).

h = relu(x R) with R fixed and random; G += h^T h, Q += h^T y; W = (G + lambda I)^-1 Q. Sums do not depend on order, so nothing
can be forgotten and the result of many stages equals that of one. Takes no gradient step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from vilco_app.continual.protocols import Ctx, HasRidge, Learner, Strategy
from vilco_app.values import VilcoError


@dataclass(frozen=True)
class Options:
    """Defaults of ridge."""

    width: int = 2000  # columns of R: solving takes about 0.3 s; 0: the features themselves
    ridge: float = 1e-2  # lambda as a share of the mean of G's diagonal, so that it fits any feature scale
    seed: int = 0  # of R; two runs that are to be added must share it


class Method(Strategy):
    """Accumulates sums in float64, solves when a view is asked for after a change."""

    name = "ridge"
    saved = ("gram", "cross")
    trains = False
    views = True

    def __init__(self, options: Options) -> None:
        self.options = options
        self.gram = torch.zeros(0, 0, dtype=torch.float64)
        self.cross = torch.zeros(0, 0, dtype=torch.float64)

    def before_task(self, ctx: Ctx) -> None:
        if not isinstance(ctx.learner, HasRidge):
            raise VilcoError("no-ridge", "this learner has no rows for ridge regression.", "Choose another strategy.")

    def lift(self, x: Tensor) -> Tensor:
        """x [n, D] -> h [n, M] float64, M = width (or D)."""
        x = x.detach().double().cpu()
        if not self.options.width:
            return x
        seeded = torch.Generator().manual_seed(self.options.seed)
        random = torch.randn(x.shape[1], self.options.width, generator=seeded, dtype=torch.float64)
        return torch.relu(x @ random / x.shape[1] ** 0.5)

    def after_task(self, ctx: Ctx) -> None:
        assert isinstance(ctx.learner, HasRidge)
        for sample in ctx.samples:
            x, y = ctx.learner.ridge_rows(sample)
            h, y = self.lift(x), y.detach().double().cpu()
            if not self.gram.numel():
                self.gram = torch.zeros(h.shape[1], h.shape[1], dtype=torch.float64)
                self.cross = torch.zeros(h.shape[1], y.shape[1], dtype=torch.float64)
            wider = y.shape[1] - self.cross.shape[1]
            self.cross = torch.nn.functional.pad(self.cross, (0, max(0, wider)))
            self.gram += h.T @ h
            self.cross[:, : y.shape[1]] += h.T @ y

    def solve(self) -> Tensor:
        """W [M, K] float64."""
        level = self.options.ridge * self.gram.diagonal().mean()
        return torch.linalg.solve(self.gram + level * torch.eye(len(self.gram), dtype=torch.float64), self.cross)

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        if not isinstance(learner, HasRidge) or not self.gram.numel():
            yield
            return
        weights, before = self.solve(), learner.ridge_view
        learner.ridge_view = lambda x: (self.lift(x) @ weights).to(x)
        try:
            yield
        finally:
            learner.ridge_view = before
