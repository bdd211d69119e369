"""How much is kept over five stages, by strategy, on synthetic features (`vilco bench learn --only forgetting`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from vilco_app.benchmarks.synthetic import SyntheticSettings, SyntheticStage, synthetic_stages
from vilco_app.continual import Plan, Task, fit, make_strategy
from vilco_app.continual.matrix import acc, bwf_vilco
from vilco_app.continual.protocols import Sample
from vilco_app.network.batch import collate
from vilco_app.network.config import NetworkConfig
from vilco_app.network.decode import candidates, iou_1d
from vilco_app.network.grid import points
from vilco_app.network.learner import ViLCoLearner

STRATEGIES = ("naive", "reservoir", "vilco", "episodic", "joint")
SHARE = 0.065  # memory as a share of all training queries: 1010 of 15 511, the paper's


@dataclass(frozen=True)
class Trained:
    """The training of one stage, the same for every strategy."""

    epochs: int = 5
    batch_size: int = 10
    lr: float = 2e-3  # the network below is a tenth of the shipped one
    threshold: float = 0.5  # IoU of a hit
    steps: int | None = None  # exactly so many steps a stage (joint: on everything); None: what the epochs give


@dataclass
class Run:
    """One strategy, one seed. matrix [T, T] of R@1 at the threshold on held-out queries (rows: after stage i)."""

    strategy: str
    seed: int
    matrix: np.ndarray
    seconds: list[float] = field(default_factory=list)
    hits: list[np.ndarray] = field(default_factory=list)  # after the last stage, per stage
    steps: list[int] = field(default_factory=list)  # taken in each stage

    @property
    def acc(self) -> float:
        return float(acc(self.matrix))

    @property
    def bwf(self) -> float:
        return float(bwf_vilco(self.matrix))


def small_network(settings: SyntheticSettings, seed: int, **changes: Any) -> NetworkConfig:
    """The shipped architecture, narrower and with fewer levels, so that CI can train it many times."""
    sizes = {"width": 48, "heads": 2, "levels": 4, "stem_blocks": 1, "window": 8, "prompt_length": 4, "seed": seed}
    return NetworkConfig(settings.video_dim, settings.text_dim, 0, **{**sizes, **changes})


def options_for(name: str, memory: int) -> dict[str, Any]:
    return {"memory": memory} if name not in ("naive", "joint", "l2", "ewc", "mas", "si", "lwf") else {}


def run(
    name: str, settings: SyntheticSettings, seed: int, share: float = SHARE, trained: Trained | None = None,
    options: dict[str, Any] | None = None, network: dict[str, Any] | None = None,
) -> Run:  # fmt: skip
    """Learn all stages in order with one strategy and score every stage seen after each.

    joint is trained once, on everything, at the end: the other rows of its matrix stay unset.
    """
    trained = trained or Trained()
    stages = synthetic_stages(replace(settings, seed=seed))
    learner = ViLCoLearner(small_network(settings, seed, **(network or {})))
    memory = max(1, round(share * settings.train * settings.stages))
    strategy = make_strategy(name, **{**options_for(name, memory), **(options or {})})
    out = Run(name, seed, np.full((len(stages), len(stages)), np.nan))
    steps = trained.steps and trained.steps * (len(stages) if name == "joint" else 1)
    plan = Plan(
        epochs=trained.epochs, batch_size=trained.batch_size, lr=trained.lr, seed=seed, min_steps=steps or 0, max_steps=steps
    )  # fmt: skip
    if name == "joint":
        everything = [s for stage in stages for s in stage.train]
        for k, stage in enumerate(stages):
            learner.register(stage.train, k)
        began = time.process_time()
        out.steps.append(len(fit(learner, make_strategy("naive"), everything, Task(0, "joint", 1), plan).losses))
        out.seconds.append(time.process_time() - began)
        _score(out, learner, stages, len(stages) - 1, trained)
        return out
    for k, stage in enumerate(stages):
        learner.register(stage.train, k)
        began = time.process_time()
        out.steps.append(len(fit(learner, strategy, list(stage.train), Task(k, stage.name, len(stages)), plan).losses))
        out.seconds.append(time.process_time() - began)
        with strategy.view(learner):
            _score(out, learner, stages, k, trained)
    return out


def _score(out: Run, learner: ViLCoLearner, stages: list[SyntheticStage], row: int, trained: Trained) -> None:
    out.hits = [hits(learner, stage.held, trained.threshold) for stage in stages[: row + 1]]
    out.matrix[row, : row + 1] = [h.mean() for h in out.hits]


@torch.inference_mode()
def hits(learner: ViLCoLearner, samples: Sequence[Sample], threshold: float) -> np.ndarray:
    """R@1 of each sample [n]: does the best window meet a true one with IoU >= threshold?"""
    learner.net.eval()
    out = []
    for first in range(0, len(samples), 20):
        part = list(samples[first : first + 20])
        data = collate(part, learner.config, learner.categories, learner.device)
        pyramid, code, _ = learner._see(data)
        cells = learner.net.anchors(pyramid, data.mask)
        texts = learner.net.anchor.texts(code.pooled)
        logits = learner.net.anchor.scale * (cells * texts[:, None]).sum(-1) + learner.net.anchor.bias
        logits = logits.masked_fill(~data.mask, -20.0)
        distance = learner.net.boundaries(pyramid, data.mask)
        u, scale = points(data.cells, learner.config.levels)
        for i, s in enumerate(part):
            found, _ = candidates(torch.sigmoid(logits[i]).numpy(), distance[i].numpy(), u, scale, most=1, least=0.0)
            out.append(float(iou_1d(found, s.targets["windows"].numpy()).max() >= threshold))
    return np.array(out)


@dataclass
class Table:
    """All runs of the benchmark: results[strategy] = one Run per seed."""

    settings: SyntheticSettings
    share: float
    results: dict[str, list[Run]]

    def accs(self, name: str) -> np.ndarray:
        """Average final score of each seed [S]; joint: its one row."""
        if name == "joint":
            return np.array([float(np.nanmean(r.matrix[-1])) for r in self.results[name]])
        return np.array([r.acc for r in self.results[name]])

    def bwfs(self, name: str) -> np.ndarray:
        return np.array([r.bwf for r in self.results[name]])

    def kept(self, name: str) -> float:
        """Mean over seeds of the final score as a share of joint training's on the same data."""
        return float((self.accs(name) / self.accs("joint")).mean())

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """Mean and 90 % bootstrap interval of one - other on the same held-out queries, all seeds pooled."""
        gaps = np.concatenate(
            [
                np.concatenate(a.hits) - np.concatenate(b.hits)
                for a, b in zip(self.results[one], self.results[other], strict=True)
            ]
        )
        rng = np.random.default_rng(0)
        means = gaps[rng.integers(0, len(gaps), (2000, len(gaps)))].mean(1)
        return float(gaps.mean()), float(np.quantile(means, 0.05)), float(np.quantile(means, 0.95))


def compare(
    settings: SyntheticSettings | None = None, names: Sequence[str] = STRATEGIES, seeds: int | Sequence[int] = 3,
    share: float = SHARE, workers: int = 2, progress: Any = None, trained: Trained | None = None,
) -> Table:  # fmt: skip
    """Run every strategy on every seed (a count: 0, 1, ...), `workers` processes of one thread each."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    settings = settings or SyntheticSettings()
    todo = [(n, s) for s in (range(seeds) if isinstance(seeds, int) else seeds) for n in names]
    results: dict[str, list[Run]] = {n: [] for n in names}
    with ProcessPoolExecutor(workers, get_context("spawn"), _one_thread) as pool:
        jobs = [pool.submit(run, n, settings, s, share, trained) for n, s in todo]
        for k, ((name, seed), job) in enumerate(zip(todo, jobs, strict=True)):
            results[name].append(job.result())
            if progress is not None:
                progress(k + 1, len(todo), f"{name}, seed {seed}")
    return Table(settings, share, results)


def _one_thread() -> None:
    torch.set_num_threads(1)
