"""`vilco bench learn --only sweep`: forgetting over noise and memory, on seeds nothing was chosen by, at equal step counts.

`vilco` concatenates its memory with a stage and `episodic` mixes it into every batch, so equal epochs are not equal work;
here every strategy takes the same number of steps with the same batch size.
"""

from __future__ import annotations

from typing import Any

from vilco_app.benchmarks.forgetting import Table, Trained, compare
from vilco_app.benchmarks.rows import row
from vilco_app.benchmarks.synthetic import SyntheticSettings

NOISE = (0.6, 1.0)
MEMORY = (0.02, 0.065)  # share of all training questions
SEEDS = (11, 12, 13)  # options were chosen on 0, 1, 2
STEPS = 50  # a stage: five epochs of 100 questions in batches of ten
REPLAY = ("reservoir", "vilco", "derpp", "episodic")
BOUNDS = ("naive", "joint")  # need no memory, so they are run once a noise


def sweep(progress: Any = None, workers: int = 2) -> list[dict[str, Any]]:
    """Rows of the contract: R@1 at IoU 0.5 after the last stage and BwF by noise, memory and strategy, the paired difference
    of `episodic` and the others with its 90 % interval, processor seconds of all stages."""
    rows: list[dict[str, Any]] = []
    trained = Trained(steps=STEPS)
    for noise in NOISE:
        settings = SyntheticSettings(noise=noise)
        bounds = compare(settings, BOUNDS, SEEDS, workers=workers, progress=progress, trained=trained)
        for name in BOUNDS:
            rows += _scores(bounds, name, f"noise {noise:g}, {name}")
        for share in MEMORY:
            table = compare(settings, REPLAY, SEEDS, share, workers, progress, trained)
            where = f"noise {noise:g}, memory {share:.1%}"
            for name in REPLAY:
                rows += _scores(table, name, f"{where}, {name}")
            for other in REPLAY[:-1]:
                for label, value in zip(("", ", low", ", high"), table.difference("episodic", other), strict=True):
                    rows.append(row(f"{where}, episodic - {other}{label}", 100 * value, "points"))
    return rows


def _scores(table: Table, name: str, label: str) -> list[dict[str, Any]]:
    seconds = sum(sum(r.seconds) for r in table.results[name]) / len(table.results[name])
    rows = [row(f"{label}: R@1", 100 * float(table.accs(name).mean()), "%")]
    if name != "joint":
        rows.append(row(f"{label}: BwF", 100 * float(table.bwfs(name).mean()), "points"))
    return [*rows, row(f"{label}: training", seconds, "processor s")]
