"""`vilco bench learn --only transfer [--cases DIR]`: do taught questions help other questions, reworded, over other videos?

Without cases: footage made on the spot, in which the same things recur under made-up, personal and ordinary names (`things`).
With cases, a folder as `bench answers` takes it (NAME.mp4 with NAME.json): for every ordered pair of lists that share no clip,
20 examples of the first are learnt on top of nothing, then the second list's questions are asked in other words. Questions go
through the answering service, before and after.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.benchmarks.rows import row
from vilco_app.evaluation.retrieval import auroc, hit_at, paired_bootstrap
from vilco_app.values import MomentQuery, TextQuery, VilcoError

if TYPE_CHECKING:
    from vilco_app.benchmarks.things import Settings

Row = dict[str, Any]
TAUGHT = 20
FORCED = (0.2, 1.0)  # weights of the network that are tried against the chosen one's will, to show what it holds
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


@dataclass(frozen=True)
class Question:
    """Asked of one recording (id). windows: where it is right; none: it is not there. unit: what counts once in an interval,
    however often it is asked; group: a row of its own."""

    text: str
    video: str
    windows: tuple[tuple[float, float], ...]
    unit: str
    group: str
    thing: str = ""


@dataclass
class Asked:
    """What was asked, and per asker a hit (R@1 at IoU 0.3) and a confidence of each, in the same order."""

    questions: list[Question] = field(default_factory=list)
    hits: dict[str, list[float]] = field(default_factory=dict)
    sure: dict[str, list[float]] = field(default_factory=dict)
    weights: list[float] = field(default_factory=list)
    strengths: list[float] = field(default_factory=list)

    def paired(self, asker: str, group: str | None = None, by: str = "unit") -> tuple[list[float], list[float]]:
        """Mean hits of an asker and of "before" per unit (or thing), of a group or of all present things asked elsewhere."""
        first: dict[str, list[float]] = {}
        last: dict[str, list[float]] = {}
        for q, a, b in zip(self.questions, self.hits[asker], self.hits["before"], strict=True):
            if q.windows and (q.group == group if group else q.group != OWN):
                first.setdefault(getattr(q, by), []).append(a)
                last.setdefault(getattr(q, by), []).append(b)
        return [float(np.mean(v)) for v in first.values()], [float(np.mean(v)) for v in last.values()]


OWN = "over the taught recordings"


def transfer(cases: Path | None, progress: Any = None, home: Path | None = None, seeds: int = 2) -> list[Row]:
    """Rows of the contract. seeds: draws of the 20 examples per pair of lists. Raises VilcoError without usable lists."""
    if cases is None:
        return made(progress, home)
    lists = _lists(Path(cases))
    todo = [(a, b, s) for a in lists for b in lists if apart(lists[a], lists[b]) for s in range(seeds)]
    if not todo:
        raise VilcoError("no-cases", f"{cases}: no two lists without a common clip.", "Add a list of other footage.")
    from vilco_app.memory import EpisodicMemory

    asked = Asked()
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as scratch:
        memory = EpisodicMemory(home or Path(scratch) / "home")
        for name in sorted({n for a, b, _ in todo for n in (a, b)}):
            memory.add(Path(cases) / f"{name}.mp4")
        for k, (a, b, seed) in enumerate(todo):
            if progress is not None:
                progress(k, len(todo), f"taught {a}, asked {b}")
            first, second = (memory.resolve(Path(cases) / f"{n}.mp4").id for n in (a, b))
            chosen = np.random.default_rng(seed).permutation(len(lists[a]["text_queries"]))[:TAUGHT]
            rows = [lists[a]["text_queries"][i] for i in map(int, chosen)]
            taught = [{"video": first, "query": q["text"], "windows": q["windows"]} for q in rows]
            questions = [_asked(q, second, f"{b}/{j}", "other") for j, q in enumerate(lists[b]["text_queries"])]
            questions += [_asked(q, first, f"{a}/{seed}/{j}", OWN) for j, q in enumerate(rows)]
            training(memory, Path(scratch) / f"models{k}", "nlq", taught, questions, asked)
    return [*_rows(asked, len(todo)), *_group_rows(asked, OWN)]


def made(
    progress: Any = None, home: Path | None = None, settings: Settings | None = None, trainings: int = 3
) -> list[Row]:
    """The rows on made footage: `trainings` of questions (each thing has another name in each), as many of categories."""
    from vilco_app.benchmarks.things import KINDS, Settings, films, write_film
    from vilco_app.memory import EpisodicMemory

    settings = settings or Settings()
    shown, out = films(settings), []
    with tempfile.TemporaryDirectory(prefix="vilco-bench-") as scratch:
        memory = EpisodicMemory(home or Path(scratch) / "home")
        ids = []
        for film in shown:
            path = Path(scratch) / f"film{film.number}.mp4"
            write_film(film, settings, path)
            memory.add(path)
            ids.append(memory.resolve(path).id)
        for family, groups in (("nlq", (*KINDS, "untaught", OWN)), ("mq", ())):
            asked = Asked()
            for k in range(trainings):
                if progress is not None:
                    progress(k, trainings, f"teaching {family}")
                taught, questions = lesson(shown, ids, settings, k, family)
                training(memory, Path(scratch) / f"{family}{k}", family, taught, questions, asked)
            rows = [*_rows(asked, trainings), *_thing_rows(asked), *_absent_rows(asked)]
            rows += [r for g in groups for r in _group_rows(asked, g)]
            out += [{**r, "name": f"{family}: {r['name']}"} for r in rows]
    return out


def lesson(
    shown: Sequence[Any], ids: Sequence[str], settings: Settings, number: int, family: str
) -> tuple[list[dict[str, Any]], list[Question]]:
    """Training `number`: 20 examples drawn from the first recordings, and what is asked of the others in other words."""
    from vilco_app.benchmarks.things import ASKED, PHOTOS, names

    called = names(number)
    pool = [(f, t, [s, e]) for f in shown[: settings.taught] for t, s, e in f.showings if t]
    picked = [pool[i] for i in np.random.default_rng((5, number)).permutation(len(pool))[:TAUGHT]]
    said = "query" if family == "nlq" else "category"
    taught = [
        {
            "video": ids[f.number],
            said: f"When did I see {called[t][1]}?" if family == "nlq" else called[t][1],
            "windows": [w],
        }
        for f, t, w in picked
    ]
    known = {t for _, t, _ in picked}

    def question(film: Any, thing: str, count: int, group: str) -> Question:
        text = ASKED[count % len(ASKED)].format(called[thing][2]) if family == "nlq" else called[thing][2]
        windows = tuple((float(s), float(e)) for s, e in film.windows(thing))
        return Question(text, ids[film.number], windows, f"{film.number}/{thing}", group, thing)

    questions: list[Question] = []
    for film in shown[settings.taught :]:
        for thing in sorted(PHOTOS):
            group = called[thing][0] if thing in known else "untaught"
            questions.append(question(film, thing, len(questions), group))
    questions += [question(f, t, k, OWN) for k, (f, t, _) in enumerate(picked)]
    return taught, questions


def training(
    memory: Any, models: Path, family: str, taught: list[dict[str, Any]], questions: list[Question], asked: Asked
) -> None:
    """Learn the examples on top of nothing, then ask: before, after, and with the network forced in."""
    from vilco_app.answering import Answerer
    from vilco_app.learning.active import serving
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.learning.restoring import load_viewed
    from vilco_app.learning.run import learn_stage
    from vilco_app.learning.snapshots import Snapshots

    rows = [{"id": f"t{i}", "split": "train", **row} for i, row in enumerate(taught)]
    stage = {"schema": 1, "name": "taught", "family": family, "examples": rows}
    report = learn_stage(models, memory.library, memory.profile, stage)
    now = serving(models, memory.profile)
    network = NetworkGrounder(load_viewed(Snapshots(models), report.snapshot, memory.profile), memory.profile.blocks)
    library, profile, kind = memory.library, memory.profile, "text" if family == "nlq" else "moment"
    askers: dict[str, Any] = {
        "before": Answerer(library, profile),
        "after": Answerer(
            library, profile, network=now.network, weights=now.weights, doubts=now.doubts, bend=now.bend
        ),
    }  # fmt: skip
    for weight in FORCED:
        weights: Any = {kind: weight}
        askers[f"network forced to {weight:g}"] = Answerer(
            library, profile, network=network, weights=weights, bend=now.bend
        )
    for name, answerer in askers.items():
        for q in questions:
            video = [library.resolve(q.video)]
            if family == "nlq":
                answer = answerer.text(TextQuery(q.text), video)
            else:
                answer = answerer.moments(MomentQuery((q.text,)), video)
            found = [(m.start, m.end) for m in answer.moments]
            asked.hits.setdefault(name, []).append(float(hit_at(found, q.windows, 1, 0.3)))
            asked.sure.setdefault(name, []).append(answer.confidence)
    asked.questions += questions
    asked.weights.append(getattr(report.fusion, family))
    asked.strengths.append(report.fusion.taught.get(family, (0.0, 0.0))[0])


def _lists(folder: Path) -> dict[str, dict[str, Any]]:
    from vilco_app.benchmarks.answers import _read

    found = {p.stem: _read(folder, p.stem) for p in sorted(folder.glob("*.json")) if p.with_suffix(".mp4").is_file()}
    return {name: data for name, data in found.items() if len(data["text_queries"]) >= TAUGHT}


def apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two lists share no clip. Lists that do not say what they are made of share nothing but themselves."""
    first = {s.get("clip") for s in one.get("segments", ())}
    return one is not other and not first & {s.get("clip") for s in other.get("segments", ())}


def _asked(query: dict[str, Any], video: str, unit: str, group: str) -> Question:
    windows = tuple((float(s), float(t)) for s, t in [*query["windows"], *query.get("also_plausible", [])])
    return Question(reworded(query["text"]), video, windows, unit, group, unit)


def _rows(asked: Asked, runs: int) -> list[Row]:
    """Questions asked after several trainings count once in the interval: their hits are averaged first."""
    before = asked.paired("before")[0]
    rows = [
        row("trainings on 20 examples", float(runs), ""),
        row("questions over other videos, reworded", float(len(before)), ""),
        row("strength chosen for taught directions: mean", float(np.mean(asked.strengths)), ""),
        row("weight chosen for the network: mean", float(np.mean(asked.weights)), ""),
        row("before: R@1 at IoU 0.3", 100 * float(np.mean(before)), "%"),
    ]
    for name in asked.hits:
        if name != "before":
            rows += _gap_rows(name, *asked.paired(name), target=name == "after")
    return rows


def _group_rows(asked: Asked, group: str) -> list[Row]:
    after, before = asked.paired("after", group)
    if not before:
        return []
    return [
        row(f"{group}: questions", float(len(before)), ""),
        row(f"{group}: before: R@1 at IoU 0.3", 100 * float(np.mean(before)), "%"),
        *_gap_rows(f"{group}: after", after, before),
    ]


def _thing_rows(asked: Asked) -> list[Row]:
    """The same interval when whole things are drawn, since one thing's questions rise and fall together."""
    gap = paired_bootstrap(*asked.paired("after", by="thing"))
    return [
        row("after - before, drawn by thing: 95 % interval, low", 100 * gap.low, "points"),
        row("after - before, drawn by thing: 95 % interval, high", 100 * gap.high, "points"),
    ]


def _absent_rows(asked: Asked) -> list[Row]:
    """Are things that a recording does not show still told from those it does?"""
    there = np.array([bool(q.windows) for q in asked.questions])
    other = np.array([q.group != OWN for q in asked.questions])
    rows = [row("things not there asked for", float((other & ~there).sum()), "")]
    for name in ("before", "after"):
        sure = np.array(asked.sure[name])
        right, wrong = sure[other & there], sure[other & ~there]
        rows += [
            row(f"{name}: told from those there (AUROC)", auroc(right.tolist(), wrong.tolist()), ""),
            row(f"{name}: called found though not there", 100 * float((wrong >= 0.5).mean()), "%"),
            row(f"{name}: called found and there", 100 * float((right >= 0.5).mean()), "%"),
        ]
    return rows


def _gap_rows(name: str, ours: list[float], before: list[float], target: bool = False) -> list[Row]:
    gap = paired_bootstrap(ours, before)
    return [
        row(f"{name}: R@1 at IoU 0.3", 100 * float(np.mean(ours)), "%"),
        row(f"{name} - before: 95 % interval, low", 100 * gap.low, "points", 0.0 if target else None, "min" if target else None),
        row(f"{name} - before: 95 % interval, high", 100 * gap.high, "points"),
    ]  # fmt: skip
