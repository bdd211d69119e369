"""What the app answers with: the active snapshot's network and fusion weights, loaded only when they count."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.answering.calibrate import Doubt
from vilco_app.learning.snapshots import BASE, Snapshots
from vilco_app.learning.types import Fusion

if TYPE_CHECKING:
    from vilco_app.answering.grounding import Grounder
    from vilco_app.values import Kind


@dataclass(frozen=True)
class Serving:
    """Arguments of `Answerer`: network (None: zero-shot alone), weights by query kind, snapshot id, doubts by query kind."""

    network: Grounder | None = None
    weights: dict[Kind, float] = field(default_factory=dict)
    snapshot: str = BASE
    doubts: dict[Kind, Doubt] = field(default_factory=dict)


def serving(home: Path, profile: Any) -> Serving:
    """The active snapshot as the answering floor wants it. torch is imported only when a weight is above 0 or a doubt is held.

    Raises VilcoError when the snapshot belongs to another profile or is damaged.
    """
    snapshots = Snapshots(home)
    active = snapshots.active()
    card = snapshots.card(active)
    fusion = Fusion.from_json(card.get("fusion", {}))
    weights: dict[Kind, float] = {"text": fusion.nlq, "moment": fusion.mq, "visual": fusion.vq}
    trained = (snapshots.path(active) / "model.safetensors").is_file() and card.get("profile") == profile.id
    kinds: dict[str, Kind] = {"nlq": "text", "mq": "moment"}
    doubts = {kinds[family]: Doubt(*fitted) for family, fitted in fusion.doubts.items() if family in kinds}
    if not trained or (max(fusion.nlq, fusion.mq) <= 0 and not doubts):
        return Serving(None, {}, active)
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.learning.restoring import load_viewed

    return Serving(NetworkGrounder(load_viewed(snapshots, active, profile), profile.blocks), weights, active, doubts)
