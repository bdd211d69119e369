"""Learning as a durable job in a child process at low priority: the app keeps answering, a kill costs some steps.

The handler runs in the home's one worker; the child does the work and reports one JSON line per event. A stopped or killed
job goes on from the child's last checkpoint (`models/.work/<name>/`) with the same result as an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from vilco_app.jobs import Context, Job, Jobs, Stopped, polite_environment
from vilco_app.learning.presets import preset_for
from vilco_app.learning.resolving import resolve_stage
from vilco_app.learning.snapshots import Snapshots
from vilco_app.learning.types import LearnReport, Progress
from vilco_app.learning.types import Stopped as LearningStopped
from vilco_app.library.freeing import rest
from vilco_app.stages import Stage
from vilco_app.stages.format import write_json
from vilco_app.values import VilcoError

KIND = "learn"
STOP_SECONDS = 20.0  # a stop is noticed at the next step; after this long the child is killed (its checkpoint stays)


def register(jobs: Jobs, home: Path) -> None:
    """Let this process run learn jobs."""
    if KIND not in jobs.handlers:
        jobs.register(KIND, lambda job, context: run_child(home, job, context))


def enqueue(
    home: Path, library: Any, profile: Any, source: Any, strategy: str | None = None, preset: str = "auto",
    profile_name: str | None = None, progress: Progress | None = None,
) -> int:  # fmt: skip
    """Check the stage, index what is missing (here, not in the job), and put the learning into the job table -> job id.

    The same stage on the same parent with the same settings is the same unfinished job. Raises VilcoError as `learn` does.
    """
    from vilco_app.continual import STRATEGIES

    if strategy is not None and strategy not in STRATEGIES:
        raise VilcoError(
            "no-strategy", f"there is no strategy {strategy!r}.", f"Choose one of {', '.join(STRATEGIES)}."
        )
    resolved = resolve_stage(source, library, profile, progress)
    preset_for(preset, resolved.stage.family, len(resolved.stage.examples))  # an unknown one is refused here
    stage = _absolute(resolved.stage, {ref: v.id for ref, v in resolved.videos.items()})
    parent = Snapshots(home).active()
    body = {"stage": stage.to_json(), "strategy": strategy, "preset": preset, "parent": parent, "profile": profile.id}
    key = hashlib.blake2b(json.dumps(body, sort_keys=True).encode(), digest_size=6).hexdigest()
    folder = Path(home) / "models" / ".work" / key
    write_json(folder / "stage.json", stage.to_json())
    payload = {
        "name": key, "stage": str(folder / "stage.json"), "strategy": strategy, "preset": preset, "parent": parent,
        "profile": profile_name or profile.id.rpartition("@")[0] or profile.id,
    }  # fmt: skip
    rest(profile)  # the child needs the memory more
    jobs: Jobs = library.jobs
    register(jobs, home)
    return jobs.enqueue(KIND, payload, label=f"learn {stage.name}", key=key)


def learn_in_job(
    home: Path, library: Any, profile: Any, source: Any, strategy: str | None = None, preset: str = "auto",
    progress: Progress | None = None, profile_name: str | None = None,
) -> LearnReport:  # fmt: skip
    """Enqueue, work or follow until it is done -> the report. Raises VilcoError; `Stopped` when somebody stopped it."""
    job_id = enqueue(home, library, profile, source, strategy, preset, profile_name, progress)
    say = None if progress is None else lambda done, total, text: progress(int(done), int(total), text)
    job = library.jobs.run_until(job_id, say)
    if job.state == "stopped":
        raise LearningStopped
    if job.error is not None:
        raise VilcoError(job.error["code"], job.error["message"], job.error["remedy"])
    return LearnReport.from_json(job.result)


def run_child(home: Path, job: Job, context: Context) -> dict[str, Any]:
    """The handler: start the child, pass its progress on, stop it when asked. Raises VilcoError with the child's error."""
    command = [sys.executable, "-m", "vilco_app.learning.child", str(home), json.dumps(job.payload)]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=polite_environment()
    )
    assert child.stdout is not None
    result: dict[str, Any] | None = None
    try:
        for line in child.stdout:
            event = _event(line)
            if "error" in event:
                error = event["error"]
                raise VilcoError(error["code"], error["message"], error["remedy"])
            if "result" in event:
                result = event["result"]
            elif "total" in event:
                context.progress(event["done"], event["total"], event["text"])
            context.check()
        child.wait()
    except BaseException:
        _end(child)
        raise
    if result is not None:
        return result
    if child.returncode == 3:
        raise Stopped
    raise VilcoError(
        "learning-died", f"{job.label}: the learning process ended with code {child.returncode}.",
        f"Most often memory ran out; go on with: vilco jobs resume {job.id}",
    )  # fmt: skip


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return {}  # something printed by a library
    return found if isinstance(found, dict) else {}


def _end(child: subprocess.Popen[str]) -> None:
    child.terminate()
    try:
        child.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _absolute(stage: Stage, ids: dict[str, str]) -> Stage:
    """The stage with recordings by id and pictures by absolute path, so that it can be read from anywhere."""
    examples = []
    for e in stage.examples:
        changes: dict[str, Any] = {"video": ids[e.video]}
        if e.image is not None:
            changes["image"] = str((stage.folder / Path(e.image).expanduser()).absolute())
        if e.query_frame is not None:
            changes["query_frame"] = replace(e.query_frame, video=ids[e.query_frame.video])
        examples.append(replace(e, **changes))
    narrations = tuple(replace(n, video=ids[n.video]) for n in stage.narrations)
    return replace(stage, examples=tuple(examples), narrations=narrations)
