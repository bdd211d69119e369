"""Putting a snapshot back into a learner and a strategy to go on from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from vilco_app.continual import Strategy, make_strategy
from vilco_app.learning.directions import Directions
from vilco_app.learning.packing import load_state
from vilco_app.learning.snapshots import BASE, Snapshots
from vilco_app.learning.types import Fusion
from vilco_app.network.config import NetworkConfig
from vilco_app.network.learner import ViLCoLearner
from vilco_app.values import VilcoError


@dataclass
class Restored:
    """A learner and a strategy as a snapshot left them. spans: (video, start, end) of footage trained on so far.

    directions: what was taught, with the new stage (`learning.run` fills it in).
    """

    learner: ViLCoLearner
    strategy: Strategy
    stages: tuple[str, ...] = ()
    fusion: Fusion = field(default_factory=Fusion)
    spans: list[list[Any]] = field(default_factory=list)
    directions: Directions | None = None


def restore(snapshots: Snapshots, snapshot: str, profile: Any, strategy: str) -> Restored:
    """Raises VilcoError: another profile's snapshot, damaged files, unknown strategy.

    A strategy other than the snapshot's starts afresh, with what the old one's buffer kept.
    """
    card = snapshots.card(snapshot)
    method = make_strategy(strategy)
    if snapshot == BASE and not (snapshots.path(snapshot) / "model.safetensors").is_file():
        return Restored(ViLCoLearner(config_for(profile)), method)
    learner = load_learner(snapshots, snapshot, profile)
    state = load_state(snapshots.path(snapshot) / "buffer.safetensors")
    if card.get("strategy") == strategy:
        method.load_state_dict(state)
    else:
        old = make_strategy(str(card.get("strategy") or "naive"))
        if card.get("strategy"):
            old.load_state_dict(state)
        kept, mine = getattr(old, "buffer", None), getattr(method, "buffer", None)
        if kept is not None and mine is not None:
            mine.add(list(kept), torch.Generator().manual_seed(0), learner.encode)
    return Restored(
        learner, method, tuple(card.get("stages", ())), Fusion.from_json(card.get("fusion", {})),
        [list(s) for s in card.get("spans", ())],
    )  # fmt: skip


def load_learner(snapshots: Snapshots, snapshot: str, profile: Any) -> ViLCoLearner:
    """The network of a snapshot. Raises VilcoError "other-profile" when it was learnt with other encoders."""
    card = snapshots.card(snapshot)
    if card.get("profile") not in (profile.id, "any"):
        raise VilcoError(
            "other-profile", f"snapshot {snapshot} was learnt with profile {card.get('profile')}, not {profile.id}.",
            "Use a snapshot of this profile (vilco models), or go back to the base: vilco use base",
        )  # fmt: skip
    state = load_state(snapshots.path(snapshot) / "model.safetensors")
    learner = ViLCoLearner(NetworkConfig.from_json(state["config"]))
    learner.load_state_dict(state["learner"])
    return learner


def load_viewed(snapshots: Snapshots, snapshot: str, profile: Any) -> ViLCoLearner:
    """The network as its strategy wants it to answer (`Strategy.view`, entered for good). Most strategies change nothing."""
    learner = load_learner(snapshots, snapshot, profile)
    strategy = make_strategy(str(snapshots.card(snapshot).get("strategy") or "naive"))
    if strategy.views:
        strategy.load_state_dict(load_state(snapshots.path(snapshot) / "buffer.safetensors"))
        strategy.view(learner).__enter__()
    return learner


def config_for(profile: Any) -> NetworkConfig:
    """The default network for a profile's dimensions."""
    return NetworkConfig(profile.global_dim, profile.text_dim, len(profile.blocks.stops))
