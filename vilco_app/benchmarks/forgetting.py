"""How much is kept over five stages, by strategy, on synthetic features (`vilco bench learn --only forgetting`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from vilco_app.benchmarks.synthetic import SyntheticSettings, SyntheticStage, synthetic_stages
from vilco_app.continual import Plan, Task, fit, make_strategy
from vilco_app.continual.matrix import acc, bwf_vilco, fwt_gem
from vilco_app.continual.plan import StepRecord
from vilco_app.continual.protocols import Cost, Sample, Strategy
from vilco_app.continual.strategies import options_of
from vilco_app.network.batch import Collated, collate
from vilco_app.network.config import NetworkConfig
from vilco_app.network.decode import candidates, iou_1d
from vilco_app.network.grid import points
from vilco_app.network.learner import ViLCoLearner
from vilco_app.network.pyramid import pool_levels

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
    """One strategy, one seed. matrix [T, T] of R@1 at the threshold on held-out queries (rows: after stage i; one stage ahead).

    untrained [T]: the same of the network before the first stage. cost: what the strategy holds and does beyond fine-tuning.
    """

    strategy: str
    seed: int
    matrix: np.ndarray
    untrained: np.ndarray
    cost: Cost = field(default_factory=Cost)
    seconds: list[float] = field(default_factory=list)
    hits: list[np.ndarray] = field(default_factory=list)  # after the last stage, per stage
    steps: list[int] = field(default_factory=list)  # taken in each stage

    @property
    def acc(self) -> float:
        return float(acc(self.matrix))

    @property
    def bwf(self) -> float:
        return float(bwf_vilco(self.matrix))

    @property
    def fwt(self) -> float:
        """GEM's: one stage ahead minus untrained; NaN for what is trained only once (joint)."""
        return float(fwt_gem(self.matrix, self.untrained))


class Watch:
    """Looks into a run while it goes on; this one sees nothing. k: the stage being learnt."""

    def during(self, learner: ViLCoLearner, stages: list[SyntheticStage], k: int, record: StepRecord) -> None:
        """After every step."""

    def after(self, learner: ViLCoLearner, stages: list[SyntheticStage], k: int) -> None:
        """When the stage is done."""


def small_network(settings: SyntheticSettings, seed: int, **changes: Any) -> NetworkConfig:
    """The shipped architecture, narrower and with fewer levels, so that CI can train it many times."""
    sizes = {"width": 48, "heads": 2, "levels": 4, "stem_blocks": 1, "window": 8, "prompt_length": 4, "seed": seed}
    return NetworkConfig(settings.video_dim, settings.text_dim, 0, **{**sizes, **changes})


def options_for(name: str, memory: int) -> dict[str, Any]:
    """The memory in samples, for strategies that have one."""
    return {"memory": memory} if "memory" in options_of(name) else {}


def run(
    name: str, settings: SyntheticSettings, seed: int, share: float = SHARE, trained: Trained | None = None,
    options: dict[str, Any] | None = None, network: dict[str, Any] | None = None, known: bool = False, watch: Watch | None = None,
) -> Run:  # fmt: skip
    """Learn all stages in order with one strategy and score every stage seen after each, and the next one.

    known: at scoring the strategy is told the stage of a question (PackNet's guarantee needs it). joint is trained once, on
    everything, at the end: the other rows of its matrix stay unset. watch: looks in between.
    """
    trained, watch = trained or Trained(), watch or Watch()
    stages = synthetic_stages(replace(settings, seed=seed))
    learner = ViLCoLearner(small_network(settings, seed, **(network or {})))
    memory = max(1, round(share * settings.train * settings.stages))
    joint = name == "joint"  # the ceiling takes no stages: plain training on all of them
    strategy = (
        make_strategy("naive") if joint else make_strategy(name, **{**options_for(name, memory), **(options or {})})
    )
    count = len(stages)
    steps = trained.steps and trained.steps * (count if joint else 1)
    plan = Plan(
        epochs=trained.epochs, batch_size=trained.batch_size, lr=trained.lr, seed=seed, min_steps=steps or 0, max_steps=steps
    )  # fmt: skip
    out = Run(name, seed, np.full((count, count), np.nan), np.full(count, np.nan))
    if joint:
        for k, stage in enumerate(stages):
            learner.register(stage.train, k)
        _fit(out, learner, strategy, [s for stage in stages for s in stage.train], Task(0, "joint", 1), plan)
        out.hits = [hits(learner, stage.held, trained.threshold) for stage in stages]
        out.matrix[-1] = [h.mean() for h in out.hits]
        return out
    for k, stage in enumerate(stages):
        learner.register(stage.train, k)
        if k == 0:
            out.untrained = np.array([hits(learner, s.held, trained.threshold).mean() for s in stages])
        look = partial(watch.during, learner, stages, k)
        _fit(out, learner, strategy, list(stage.train), Task(k, stage.name, count), plan, look)
        watch.after(learner, stages, k)
        scored = []
        for j, other in enumerate(stages[: k + 2]):
            with strategy.view(learner, j if known and j <= k else None):
                scored.append(hits(learner, other.held, trained.threshold))
        out.matrix[k, : len(scored)] = [h.mean() for h in scored]
        out.hits = scored[: k + 1]
    out.cost = strategy.cost()
    return out


def _fit(
    out: Run, learner: ViLCoLearner, strategy: Strategy, samples: list[Sample], task: Task, plan: Plan,
    look: Callable[[StepRecord], None] | None = None,
) -> None:  # fmt: skip
    began = time.process_time()
    out.steps.append(len(fit(learner, strategy, samples, task, plan, on_step=look).losses))
    out.seconds.append(time.process_time() - began)


@torch.inference_mode()
def hits(learner: ViLCoLearner, samples: Sequence[Sample], threshold: float) -> np.ndarray:
    """R@1 of each sample [n]: does the best window meet a true one with IoU >= threshold? Views of the learner count."""
    learner.net.eval()
    out = []
    for first in range(0, len(samples), 20):
        part = list(samples[first : first + 20])
        data = collate(part, learner.config, learner.categories, learner.device)
        logits, distance = _dense(learner, data, part)
        u, scale = points(data.cells, learner.config.levels)
        for i, s in enumerate(part):
            found, _ = candidates(torch.sigmoid(logits[i]).numpy(), distance[i].numpy(), u, scale, most=1, least=0.0)
            out.append(float(iou_1d(found, s.targets["windows"].numpy()).max() >= threshold))
    return np.array(out)


def _dense(learner: ViLCoLearner, data: Collated, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    """(logits [B, P] of what each sample asks for, distances [B, P, 2])."""
    net = learner.net
    if learner.ridge_view is not None:  # as NetworkGrounder answers: the cell most like the look, as long as it is
        look = F.normalize(learner.ridge_view(data.sentence).float(), dim=-1)
        video = torch.stack([s.features["video"].float() for s in samples]) - net.video_side.mean
        cosine = F.normalize(video, dim=-1) @ look[..., None]  # [B, T, 1]
        full = torch.ones(cosine.shape[:2], dtype=torch.bool)
        logits = 10.0 * pool_levels(cosine, full, learner.config.levels)[..., 0] - 5.0
        return logits.masked_fill(~data.mask, -20.0), torch.ones(*logits.shape, 2)
    pyramid, code, _ = learner._see(data)
    cells = net.anchors(pyramid, data.mask)
    logits = net.anchor.scale * (cells * net.anchor.texts(code.pooled)[:, None]).sum(-1) + net.anchor.bias
    if learner.class_view is not None and learner.categories:
        # a view needs all classes beside each other; a class that is not known yet keeps the plain logit
        every = learner.class_view(learner._class_logits(cells), cells)
        mine = every.gather(-1, data.category.clamp_min(0)[:, None, None].expand(-1, every.shape[1], 1))[..., 0]
        logits = torch.where((data.category >= 0)[:, None], mine, logits)
    return logits.masked_fill(~data.mask, -20.0), net.boundaries(pyramid, data.mask)


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
    settings = settings or SyntheticSettings()
    todo = [(n, s) for s in (range(seeds) if isinstance(seeds, int) else seeds) for n in names]
    jobs = [{"name": n, "settings": settings, "seed": s, "share": share, "trained": trained} for n, s in todo]
    results: dict[str, list[Run]] = {n: [] for n in names}
    for (name, _), done in zip(todo, many(jobs, workers, progress), strict=True):
        results[name].append(done)
    return Table(settings, share, results)


def many(jobs: Sequence[dict[str, Any]], workers: int = 2, progress: Any = None) -> list[Run]:
    """`run(**job)` of every job, in order, one thread each, in `workers` processes (1: in this one)."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    out: list[Run] = []

    def take(found: Run) -> None:
        out.append(found)
        if progress is not None:
            progress(len(out), len(jobs), f"{found.strategy}, seed {found.seed}")

    if workers == 1:
        threads = torch.get_num_threads()
        _one_thread()
        try:
            for job in jobs:
                take(run(**job))
        finally:
            torch.set_num_threads(threads)
        return out
    with ProcessPoolExecutor(workers, get_context("spawn"), _one_thread) as pool:
        for future in [pool.submit(run, **job) for job in jobs]:
            take(future.result())
    return out


def _one_thread() -> None:
    torch.set_num_threads(1)
