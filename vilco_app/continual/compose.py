"""Several strategies at once, hooks in list order: replay with a penalty, a mask with replay."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from vilco_app.continual.protocols import Batch, Cost, Ctx, Learner, Result, Sample, Stage, Strategy
from vilco_app.values import VilcoError


class Compose(Strategy):
    """Gradient masks intersect, loss terms of one name add up, learning-rate factors multiply.

    Raises VilcoError when two members change the view of the model: nobody could say which one answers.
    """

    name = "compose"

    def __init__(self, members: Sequence[Strategy]) -> None:
        viewing = [m.name for m in members if m.views]
        if len(viewing) > 1 or len({m.name for m in members}) < len(members):
            raise VilcoError(
                "strategies-clash", f"{' and '.join(viewing or [m.name for m in members])} cannot be used together.",
                "Keep one of them.",
            )  # fmt: skip
        self.members = list(members)
        self.views = bool(viewing)
        self.rehearses = any(m.rehearses for m in members)
        self.trains = any(m.trains for m in members)

    def before_task(self, ctx: Ctx) -> None:
        for m in self.members:
            m.before_task(ctx)

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        for m in self.members:
            samples = m.training_set(samples, ctx)
        return samples

    def batch_size(self, size: int, ctx: Ctx) -> int:
        return min(m.batch_size(size, ctx) for m in self.members)

    def lr_scale(self, name: str, ctx: Ctx) -> float:
        if not self.rehearses and name not in ctx.trained():
            return 0.0
        scale = 1.0
        for m in self.members:
            scale *= m.lr_scale(name, ctx) if name in ctx.trained() or m.rehearses else 1.0
        return scale

    def extra_parameters(self, ctx: Ctx) -> dict[str, nn.Parameter]:
        return {f"{m.name}.{k}": v for m in self.members for k, v in m.extra_parameters(ctx).items()}

    def compose_batch(self, batch: Batch, ctx: Ctx) -> Batch:
        for m in self.members:
            batch = m.compose_batch(batch, ctx)
        return batch

    def penalty(self, result: Result, ctx: Ctx) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        for m in self.members:
            for key, value in m.penalty(result, ctx).items():
                terms[key] = terms[key] + value if key in terms else value
        return terms

    def after_backward(self, stage: Stage, ctx: Ctx) -> None:
        for m in self.members:
            m.after_backward(stage, ctx)

    def after_step(self, ctx: Ctx) -> None:
        for m in self.members:
            m.after_step(ctx)

    def after_task(self, ctx: Ctx) -> None:
        for m in self.members:
            m.after_task(ctx)

    @contextmanager
    def view(self, learner: Learner, task: int | None = None) -> Iterator[None]:
        with ExitStack() as stack:
            for m in self.members:
                stack.enter_context(m.view(learner, task))
            yield

    def forget(self, video: str, start: float, end: float) -> int:
        return sum(m.forget(video, start, end) for m in self.members)

    def supersede(self, ids: Collection[str]) -> int:
        return sum(m.supersede(ids) for m in self.members)

    def cost(self) -> Cost:
        total = Cost()
        for m in self.members:
            total = total + m.cost()
        return total

    def state_dict(self) -> dict[str, Any]:
        return {m.name: m.state_dict() for m in self.members}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for m in self.members:
            m.load_state_dict(state[m.name])
