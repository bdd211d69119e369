"""Training a stage through continual.loop, with work kept on disk so that a stopped or killed run goes on the same way."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vilco_app.continual import Plan, Task, fit
from vilco_app.continual.loop import StepRecord
from vilco_app.learning.packing import load_state, save_state
from vilco_app.learning.presets import Preset
from vilco_app.learning.restoring import Restored
from vilco_app.learning.types import Progress, Stopped
from vilco_app.values import VilcoError

CHECKPOINT = 20  # steps between checkpoints: at most some seconds of work are repeated after a kill


class Work:
    """Where unfinished training of a named job lies; nothing is kept without a name."""

    def __init__(self, folder: Path, job: str | None) -> None:
        self.folder = folder / job if job else None

    def read(self) -> Any | None:
        if self.folder is None or not (self.folder / "checkpoint.safetensors").is_file():
            return None
        try:
            return load_state(self.folder / "checkpoint.safetensors")
        except VilcoError:
            return None  # damaged: start over

    def write(self, state: Any) -> None:
        if self.folder is not None:
            save_state(state, self.folder / "checkpoint.safetensors")

    def clear(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Fitted:
    """Loss records of all steps of the stage, those before an interruption included."""

    records: list[dict[str, Any]] = field(default_factory=list)

    def curve(self, points: int = 60) -> list[dict[str, float]]:
        """About `points` records, evenly chosen, for the card and the page."""
        step = max(1, len(self.records) // points)
        return [{k: round(float(v), 5) for k, v in r.items() if v is not None} for r in self.records[::step]]


def fit_stage(
    start: Restored, samples: Sequence[Any], narrations: Sequence[Any], name: str, preset: Preset, work: Work,
    say: Progress, should_stop: Callable[[], bool] | None = None, seed: int = 0,
) -> Fitted:  # fmt: skip
    """Train start.learner with start.strategy on the samples. Raises `Stopped` when asked to stop (work is kept)."""
    learner, index = start.learner, len(start.stages)
    learner.register(samples, index)
    plan = Plan(
        epochs=preset.epochs, min_steps=preset.min_steps, max_steps=preset.max_steps, batch_size=preset.batch_size,
        lr=preset.lr, weight_decay=preset.weight_decay, seed=seed,
    )  # fmt: skip
    kept = work.read()
    fitted = Fitted(list(kept["records"]) if kept else [])

    def on_step(record: StepRecord) -> None:
        fitted.records.append(record.to_json())
        parts = [f"{k} {v:.3f}" for k, v in (("new", record.new), ("replay", record.replay)) if v is not None]
        parts += [f"{k} {v:.3f}" for k, v in record.extra.items()]
        say(record.step + 1, record.steps, f"learning {name}: loss " + ", ".join(parts))

    def checkpoint(state: dict[str, Any]) -> None:
        work.write({"loop": state, "records": fitted.records})

    result = fit(
        learner, start.strategy, list(samples), Task(index, name), plan, list(narrations),
        resume=kept["loop"] if kept else None, on_step=on_step, should_stop=should_stop,
        checkpoint=checkpoint if work.folder is not None else None, checkpoint_every=CHECKPOINT,
    )  # fmt: skip
    if not result.done:
        checkpoint(result.state or {})
        raise Stopped
    learner.net.eval()
    return fitted


def loss_summary(fitted: Fitted) -> dict[str, float]:
    """Mean of each loss part over the last tenth of the steps (at least one)."""
    tail = fitted.records[-max(1, len(fitted.records) // 10) :] if fitted.records else []
    out: dict[str, float] = {}
    for name in sorted({k for r in tail for k in r} - {"step", "steps"}):
        values = [float(r[name]) for r in tail if r.get(name) is not None]
        if values:
            out[name] = sum(values) / len(values)
    return out
