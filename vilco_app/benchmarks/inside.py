"""What goes on inside a run on the synthetic stages (`vilco bench learn --only inside`): plasticity, routing, the stability gap.

Per stage: effective rank and srank of the video side's features, dormant units, size of the weights, and for strategies with
prompt slots whether a question finds its own stage's. Inside stages, every few steps: scores of the earlier stages, which dip
and come back where only stage ends are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from vilco_app.benchmarks.forgetting import Run, Trained, Watch, hits, run
from vilco_app.benchmarks.rows import row
from vilco_app.benchmarks.synthetic import SyntheticSettings, SyntheticStage
from vilco_app.continual import matrix, measures
from vilco_app.continual.plan import StepRecord
from vilco_app.continual.weights import evaluating
from vilco_app.network.batch import collate
from vilco_app.network.learner import ViLCoLearner

NAMES = ("naive", "vilco", "episodic")
SEEDS = (11, 12, 13)  # nothing is chosen here
STEPS = 50  # a stage, as in the sweep
WORDING = 1.0  # norm of what another wording adds to a question's unit vector: cosine 0.7 to the taught one


class Inside(Watch):
    """Probes of `probe` held-out questions a stage: scored every `every` steps, and used for the features."""

    def __init__(self, probe: int = 20, every: int = 10, threshold: float = 0.5) -> None:
        self.probe, self.every, self.threshold = probe, every, threshold
        self.curves: list[list[float]] = []  # per stage, its scores since it was begun
        self.seen: list[np.ndarray] = []  # at each look, the scores of the stages begun by then
        self.stages: list[dict[str, float]] = []  # what was found after each stage
        self._before: list[float] = []  # scores of the old stages when this one began

    def during(self, learner: ViLCoLearner, stages: list[SyntheticStage], k: int, record: StepRecord) -> None:
        if record.step == 0:
            self._before = [c[-1] for c in self.curves]
            self.curves.append([])
        if (record.step + 1) % self.every == 0:
            self._look(learner, stages)

    def after(self, learner: ViLCoLearner, stages: list[SyntheticStage], k: int) -> None:
        self._look(learner, stages)  # what the strategy did at the stage's end counts
        looks = len(self.curves[-1])
        dips = [matrix.stability_gap(b, np.array(c[-looks:])) for b, c in zip(self._before, self.curves, strict=False)]
        probe = [s for stage in stages for s in stage.held[: self.probe]]
        self.stages.append({"stability gap": _mean(dips), **state(learner, probe), **routing(learner, stages[: k + 1])})

    def end(self) -> dict[str, float]:
        """Numbers of the whole run: anytime score, min-ACC and WC-ACC after the last stage (old stages since they were learnt)."""
        own = len(self.curves[-1])  # looks within a stage: an old stage's curve counts from the end of its own
        old = [np.array(c[own - 1 :]) for c in self.curves[:-1]]
        return {
            "anytime score": matrix.anytime(self.seen), "min-ACC": matrix.min_acc(old),
            "WC-ACC": matrix.wc_acc(self.curves[-1][-1], old),
        }  # fmt: skip

    def _look(self, learner: ViLCoLearner, stages: list[SyntheticStage]) -> None:
        with evaluating(learner.module):
            for curve, stage in zip(self.curves, stages, strict=False):
                curve.append(float(hits(learner, stage.held[: self.probe], self.threshold).mean()))
        self.seen.append(np.array([c[-1] for c in self.curves]))


@torch.inference_mode()
def state(learner: ViLCoLearner, samples: Sequence[Any]) -> dict[str, float]:
    """Plasticity of a network on a probe: ranks of the centred finest-level features, dormant units, size of the weights."""
    layers: dict[str, list[np.ndarray]] = {}
    features, hooks = [], []
    for name, module in learner.net.named_modules():
        if isinstance(module, nn.GELU):
            rows = layers.setdefault(name, [])
            hooks.append(
                module.register_forward_hook(lambda _, __, y, rows=rows: rows.append(y.flatten(0, -2).numpy()))
            )
    try:
        with evaluating(learner.module):
            for first in range(0, len(samples), 20):
                data = collate(samples[first : first + 20], learner.config, learner.categories, learner.device)
                pyramid = learner._see(data)[0][:, : data.cells]
                features.append(pyramid[data.mask[:, : data.cells]].numpy())
    finally:
        for hook in hooks:
            hook.remove()
    x = np.concatenate(features)
    x = x - x.mean(0)
    weights = [p.detach().numpy() for n, p in learner.net.named_parameters() if not n.startswith("prompts.")]
    return {
        "effective rank": measures.effective_rank(x), "srank": float(measures.feature_rank(x)),
        "dormant units": measures.dormant_share([np.concatenate(rows) for rows in layers.values() if rows]),
        "weight norm": measures.weight_norm(weights),
    }  # fmt: skip


@torch.inference_mode()
def routing(learner: ViLCoLearner, stages: Sequence[SyntheticStage]) -> dict[str, float]:
    """Of the held-out questions of these stages, asked as taught and in other words: share routed to their own stage's slots."""
    prompts = learner.net.prompts
    if not prompts.stage_of:
        return {}
    rng = torch.Generator().manual_seed(0)
    asked = torch.stack([s.features["sentence"] for stage in stages for s in stage.held])
    owner = [k for k, stage in enumerate(stages) for _ in stage.held]
    other = asked + WORDING * F.normalize(torch.randn(asked.shape, generator=rng), dim=-1)
    out = {}
    for name, sentences in (("as taught", asked), ("in other words", other)):
        weights = prompts.weights(sentences).numpy()
        out[f"routing accuracy, {name}"] = measures.routing_accuracy(weights, prompts.stage_of, owner)
    out["usage entropy"] = measures.usage_entropy(prompts.weights(asked).numpy())
    return out


def inside(progress: Any = None, names: Sequence[str] = NAMES, seeds: Sequence[int] = SEEDS) -> list[dict[str, Any]]:
    """Rows: means over the seeds, after the first and the last stage (gaps: the mean over stages 2 to the last)."""
    rows = []
    for i, name in enumerate(names):
        looks, runs = [], []
        for seed in seeds:
            look = Inside()
            runs.append(run(name, SyntheticSettings(), seed, trained=Trained(steps=STEPS), watch=look))
            looks.append(look)
        if progress is not None:
            progress(i + 1, len(names), name)
        rows += _rows(name, looks, runs)
    return rows


def _rows(name: str, looks: list[Inside], runs: list[Run]) -> list[dict[str, Any]]:
    rows = [
        row(
            f"{name}: plasticity slope of R@1 per stage",
            100 * _mean([matrix.plasticity_slope(r.matrix) for r in runs]),
            "points",
        )
    ]
    for key in looks[0].stages[-1]:
        unit, factor = ("%", 100.0) if key.startswith(("routing", "dormant", "stability")) else ("", 1.0)
        if key == "stability gap":
            gaps = [_mean([s[key] for s in look.stages[1:]]) for look in looks]
            rows.append(
                row(
                    f"{name}: stability gap, mean of stages 2 to {len(looks[0].stages)}", factor * _mean(gaps), "points"
                )
            )
            continue
        for where, k in (("first", 0), ("last", -1)):
            rows.append(
                row(f"{name}: {key}, after the {where} stage", factor * _mean([x.stages[k][key] for x in looks]), unit)
            )
    for key in looks[0].end():
        rows.append(row(f"{name}: {key}", 100 * _mean([x.end()[key] for x in looks]), "%"))
    return rows


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
