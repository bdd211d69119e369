"""Every strategy on the synthetic stages (`vilco bench learn --only strategies`), and the grid strengths were chosen on (`grid`).

Strengths are chosen on seeds 0, 1, 2 (`--only grid`, two stages), the table is measured on 11, 12, 13, on which nothing is chosen. All take
the same number of steps with batches of the same size; replay mixed in comes on top of it and shows in the seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vilco_app.benchmarks.forgetting import SHARE, Trained, hits, many, options_for, small_network
from vilco_app.benchmarks.rows import row
from vilco_app.benchmarks.synthetic import SyntheticSettings, synthetic_stages
from vilco_app.continual import STRATEGIES, Plan, Task, fit, make_strategy
from vilco_app.continual.intervals import over_seeds
from vilco_app.continual.measures import relative_cost
from vilco_app.network.learner import ViLCoLearner

CHOSEN_ON = (0, 1, 2)
SEEDS = (11, 12, 13)
STEPS = 50  # a stage, as in the sweep
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "ewc": {"strength": (0.03, 0.2, 1.0, 30.0, 1000.0)},
    "mas": {"strength": (0.1, 3.0, 100.0)},
    "si": {"strength": (1.0, 30.0, 1000.0)},
    "l2": {"strength": (0.01, 0.1, 1.0)},
    "lwf": {"strength": (1.0, 3.0, 10.0)},
    "icarl": {"strength": (0.1, 0.3, 1.0)},
    "vcl": {"strength": (0.001, 0.01, 0.1, 1.0)},
}


def grid(
    progress: Any = None, names: Sequence[str] = tuple(GRID), seeds: Sequence[int] = CHOSEN_ON
) -> list[dict[str, Any]]:
    """R@1 after two stages of every setting of `GRID`, the old stage's and the new one's: means of the development seeds."""
    rows = []
    for i, name in enumerate(names):
        found = np.mean([chosen_on(name, seed) for seed in seeds], 0)
        for value, (old, new) in zip(next(iter(GRID[name].values())), found, strict=True):
            label = f"{name}, {next(iter(GRID[name]))} {value:g}"
            rows.append(row(f"{label}: R@1, old and new stage", 50 * float(old + new), "%"))
            rows.append(row(f"{label}: R@1, old stage", 100 * float(old), "%"))
            rows.append(row(f"{label}: R@1, new stage", 100 * float(new), "%"))
        if progress is not None:
            progress(i + 1, len(names), name)
    return rows


def chosen_on(name: str, seed: int, settings: SyntheticSettings | None = None, steps: int = STEPS) -> np.ndarray:
    """[values, 2] R@1 on the first and the second stage after both, for each value of the grid.

    The first stage is the same for all values of these methods, so it is learnt once and taken up again.
    """
    settings = replace(settings or SyntheticSettings(stages=2), seed=seed)
    stages = synthetic_stages(settings)
    learner = ViLCoLearner(small_network(settings, seed))
    ((option, values),) = GRID[name].items()
    # the share of the whole benchmark's five stages
    memory = options_for(name, max(1, round(SHARE * settings.train * SyntheticSettings().stages)))
    plan = Plan(batch_size=10, lr=Trained().lr, seed=seed, min_steps=steps, max_steps=steps)
    strategy = make_strategy(name, **memory)
    learner.register(stages[0].train, 0)
    fit(learner, strategy, stages[0].train, Task(0, total=2), plan)
    learner.register(stages[1].train, 1)
    begun, kept, out = learner.state_dict(), strategy.state_dict(), []
    for value in values:
        learner.load_state_dict(begun)
        strategy = make_strategy(name, **{**memory, option: value})
        strategy.load_state_dict(kept)
        fit(learner, strategy, stages[1].train, Task(1, total=2), plan)
        with strategy.view(learner):
            out.append([hits(learner, stage.held, Trained().threshold).mean() for stage in stages])
    return np.array(out)


def strategies(
    progress: Any = None, workers: int = 2, names: Sequence[str] = STRATEGIES, settings: SyntheticSettings | None = None,
    seeds: Sequence[int] = SEEDS, trained: Trained | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One table of all strategies: R@1 after the last stage with its 90 % interval over seeds, BwF, FwT (GEM: one stage ahead
    minus untrained), processor seconds against fine-tuning's, bytes kept. PackNet twice: its guarantee is for known stages."""
    settings, trained = settings or SyntheticSettings(), trained or Trained(steps=STEPS)
    cases = [(n, k) for n in names for k in ((False, True) if n == "packnet" else (False,))]
    jobs = [
        {"name": n, "settings": settings, "seed": s, "trained": trained, "known": k} for n, k in cases for s in seeds
    ]
    runs = many(jobs, workers, progress)
    size = len(seeds)
    seconds = {c: sum(sum(r.seconds) for r in runs[i * size : (i + 1) * size]) / size for i, c in enumerate(cases)}
    rows = []
    for i, case in enumerate(cases):
        mine = runs[i * size : (i + 1) * size]
        label = case[0] + (", stage known" if case[1] else "")
        scores = over_seeds([100 * float(np.nanmean(r.matrix[-1])) for r in mine])
        for end, value in zip(("", ", low", ", high"), scores, strict=True):
            rows.append(row(f"{label}: R@1{end}", value, "%"))
        if case[0] != "joint":
            rows.append(row(f"{label}: BwF", 100 * float(np.mean([r.bwf for r in mine])), "points"))
            rows.append(row(f"{label}: FwT", 100 * float(np.mean([r.fwt for r in mine])), "points"))
        rows.append(row(f"{label}: training", seconds[case], "processor s"))
        if ("naive", False) in seconds:
            rows.append(row(f"{label}: training against naive", relative_cost(seconds, ("naive", False))[case], "x"))
        rows.append(row(f"{label}: kept between stages", mine[0].cost.bytes / 1e6, "MB"))
    return rows
