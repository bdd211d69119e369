"""How a stage is trained (`Plan`) and what one step said (`StepRecord`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch


@dataclass(frozen=True)
class Plan:
    """How one stage is trained."""

    epochs: int = 10  # passes over the training set; small stages converge within ten
    min_steps: int = 0  # more epochs until this many steps: a correction of one example needs more than ten steps
    max_steps: int | None = None  # stop earlier, for a stage that must fit a time budget
    batch_size: int = 16  # samples per step before replay is mixed in: larger is not faster per sample on 2 cores
    lr: float = 1e-3  # AdamW at transformer sizes of a few million parameters
    weight_decay: float = 0.05  # ViLCo's and ActionFormer's value; never applied to 1-D parameters
    clip: float | None = 1.0  # global gradient norm, as in ActionFormer
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    warmup: float = 0.05  # share of the steps in which the rate rises: shrinks the stability gap at a stage border
    schedule: Literal["cosine", "constant"] = "cosine"
    seed: int = 0

    def rate(self, step: int, steps: int) -> float:
        """Factor of lr at a step: linear warm-up, then cosine to zero (or constant)."""
        warm = int(self.warmup * steps)
        if step < warm:
            return (step + 1) / warm
        if self.schedule == "constant":
            return 1.0
        done = (step - warm) / max(1, steps - warm)
        return 0.5 * (1 + float(torch.cos(torch.tensor(torch.pi * done))))


@dataclass
class StepRecord:
    """Losses of one step as floats. new, replay: mean loss of the samples of that origin (None: none in the batch)."""

    step: int
    steps: int
    total: float
    new: float | None
    replay: float | None
    extra: dict[str, float] = field(default_factory=dict)
    grad_norm: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "steps": self.steps, "total": self.total, "new": self.new, "replay": self.replay,
                "grad_norm": self.grad_norm, **self.extra}  # fmt: skip


@dataclass
class FitResult:
    """done: the stage is finished (after_task ran). state: to resume from when it is not. losses: one record per step."""

    done: bool
    losses: list[StepRecord]
    state: dict[str, Any] | None = None
