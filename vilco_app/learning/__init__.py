"""Online learning: stage after stage into immutable snapshots (`models/<id>/`), one of them active.

Doors: `learn`, `models`, `use`, `evaluate`, `forget`. All heavy imports (torch) happen inside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.learning.types import (
    EvaluationReport,
    Fusion,
    LearnReport,
    Matrix,
    ModelList,
    Progress,
    SnapshotInfo,
    StageScore,
    Stopped,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vilco_app.encoders.base import Profile
    from vilco_app.learning.active import Serving
    from vilco_app.stages import Stage

StageLike = Any  # a path (str, Path), a stage object (dict) or a `Stage`

__all__ = [
    "EvaluationReport", "Fusion", "LearnReport", "Matrix", "ModelList", "Progress", "SnapshotInfo", "StageScore",
    "Stopped", "corrections_stage", "evaluate", "forget", "learn", "learn_in_job", "models", "register_jobs", "serving", "use",
]  # fmt: skip


def learn(
    home: Path,
    library: Any,
    profile: Profile,
    stage: StageLike,
    strategy: str | None = None,
    preset: str = "auto",
    progress: Progress | None = None,
    job: str | None = None,
    activate: bool = True,
) -> LearnReport:
    """Learn one stage on top of the active snapshot; save a new snapshot and (activate) make it the active one.

    library: vilco_app.library.Library of `home`; videos of the stage that are not indexed yet are indexed first.
    strategy: a name of design section 6; None: the parent's, else the default. preset: "paper", "quick" or "auto"
    (quick up to 64 examples). job: a name under which unfinished work is kept; calling again with it goes on from
    there with the same result. Raises VilcoError (bad-stage, unknown-strategy, unknown-video, ...), `Stopped`.
    """
    from vilco_app.learning.run import learn_stage

    return learn_stage(home, library, profile, stage, strategy, preset, progress, job, activate)


def learn_in_job(
    home: Path,
    library: Any,
    profile: Profile,
    stage: StageLike,
    strategy: str | None = None,
    preset: str = "auto",
    progress: Progress | None = None,
    profile_name: str | None = None,
) -> LearnReport:
    """`learn` as a durable job in a child process at low priority; returns when it is done. Stop and resume with `vilco jobs`.

    profile_name: how `load_profile` finds the profile again (default: its id without the version).
    """
    from vilco_app.learning.job import learn_in_job as run

    return run(home, library, profile, stage, strategy, preset, progress, profile_name)


def register_jobs(jobs: Any, home: Path) -> None:
    """Let this process run learn jobs (vilco_app.jobs.Jobs)."""
    from vilco_app.learning.job import register

    register(jobs, home)


def models(home: Path) -> ModelList:
    """All snapshots of this home, oldest first, `base` included, and which one is active."""
    from vilco_app.learning.snapshots import Snapshots

    return Snapshots(home).listing()


def use(home: Path, snapshot: str) -> str:
    """Make a snapshot (id or unique prefix; "base": zero-shot only) the active one -> its id. Raises VilcoError."""
    from vilco_app.learning.snapshots import Snapshots

    return Snapshots(home).use(snapshot)


def evaluate(
    home: Path,
    library: Any,
    profile: Profile,
    stages: Sequence[StageLike],
    progress: Progress | None = None,
    export: str | None = None,
    output: str | Path | None = None,
) -> EvaluationReport:
    """Score the held-out part of each stage (all examples where none is held out) with the active snapshot.

    export: ego4d-nlq, ego4d-mq, ego4d-vq or qvhighlights: also write the predictions in that form to `output`.
    """
    from vilco_app.learning.evaluating import evaluate_stages

    return evaluate_stages(home, library, profile, stages, progress, export, output)


def serving(home: Path, profile: Profile) -> Serving:
    """What the app answers with: the active snapshot's network (None: zero-shot alone), fusion weights, id."""
    from vilco_app.learning.active import serving as active

    return active(home, profile)


def forget(home: Path, video: str, start: float, end: float) -> list[str]:
    """Cut the replay examples of [start, end) s of `video` (id) from every snapshot's buffer and mark the snapshots
    trained on it -> ids of the marked snapshots."""
    from vilco_app.learning.forgetting import forget_span

    return forget_span(home, video, start, end)


def corrections_stage(corrections: Sequence[Any], name: str = "corrections") -> Stage:
    """A stage made of corrections (values.Correction): text ones as nlq; the last word on a question counts."""
    from vilco_app.learning.corrections import stage_of

    return stage_of(corrections, name)
