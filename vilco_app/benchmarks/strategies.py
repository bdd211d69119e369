"""Every strategy on the synthetic stages (`vilco bench learn --only strategies`), and the grid strengths were chosen on (`grid`).

Strengths are chosen on seeds 0, 1, 2 (three stages of 30 steps), the table is measured on 11, 12, 13, on which nothing is chosen. All take
the same number of steps with batches of the same size; replay mixed in comes on top of it and shows in the seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from vilco_app.benchmarks.forgetting import Trained, many
from vilco_app.benchmarks.synthetic import SyntheticSettings
from vilco_app.continual import STRATEGIES
from vilco_app.continual.intervals import over_seeds
from vilco_app.continual.measures import relative_cost

CHOSEN_ON = (0, 1, 2)
SEEDS = (11, 12, 13)
STEPS = 50  # a stage, as in the sweep
GRID_STAGES, GRID_STEPS = 3, 30  # the grid is smaller, so that choosing costs no more than measuring
GRID: dict[str, dict[str, tuple[float, ...]]] = {
    "ewc": {"strength": (1.0, 30.0, 1000.0)},
    "si": {"strength": (1.0, 30.0, 1000.0)},
    "mas": {"strength": (0.1, 3.0, 100.0)},
    "l2": {"strength": (0.01, 0.1, 1.0)},
    "lwf": {"strength": (1.0, 3.0, 10.0)},
    "icarl": {"strength": (0.1, 0.3, 1.0)},
}


def grid(progress: Any = None, workers: int = 2, names: Sequence[str] = tuple(GRID)) -> list[dict[str, Any]]:
    """Final R@1 and BwF, means of the development seeds, of every setting of `GRID`."""
    rows = []
    settings, trained = SyntheticSettings(stages=GRID_STAGES), Trained(steps=GRID_STEPS)
    for name in names:
        for values in product(*GRID[name].values()):
            options = dict(zip(GRID[name], values, strict=True))
            jobs = [
                {"name": name, "settings": settings, "seed": s, "trained": trained, "options": options}
                for s in CHOSEN_ON
            ]
            runs = many(jobs, workers, progress)
            label = f"{name}, " + ", ".join(f"{k} {v:g}" for k, v in options.items())
            rows.append(_row(f"{label}: R@1", 100 * float(np.mean([r.acc for r in runs])), "%"))
            rows.append(_row(f"{label}: BwF", 100 * float(np.mean([r.bwf for r in runs])), "points"))
    return rows


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
            rows.append(_row(f"{label}: R@1{end}", value, "%"))
        if case[0] != "joint":
            rows.append(_row(f"{label}: BwF", 100 * float(np.mean([r.bwf for r in mine])), "points"))
            rows.append(_row(f"{label}: FwT", 100 * float(np.mean([r.fwt for r in mine])), "points"))
        rows.append(_row(f"{label}: training", seconds[case], "processor s"))
        if ("naive", False) in seconds:
            rows.append(_row(f"{label}: training against naive", relative_cost(seconds, ("naive", False))[case], "x"))
        rows.append(_row(f"{label}: kept between stages", mine[0].cost.bytes / 1e6, "MB"))
    return rows


def _row(name: str, value: float | None, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": None, "limit": None}
