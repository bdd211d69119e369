"""`vilco bench learn`: every number of learning, each beside its target, printed by one command.

Groups (--only): forgetting (synthetic stages, three seeds), grounding, quick (20 corrected examples after five stages),
stage (200 examples), flat (twenty stages), asking (questions while learning runs), sweep (noise and memory), strategies (all of
them), grid (how their strengths were chosen), prompts (what they carry), inside (plasticity, routing, stability gap), transfer (20 examples, other videos),
pictures (visual queries taught, others asked).
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.benchmarks.rows import row
from vilco_app.jobs import polite_environment, stand_back
from vilco_app.values import VilcoError

Row = dict[str, Any]
MINUTES = 10


def learn(only: Sequence[str] | None = None, progress: Any = None, cases: Path | None = None) -> list[Row]:
    """Rows of the contract. only: groups to run (by default those that take no more than some minutes together).

    cases: labelled footage for transfer and pictures, a folder as `bench answers` takes it.

    Raises VilcoError for an unknown group.
    """
    groups: dict[str, Callable[[Any], list[Row]]] = {
        "forgetting": forgetting, "grounding": grounding, "quick": quick, "asking": asking, "stage": whole_stage,
        "flat": flat, "sweep": sweep, "strategies": strategies, "grid": grid, "prompts": prompts,
        "inside": inside, "transfer": lambda progress: transfer(progress, cases),
        "pictures": lambda progress: _pictures()(cases, progress),
    }  # fmt: skip
    for name in only or ():
        if name not in groups:
            raise VilcoError("no-group", f"there is no group {name!r}.", f"Choose among {', '.join(groups)}.")
    chosen = list(only) if only else ["forgetting", "grounding", "quick", "asking"]
    return [r for name in groups if name in chosen for r in groups[name](progress)]


def forgetting(progress: Any = None, seeds: int = 3) -> list[Row]:
    """Five synthetic stages, memory 6.5 % of the training queries, at the generator's middle setting."""
    from vilco_app.benchmarks.forgetting import STRATEGIES, compare

    table = compare(seeds=seeds, progress=progress)
    rows = []
    for name in STRATEGIES:
        rows.append(row(f"{name}: R@1 at IoU 0.5 after 5 stages", 100 * float(table.accs(name).mean()), "%"))
    rows.append(row("naive: BwF", 100 * float(table.bwfs("naive").mean()), "points", 20, "min"))
    for name, least in (("vilco", 70), ("episodic", 90)):
        rows.append(row(f"{name}: share of joint kept", 100 * table.kept(name), "%", least, "min"))
    for name in ("reservoir", "vilco"):
        rows.append(row(f"{name}: BwF", 100 * float(table.bwfs(name).mean()), "points"))
    rows.append(row("episodic: BwF", 100 * float(table.bwfs("episodic").mean()), "points", 5, "max"))
    for other in ("vilco", "reservoir"):
        mean, low, high = table.difference("episodic", other)
        other = "fixed reservoir replay" if other == "reservoir" else other
        rows.append(row(f"episodic - {other}: R@1 difference", 100 * mean, "points"))
        rows.append(row(f"episodic - {other}: 90 % interval, low", 100 * low, "points"))
        rows.append(row(f"episodic - {other}: 90 % interval, high", 100 * high, "points"))
    return rows


def sweep(progress: Any = None) -> list[Row]:
    """Forgetting over noise and memory (about ten processor minutes)."""
    from vilco_app.benchmarks.sweep import sweep as run

    return run(progress)


def strategies(progress: Any = None) -> list[Row]:
    """Every strategy of the design on fresh seeds (about a quarter of an hour of processor time)."""
    from vilco_app.benchmarks.strategies import strategies as run

    return run(progress)


def grid(progress: Any = None) -> list[Row]:
    """The grid that penalty strengths were chosen on (about five processor minutes)."""
    from vilco_app.benchmarks.strategies import grid as run

    return run(progress)


def prompts(progress: Any = None) -> list[Row]:
    """Frozen network, prompts alone: what they can carry, and what exchanging them costs (two processor minutes)."""
    from vilco_app.benchmarks.prompting import prompts as run

    return run(progress)


def inside(progress: Any = None) -> list[Row]:
    """Plasticity, routing and the stability gap, stage by stage (two processor minutes)."""
    from vilco_app.benchmarks.inside import inside as run

    return run(progress)


def transfer(progress: Any, cases: Path | None) -> list[Row]:
    """20 taught examples, other questions over other videos."""
    from vilco_app.benchmarks.transfer import transfer as run

    return run(cases, progress)


def _pictures() -> Callable[..., list[Row]]:
    from vilco_app.benchmarks.pictures_learnt import pictures

    return pictures


def _grounder() -> tuple[Any, Any, Any]:
    from vilco_app.answering.curve import passages_of
    from vilco_app.benchmarks.made_up import MadeUpLibrary, MadeUpProfile
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.learning.restoring import config_for
    from vilco_app.network.learner import ViLCoLearner

    profile, library = MadeUpProfile(), MadeUpLibrary(1, MINUTES * 60.0)
    grounder = NetworkGrounder(ViLCoLearner(config_for(profile)), profile.blocks)
    return grounder, profile, passages_of(library.stored(library.names[0]))


def _ask(count: int) -> list[float]:
    """Milliseconds of `count` different questions on a 10-minute recording whose video side is kept."""
    grounder, profile, passages = _grounder()
    questions = [profile.text(f"where is the thing{k}") for k in range(count + 3)]
    took = []
    for q in questions:
        began = time.perf_counter()
        grounder.propose(q, "text", passages)
        took.append(1e3 * (time.perf_counter() - began))
    return took[3:]  # the first ones compute the video side and warm caches


def grounding(progress: Any = None) -> list[Row]:
    """One question on 10 minutes: the network alone, and the video side it saves."""
    grounder, profile, passages = _grounder()
    began = time.perf_counter()
    grounder.propose(profile.text("first"), "text", passages)
    first = 1e3 * (time.perf_counter() - began)
    took = _ask(30)
    parameters = sum(p.numel() for p in grounder.learner.net.parameters())
    return [
        row("parameters of the network", parameters / 1e6, "million"),
        row("grounding, 10 min, video side kept: median", float(np.median(took)), "ms", 40, "max"),
        row("grounding, 10 min, video side kept: p95", float(np.quantile(took, 0.95)), "ms"),
        row("grounding, 10 min, first question", first, "ms"),
    ]


def _learn(home: Path, library: Any, stage: Any, **options: Any) -> Any:
    from vilco_app.benchmarks.made_up import MadeUpProfile
    from vilco_app.learning.run import learn_stage

    profile: Any = MadeUpProfile()
    return learn_stage(home, library, profile, stage, **options)


def quick(progress: Any = None) -> list[Row]:
    """20 corrected examples after five earlier stages, held-out checks of all six included."""
    from vilco_app.benchmarks.made_up import MadeUpLibrary

    library = MadeUpLibrary(10, MINUTES * 60.0)
    with tempfile.TemporaryDirectory() as folder:
        for k in range(5):
            _learn(Path(folder), library, library.stage(f"earlier {k}", 12, first=25 * k), progress=progress)
        began, spent = time.perf_counter(), time.process_time()
        report = _learn(Path(folder), library, library.stage("corrections", 20, first=130), progress=progress)
        took, spent = time.perf_counter() - began, time.process_time() - spent
    return [
        row("20 examples after 5 stages, checks included", took, "s", 60, "max"),
        row("  of which training", report.train_seconds, "s"),
        row("  of which held-out checks and fusion weights", report.evaluate_seconds, "s"),
        *_burden(spent),
        row("memory of this process at its peak", _peak() / 2**30, "GB", 2, "max"),
    ]


def _burden(seconds: float) -> list[Row]:
    """What a wall clock on a shared machine needs beside it: processor time of this process, and who else was there."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return [
        row("  processor time, all threads", seconds, "s"),
        row(f"  load average at the end ({os.cpu_count()} cores)", load, ""),
    ]


def whole_stage(progress: Any = None) -> list[Row]:
    from vilco_app.benchmarks.made_up import MadeUpLibrary

    library = MadeUpLibrary(20, MINUTES * 60.0)
    with tempfile.TemporaryDirectory() as folder:
        began, spent = time.perf_counter(), time.process_time()
        _learn(Path(folder), library, library.stage("two hundred", 200, held=40), progress=progress)
        took, spent = time.perf_counter() - began, time.process_time() - spent
    return [row("200 examples", took / 60, "min", 10, "max"), *_burden(spent)]


def flat(progress: Any = None, stages: int = 20) -> list[Row]:
    """Twenty stages of 8 examples: training time of the last five against the second to sixth."""
    from vilco_app.benchmarks.made_up import MadeUpLibrary

    library = MadeUpLibrary(10, 120.0)
    train, check = [], []
    with tempfile.TemporaryDirectory() as folder:
        for k in range(stages):
            report = _learn(
                Path(folder), library, library.stage(f"stage {k}", 8, first=9 * k, held=2), progress=progress
            )
            train.append(report.train_seconds)
            check.append(report.evaluate_seconds)
    early, late = float(np.median(train[1:6])), float(np.median(train[-5:]))
    return [
        row("training time, last five stages / stages 2 to 6", late / early, "x", 1.25, "max"),
        row("checks, last five stages / stages 2 to 6", float(np.median(check[-5:]) / np.median(check[1:6])), "x"),
    ]


def asking(progress: Any = None, rounds: int = 12, questions: int = 10) -> list[Row]:
    """p95 of questions while a learning process runs at low priority beside, against idle.

    Idle and busy take turns (the child is stopped and woken), so that what else the machine does weighs on both alike.
    """
    grounder, profile, passages = _grounder()
    code = "from vilco_app.benchmarks.learn import keep_learning; keep_learning()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=polite_environment())
    took: dict[int, list[float]] = {signal.SIGSTOP: [], signal.SIGCONT: []}
    try:
        assert child.stdout is not None
        child.stdout.readline()  # it trains from here on
        asked = (profile.text(f"where is the thing{k}") for k in itertools.count())
        for _ in range(3):
            grounder.propose(next(asked), "text", passages)  # computes the video side and warms caches
        for turn in [signal.SIGSTOP, signal.SIGCONT] * rounds:
            child.send_signal(turn)
            time.sleep(0.1)
            for q in itertools.islice(asked, questions):
                began = time.perf_counter()
                grounder.propose(q, "text", passages)
                took[turn].append(1e3 * (time.perf_counter() - began))
    finally:
        child.kill()
        child.wait()
    idle, busy = (float(np.quantile(took[turn], 0.95)) for turn in (signal.SIGSTOP, signal.SIGCONT))
    return [
        row("question while idle: p95", idle, "ms"),
        row("question while learning: p95 / idle", busy / idle, "x", 2, "max"),
    ]


def keep_learning() -> None:
    """Train for ever, as the learning child does (low priority, one core left free)."""
    from vilco_app.benchmarks.made_up import MadeUpLibrary

    stand_back()
    import torch

    torch.set_num_threads(max(1, (os.cpu_count() or 2) - 1))
    library = MadeUpLibrary(4, MINUTES * 60.0)
    told: list[int] = []

    def tell(done: int, total: int, text: str) -> None:
        if done > 1 and not told:
            told.append(1)
            print("learning", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        while True:
            _learn(Path(folder), library, library.stage(f"s{time.monotonic_ns()}", 20), progress=tell)


def _peak() -> float:
    """Largest resident memory of this process so far, bytes (anonymous and mapped)."""
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale)
