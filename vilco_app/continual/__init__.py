"""Continual learning: what is trained (`Learner`), how it avoids forgetting (`Strategy`), and what it remembers (buffers).

`make_strategy(name, **options)`; `loop.fit` trains one stage; `matrix` has the metrics. Everything but names and metrics
needs torch, which is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vilco_app.continual.loop import FitResult, Plan, fit
    from vilco_app.continual.protocols import Batch, Learner, Output, Result, Sample, Strategy, Task
    from vilco_app.continual.strategies import make_strategy

STRATEGIES = (
    "naive", "joint", "ridge", "gdumb", "l2", "ewc", "mas", "si", "lwf", "vcl", "packnet", "agem", "reservoir",
    "perfect-memory", "derpp", "icarl", "bic", "vilco", "episodic",
)  # fmt: skip

__all__ = [
    "STRATEGIES", "Batch", "FitResult", "Learner", "Output", "Plan", "Result", "Sample", "Strategy", "Task", "fit",
    "make_strategy",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # lazy, so that `vilco --help` can list the strategies without importing torch
    if name not in __all__:
        raise AttributeError(f"module 'vilco_app.continual' has no attribute {name!r}")
    where = "strategies" if name == "make_strategy" else "loop" if name in ("Plan", "FitResult", "fit") else "protocols"
    return getattr(import_module(f"vilco_app.continual.{where}"), name)
