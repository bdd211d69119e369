"""What the learning doors return. Each `.to_json()` is the contract's object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vilco_app.values import SCHEMA, VilcoError

Progress = Callable[[int, int, str], None]


class Stopped(VilcoError):
    """Learning was asked to stop; what was done is kept and the same call goes on from there."""

    def __init__(self) -> None:
        super().__init__(
            "stopped", "learning was stopped; nothing is lost.", "Resume the job, or learn the stage again."
        )


@dataclass(frozen=True)
class Fusion:
    """Weight of the network against the zero-shot answer per family, in [0, 1], and why (a sentence per family).

    doubts: by family, (slope, level) of `answering.calibrate.Doubt`, where taught absences may lower the confidence.
    taught: by family, (strength, nearness) of `directions.Directions.bend`, where taught directions count. vq_boxes: the picture
    head's weight in where in a frame a thing is; vq: in which frames show it.
    """

    nlq: float = 0.0
    mq: float = 0.0
    vq: float = 0.0
    reasons: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, tuple[float, float]] = field(default_factory=dict)
    taught: dict[str, tuple[float, float]] = field(default_factory=dict)
    vq_boxes: float = 0.0

    def to_json(self) -> dict[str, Any]:
        doubts = {k: list(v) for k, v in self.doubts.items()}
        taught = {k: list(v) for k, v in self.taught.items()}
        return {
            "nlq": self.nlq, "mq": self.mq, "vq": self.vq, "reasons": self.reasons, "doubts": doubts, "taught": taught,
            "vq_boxes": self.vq_boxes,
        }  # fmt: skip

    @staticmethod
    def from_json(data: dict[str, Any]) -> Fusion:
        return Fusion(
            float(data.get("nlq", 0)), float(data.get("mq", 0)), float(data.get("vq", 0)), dict(data.get("reasons", {})),
            {k: (float(v[0]), float(v[1])) for k, v in data.get("doubts", {}).items()},
            {k: (float(v[0]), float(v[1])) for k, v in data.get("taught", {}).items()}, float(data.get("vq_boxes", 0)),
        )  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """The score matrix: values[i][j] = metric on the held-out part of stages[j] after learning stages[i]; None = unset.

    hits[i][j]: the per-query scores the value is the mean of, in the order of queries[j] (example ids).
    """

    metric: str = "R@1@0.3"
    stages: tuple[str, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    hits: tuple[tuple[tuple[float, ...], ...], ...] = ()
    queries: tuple[tuple[str, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        values = [[None if v is None else round(v, 4) for v in row] for row in self.values]
        return {"metric": self.metric, "stages": list(self.stages), "values": values}

    def full_json(self) -> dict[str, Any]:
        return {
            **self.to_json(),
            "values": [list(row) for row in self.values],
            "hits": [[list(h) for h in row] for row in self.hits],
            "queries": [list(q) for q in self.queries],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Matrix:
        return Matrix(
            data.get("metric", "R@1@0.3"), tuple(data.get("stages", ())),
            tuple(tuple(row) for row in data.get("values", ())),
            tuple(tuple(tuple(h) for h in row) for row in data.get("hits", ())),
            tuple(tuple(q) for q in data.get("queries", ())),
        )  # fmt: skip


@dataclass(frozen=True)
class LearnReport:
    """What learning one stage did. losses: mean of each part over the last epoch; seconds: wall clock, training alone in
    `train_seconds`, held-out checks in `evaluate_seconds`."""

    snapshot: str
    parent: str
    stage: str
    strategy: str
    losses: dict[str, float]
    seconds: float
    matrix: Matrix
    fusion: Fusion
    train_seconds: float = 0.0
    evaluate_seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "snapshot": self.snapshot, "parent": self.parent, "stage": self.stage,
            "strategy": self.strategy, "losses": {k: round(v, 5) for k, v in self.losses.items()},
            "seconds": round(self.seconds, 2), "matrix": self.matrix.to_json(), "fusion": self.fusion.to_json(),
            "train_seconds": round(self.train_seconds, 2), "evaluate_seconds": round(self.evaluate_seconds, 2),
            "warnings": list(self.warnings),
        }  # fmt: skip

    def full_json(self) -> dict[str, Any]:
        """to_json with the per-query hits of the matrix: what a child process hands back."""
        return {**self.to_json(), "matrix": self.matrix.full_json()}

    @staticmethod
    def from_json(data: dict[str, Any]) -> LearnReport:
        return LearnReport(
            data["snapshot"], data["parent"], data["stage"], data["strategy"], data["losses"], data["seconds"],
            Matrix.from_json(data["matrix"]), Fusion.from_json(data["fusion"]), data["train_seconds"],
            data["evaluate_seconds"], tuple(data["warnings"]),
        )  # fmt: skip


@dataclass(frozen=True)
class SnapshotInfo:
    """One row of `models`. marked: a sentence when the snapshot was trained on footage that is forgotten since."""

    id: str
    parent: str | None
    stages: tuple[str, ...]
    profile: str
    strategy: str | None
    created: str
    fusion: Fusion = field(default_factory=Fusion)
    marked: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "parent": self.parent, "stages": list(self.stages), "profile": self.profile,
            "strategy": self.strategy, "created": self.created, "fusion": self.fusion.to_json(),
            "marked": self.marked,
        }  # fmt: skip


@dataclass(frozen=True)
class ModelList:
    active: str
    snapshots: tuple[SnapshotInfo, ...]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "active": self.active, "snapshots": [s.to_json() for s in self.snapshots]}


@dataclass(frozen=True)
class StageScore:
    """Held-out scores of one stage. metrics: name -> mean; interval: (low, high) 90 % bootstrap of the matrix metric.

    predictions: ranked [start, end, score] per example id, for the benchmark exports.
    """

    name: str
    family: str
    n: int
    metrics: dict[str, float]
    interval: tuple[float, float]
    hits: tuple[float, ...] = ()
    queries: tuple[str, ...] = ()
    predictions: dict[str, tuple[tuple[float, float, float], ...]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "family": self.family, "n": self.n,
            "metrics": {k: round(v, 4) for k, v in self.metrics.items()},
            "interval": [round(v, 4) for v in self.interval],
        }  # fmt: skip


@dataclass(frozen=True)
class EvaluationReport:
    snapshot: str
    stages: tuple[StageScore, ...]
    matrix: Matrix

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "snapshot": self.snapshot, "stages": [s.to_json() for s in self.stages],
            "matrix": self.matrix.to_json(),
        }  # fmt: skip
