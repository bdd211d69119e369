"""The ViLCo network: prompt memory, video pyramid, late fusion, heads. Everything here needs torch, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vilco_app.network.config import NetworkConfig
from vilco_app.network.grid import Grid, grid_of

if TYPE_CHECKING:
    from vilco_app.network.learner import ViLCoLearner
    from vilco_app.network.vilco import ViLCo

__all__ = ["Grid", "NetworkConfig", "ViLCo", "ViLCoLearner", "grid_of"]


def __getattr__(name: str) -> Any:
    # lazy, so that a zero-shot question does not import torch
    if name == "ViLCo":
        return import_module("vilco_app.network.vilco").ViLCo
    if name == "ViLCoLearner":
        return import_module("vilco_app.network.learner").ViLCoLearner
    raise AttributeError(f"module 'vilco_app.network' has no attribute {name!r}")
