"""What the child-process tests run in a child."""

from __future__ import annotations

import os
import time
from typing import Any

from vilco_app.jobs import Context, Job
from vilco_app.values import VilcoError


def learn(job: Job, context: Context) -> dict[str, Any]:
    for i in range(20):
        context.progress(i + 1, 20, "learning")
        time.sleep(0.05)
    return {"pid": os.getpid(), "nice": os.nice(0), "asked": job.payload["x"], "waits": os.environ["OMP_WAIT_POLICY"]}


def fail(job: Job, context: Context) -> None:
    raise VilcoError("bad-stage", "stage.json: empty.", "Add examples.")


def crash(job: Job, context: Context) -> None:
    raise RuntimeError("boom")


def forever(job: Job, context: Context) -> None:
    context.progress(1, 2, f"{os.getpid()}")
    while True:
        context.check()
        context.progress(1, 2, f"{os.getpid()}")
        time.sleep(0.05)
