"""Scoring stage files with the active snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.learning.grounder import NetworkGrounder
from vilco_app.learning.resolving import Resolved, resolve_stage
from vilco_app.learning.restoring import load_viewed
from vilco_app.learning.scoring import METRIC, TOP, Prober, bootstrap, score
from vilco_app.learning.snapshots import BASE, Snapshots
from vilco_app.learning.types import EvaluationReport, Fusion, Matrix, Progress, StageScore


def evaluate_stages(
    home: Path, library: Any, profile: Any, stages: Sequence[Any], progress: Progress | None = None,
    export: str | None = None, output: str | Path | None = None,
) -> EvaluationReport:  # fmt: skip
    """See `vilco_app.learning.evaluate`. The matrix is the active snapshot's own, by stages as they were learnt."""
    snapshots = Snapshots(home)
    active = snapshots.active()
    card = snapshots.card(active)
    fusion = Fusion.from_json(card.get("fusion", {}))
    network = None
    if (snapshots.path(active) / "model.safetensors").is_file():
        network = NetworkGrounder(load_viewed(snapshots, active, profile), profile.blocks)
    directions = snapshots.directions(active, profile.blocks) if card.get("profile") == profile.id else None
    prober = Prober(library, profile).bent(fusion.taught, directions)
    resolved = [resolve_stage(s, library, profile, progress) for s in stages]
    scores = []
    for k, one in enumerate(resolved):
        if progress is not None:
            progress(k, len(resolved), f"checking {one.stage.name}")
        scores.append(_score(one, prober, network, fusion, library, profile))
    matrix = snapshots.matrix(active) if active != BASE else Matrix()
    if not matrix.values:
        names = tuple(s.name for s in scores)
        matrix = Matrix(METRIC, names, (tuple(s.metrics.get(METRIC) for s in scores),) if names else ())
    if export is not None and output is not None:
        from vilco_app.stages.exporters import write_predictions

        found = {k: v for s in scores for k, v in s.predictions.items()}
        write_predictions(export, [r.stage for r in resolved], found, Path(output))
    return EvaluationReport(active, tuple(scores), matrix)


def _score(
    resolved: Resolved, prober: Prober, network: NetworkGrounder | None, fusion: Fusion, library: Any, profile: Any
) -> StageScore:
    stage = resolved.stage
    if stage.family == "vq":
        from vilco_app.learning.picture_scores import score_pictures

        if network is None or max(fusion.vq, fusion.vq_boxes) <= 0:
            return score_pictures(resolved, library, profile)
        from vilco_app.learning.picture_judge import HeadJudge

        return score_pictures(resolved, library, profile, HeadJudge(network.learner, fusion.vq, fusion.vq_boxes))
    examples = stage.part("heldout") or stage.examples
    weight = getattr(fusion, stage.family) if network is not None else 0.0
    rows, predictions, negatives = [], {}, 0
    ids = []
    for e in examples:
        probe = prober.probe(e, stage.family, resolved.video(e).id, network)
        ranked = probe.ranked(weight, TOP * max(1, len(e.windows)) if stage.family == "mq" else TOP)
        predictions[e.id] = tuple((float(s), float(t), float(p)) for s, t, p in ranked)
        found = score(probe, weight)
        if found is None:
            negatives += 1
        else:
            rows.append(found)
            ids.append(e.id)
    metrics = {k: float(np.mean([r[k] for r in rows])) for k in rows[0]} if rows else {METRIC: 0.0}
    hits = tuple(r[METRIC] for r in rows)
    return StageScore(stage.name, stage.family, len(examples), metrics, bootstrap(hits), hits, tuple(ids), predictions)
