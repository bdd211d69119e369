"""`vilco bench learn --only transfer --cases DIR`: do taught questions help other questions, reworded, over other videos?

A cases folder is that of `bench answers`: NAME.mp4 with NAME.json. For every ordered pair of lists that share no clip, 20
examples of the first are learnt on top of nothing, then the second list's questions are asked in other words, before and after.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.evaluation.retrieval import paired_bootstrap
from vilco_app.values import VilcoError

TAUGHT = 20
FORCED = (0.2, 0.5, 1.0)  # weights of the network that are tried against the chosen one's will, to show what it holds
RULES = (
    (r"^when did i see (.+)", r"find the part that shows \1"),
    (r"^when (did|was|were) (.+)", r"show me the moment: \2"),
    (r"^where (did|was|is|were|are) (.+)", r"in which scene: \2"),
    (r"^(did|was|were|is) (.+)", r"the time that \2"),
    (r"^(what|who|which|how many) (.+)", r"find where I could tell \1 \2"),
)  # one wording for each way a question begins; fixed, so that nothing is chosen by its result


def reworded(question: str) -> str:
    """The question asked in other words by a fixed rule; as it is, after "find:", when no rule fits."""
    words = question.strip().rstrip("?").strip()
    for pattern, wording in RULES:
        if re.match(pattern, words, re.IGNORECASE):
            return re.sub(pattern, wording, words, count=1, flags=re.IGNORECASE)
    return f"find: {words}"


@dataclass
class Pairs:
    """Hits (R@1 at IoU 0.3) of every asked question, in the same order for each asker; what was decided per pair."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    forced: dict[float, list[float]] = field(default_factory=lambda: {w: [] for w in FORCED})
    taught: list[tuple[float, float]] = field(default_factory=list)  # a taught question itself: before, at weight 0.5
    weights: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def transfer(
    cases: Path | None, progress: Any = None, home: Path | None = None, seeds: int = 2
) -> list[dict[str, Any]]:
    """Rows of the contract. seeds: draws of the 20 examples per pair of lists. Raises VilcoError without usable lists."""
    from vilco_app.memory import EpisodicMemory

    if cases is None:
        raise VilcoError(
            "no-cases", "transfer needs labelled footage.", "Name a folder of NAME.mp4 + NAME.json: --cases DIR"
        )
    lists = _lists(Path(cases))
    todo = [(a, b, s) for a in lists for b in lists if apart(lists[a], lists[b]) for s in range(seeds)]
    if not todo:
        raise VilcoError("no-cases", f"{cases}: no two lists without a common clip.", "Add a list of other footage.")
    pairs = Pairs()
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as scratch:
        memory = EpisodicMemory(home or Path(scratch) / "home")
        for name in sorted({n for a, b, _ in todo for n in (a, b)}):
            memory.add(Path(cases) / f"{name}.mp4")
        for k, (a, b, seed) in enumerate(todo):
            if progress is not None:
                progress(k, len(todo), f"taught {a}, asked {b}")
            _one(memory, Path(scratch) / f"models{k}", Path(cases), (a, lists[a]), (b, lists[b]), seed, pairs)
    return _rows(pairs, len(todo))


def _lists(folder: Path) -> dict[str, dict[str, Any]]:
    from vilco_app.benchmarks.answers import _read

    found = {p.stem: _read(folder, p.stem) for p in sorted(folder.glob("*.json")) if p.with_suffix(".mp4").is_file()}
    return {name: data for name, data in found.items() if len(data["text_queries"]) >= TAUGHT}


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lists share no clip. Lists that do not say what they are made of share nothing but themselves."""
    first = {s.get("clip") for s in one.get("segments", ())}
    return one is not other and not first & {s.get("clip") for s in other.get("segments", ())}


def _one(
    memory: Any, models: Path, folder: Path, teach: tuple[str, Any], ask: tuple[str, Any], seed: int, pairs: Pairs
) -> None:
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.learning.restoring import load_viewed
    from vilco_app.learning.run import learn_stage
    from vilco_app.learning.scoring import METRIC, Prober, score
    from vilco_app.learning.snapshots import Snapshots
    from vilco_app.stages import Example

    questions = teach[1]["text_queries"]
    chosen = np.random.default_rng(seed).permutation(len(questions))[:TAUGHT]
    video = memory.resolve(folder / f"{teach[0]}.mp4").id
    rows = [
        {
            "id": f"t{i}",
            "video": video,
            "query": questions[i]["text"],
            "windows": questions[i]["windows"],
            "split": "train",
        }
        for i in map(int, chosen)
    ]
    stage = {"schema": 1, "name": teach[0], "family": "nlq", "examples": rows}
    report = learn_stage(models, memory.library, memory.profile, stage)
    network = NetworkGrounder(load_viewed(Snapshots(models), report.snapshot, memory.profile), memory.profile.blocks)
    prober = Prober(memory.library, memory.profile)
    other = memory.resolve(folder / f"{ask[0]}.mp4").id
    for k, q in enumerate(ask[1]["text_queries"]):
        windows = tuple((float(s), float(t)) for s, t in [*q["windows"], *q.get("also_plausible", [])])
        probe = prober.probe(Example(f"q{k}", other, windows, query=reworded(q["text"])), "nlq", other, network)

        def hit(weight: float, probe: Any = probe) -> float:
            return (score(probe, weight) or {METRIC: 0.0})[METRIC]

        pairs.before.append(hit(0.0))
        pairs.after.append(hit(report.fusion.nlq))
        for weight in FORCED:
            pairs.forced[weight].append(hit(weight))
        pairs.names.append(f"{ask[0]}/{k}")
    for row in rows:
        said = tuple((float(s), float(t)) for s, t in row["windows"])
        own = prober.probe(Example(row["id"], video, said, query=row["query"]), "nlq", video, network)
        first, last = score(own, 0.0), score(own, 0.5)
        if first is not None and last is not None:
            pairs.taught.append((first[METRIC], last[METRIC]))
    pairs.weights.append(report.fusion.nlq)


def _rows(pairs: Pairs, runs: int) -> list[dict[str, Any]]:
    """Questions asked after several trainings count once in the interval: their hits are averaged first."""

    def mean(values: list[float]) -> np.ndarray:
        by_name: dict[str, list[float]] = {}
        for name, value in zip(pairs.names, values, strict=True):
            by_name.setdefault(name, []).append(value)
        return np.array([np.mean(v) for v in by_name.values()])

    before = mean(pairs.before)
    rows = [
        _row("trainings on 20 examples", float(runs), ""),
        _row("questions over other videos, reworded", float(len(before)), ""),
        _row("before: R@1 at IoU 0.3", 100 * float(before.mean()), "%"),
        _row("weight chosen for the network: mean", float(np.mean(pairs.weights)), ""),
    ]
    askers = [("after", mean(pairs.after)), *((f"network forced to {w:g}", mean(v)) for w, v in pairs.forced.items())]
    for name, hits in askers:
        gap = paired_bootstrap(hits.tolist(), before.tolist())
        target = 0.0 if name == "after" else None
        rows += [
            _row(f"{name}: R@1 at IoU 0.3", 100 * float(hits.mean()), "%"),
            _row(f"{name} - before: 95 % interval, low", 100 * gap.low, "points", target, "min" if name == "after" else None),
            _row(f"{name} - before: 95 % interval, high", 100 * gap.high, "points"),
        ]  # fmt: skip
    own = np.array(pairs.taught)
    rows.append(_row("the taught questions themselves, before: R@1 at IoU 0.3", 100 * float(own[:, 0].mean()), "%"))
    rows.append(_row("the taught questions themselves, network at 0.5", 100 * float(own[:, 1].mean()), "%"))
    return rows


def _row(name: str, value: float, unit: str, target: float | None = None, limit: str | None = None) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "target": target, "limit": limit}
