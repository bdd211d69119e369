"""Can prompts carry a stage, and does it matter which one is chosen? (`vilco bench learn --only prompts`)

A base stage of many classes is learnt by the whole network; from then on everything is frozen but the prompts of the stage being
learnt, without replay. What is known of the later stages can then stand nowhere but in their prompts. The finished network
is asked again with prompts exchanged: each stage's slots holding those of another stage, or of another class of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vilco_app.benchmarks.forgetting import hits, small_network
from vilco_app.benchmarks.synthetic import SyntheticSettings, SyntheticStage, synthetic_stages
from vilco_app.continual import Plan, Task, fit
from vilco_app.continual.intervals import over_seeds
from vilco_app.continual.matrix import bwf_vilco
from vilco_app.continual.protocols import Ctx, Sample
from vilco_app.continual.strategies import vilco
from vilco_app.network.learner import ViLCoLearner

SEEDS = (11, 12, 13)  # rates and steps were chosen on 0
BASE, LATER = 4, 4  # stages of four classes: joined to one of sixteen, and learnt by prompts one after the other
STEPS, RATE = 120, 2e-3  # of the base
PROMPT_STEPS, PROMPT_RATE = 40, 0.03  # of a later stage; prompts alone want a larger rate, as L2P gives them
CASES: dict[str, dict[str, Any]] = {
    "own prompts that bend the question": {"prompts": "soft", "prompt_bend": 1.0},
    "own prompts as tokens only (the default)": {"prompts": "soft"},
    "one shared prompt that bends the question": {"prompts": "shared", "prompt_bend": 1.0},
}


class PromptsOnly(vilco.Method):
    """ViLCo's slots without its memory: nothing is replayed."""

    def training_set(self, samples: list[Sample], ctx: Ctx) -> list[Sample]:
        return samples

    def after_task(self, ctx: Ctx) -> None:
        ctx.learner.close_slots(ctx.task.index)  # type: ignore[attr-defined]


def stages_of(seed: int) -> list[SyntheticStage]:
    """The base stage and the later ones."""
    parts = synthetic_stages(SyntheticSettings(stages=BASE + LATER, seed=seed))
    train, held = ([s for part in parts[:BASE] for s in getattr(part, which)] for which in ("train", "held"))
    return [SyntheticStage("base", train, held[:: BASE // 2]), *parts[BASE:]]


def learnt(case: str, seed: int, steps: int = STEPS, prompt_steps: int = PROMPT_STEPS) -> dict[str, float]:
    """R@1 at IoU 0.5 by one case: of the later stages before and after, BwF, the base's, and with exchanged prompts."""
    stages = stages_of(seed)
    config = small_network(SyntheticSettings(), seed, **CASES[case])
    learner, strategy = ViLCoLearner(config), PromptsOnly(vilco.Options(memory=1))
    count = len(stages)
    scores, before = np.full((count, count), np.nan), 0.0
    for k, stage in enumerate(stages):
        learner.register(stage.train, k)
        first = k == 0
        for name, p in learner.net.named_parameters():
            p.requires_grad_((first and name != "prompts.keys") or name == "prompts.prompts")
        many, rate = (steps, RATE) if first else (prompt_steps, PROMPT_RATE)
        plan = Plan(
            batch_size=10, lr=rate, seed=seed, min_steps=many, max_steps=many, weight_decay=0.05 if first else 0.0
        )
        fit(learner, strategy, stage.train, Task(k, stage.name, count), plan)
        scores[k, : k + 1] = _scores(learner, stages[: k + 1])
        if first:
            before = float(np.mean(_scores(learner, stages[1:])))
    out = {
        "before": before, "after": float(np.mean(scores[-1, 1:])), "BwF": float(bwf_vilco(scores[1:, 1:])), "base": float(scores[-1, 0]),
    }  # fmt: skip
    return {**out, **_exchanged(learner, stages[1:])}


def _exchanged(learner: ViLCoLearner, stages: list[SyntheticStage]) -> dict[str, float]:
    """Later stages' scores when every slot of theirs holds the prompts of another one."""
    memory = learner.net.prompts
    owner = torch.tensor(memory.stage_of, dtype=torch.long)
    if not len(owner):
        return {}
    own, later = memory.prompts.detach().clone(), torch.nonzero(owner > 0)[:, 0]
    size = int((owner == 1).sum())
    by_stage = later.reshape(-1, size)
    out = {}
    for name, order in (("of another stage", by_stage.roll(1, 0)), ("of another class", by_stage.roll(1, 1))):
        with torch.no_grad():
            memory.prompts[later] = own[order.flatten()]
            out[name] = float(np.mean(_scores(learner, stages)))
            memory.prompts.copy_(own)
    return out


def _scores(learner: ViLCoLearner, stages: list[SyntheticStage]) -> list[float]:
    return [float(hits(learner, stage.held, 0.5).mean()) for stage in stages]


def prompts(progress: Any = None, seeds: tuple[int, ...] = SEEDS) -> list[dict[str, Any]]:
    """Rows: means over the seeds with 90 % bootstrap intervals over them."""
    rows = []
    for i, case in enumerate(CASES):
        found = [learnt(case, seed) for seed in seeds]
        if progress is not None:
            progress(i + 1, len(CASES), case)
        for key in found[0]:
            label = f"{case}: R@1 {key}" if key != "BwF" else f"{case}: BwF"
            mean, low, high = over_seeds([100 * f[key] for f in found])
            for end, value in (("", mean), (", low", low), (", high", high)):
                rows.append({"name": label + end, "value": value, "unit": "%", "target": None, "limit": None})
    return rows
