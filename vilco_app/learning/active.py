"""What the app answers with: the active snapshot's network and fusion weights, loaded only when they count."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.answering.calibrate import Doubt
from vilco_app.learning.snapshots import BASE, Snapshots
from vilco_app.learning.types import Fusion

if TYPE_CHECKING:
    import numpy as np

    from vilco_app.answering.grounding import Grounder
    from vilco_app.answering.matching import PictureJudge
    from vilco_app.encoders.base import TextVectors
    from vilco_app.learning.directions import Directions
    from vilco_app.values import Kind


@dataclass(frozen=True)
class Bend:
    """What `answering.questions.Bender` asks for: taught directions with their (strength, nearness) by query kind."""

    directions: Directions
    choices: dict[Kind, tuple[float, float]]

    def __post_init__(self) -> None:
        """What is known is worked out here (512 taught questions: 60 ms), not while the first question waits."""
        for _, nearness in self.choices.values():
            self.directions.level(nearness)

    def __call__(self, kind: Kind, vectors: TextVectors, sought: np.ndarray) -> tuple[TextVectors, dict[str, float]]:
        if kind not in self.choices:
            return vectors, {}
        return self.directions.bend(vectors, sought, *self.choices[kind])

    def look(self, number: int) -> np.ndarray:
        """One of the taught directions [Dg], by any number."""
        return self.directions.entries[number % len(self.directions)].scene


@dataclass(frozen=True)
class Serving:
    """Arguments of `Answerer`: network (None: zero-shot alone), weights by query kind, snapshot id, doubts by query kind, the
    network's picture head where it counts, taught directions where they do."""

    network: Grounder | None = None
    weights: dict[Kind, float] = field(default_factory=dict)
    snapshot: str = BASE
    doubts: dict[Kind, Doubt] = field(default_factory=dict)
    judge: PictureJudge | None = None
    bend: Bend | None = None


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
    words = max(fusion.nlq, fusion.mq) > 0 or bool(doubts)
    bend = None
    if fusion.taught and card.get("profile") == profile.id:
        directions = snapshots.directions(active, profile.blocks)
        if directions is not None and len(directions):
            bend = Bend(
                directions, {kinds[family]: choice for family, choice in fusion.taught.items() if family in kinds}
            )
    pictures = max(fusion.vq, fusion.vq_boxes) > 0
    if not trained or not (words or pictures):
        return Serving(None, {}, active, bend=bend)
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.learning.picture_judge import HeadJudge
    from vilco_app.learning.restoring import load_viewed

    learner = load_viewed(snapshots, active, profile)
    network = NetworkGrounder(learner, profile.blocks) if words else None
    return Serving(
        network, weights, active, doubts, HeadJudge(learner, fusion.vq, fusion.vq_boxes) if pictures else None, bend
    )
