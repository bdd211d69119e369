"""Learning one stage: samples, training, held-out checks, fusion weights, a new snapshot. The path of one stage, top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.learning.doubting import choose_doubt
from vilco_app.learning.fitting import Fitted, Work, fit_stage, loss_summary
from vilco_app.learning.folds import fold_probes
from vilco_app.learning.grounder import NetworkGrounder
from vilco_app.learning.picture_probes import fuse_pictures
from vilco_app.learning.pictures import finder_of
from vilco_app.learning.presets import DEFAULT_STRATEGY, preset_for
from vilco_app.learning.resolving import Resolved, resolve_stage
from vilco_app.learning.restoring import Restored, restore
from vilco_app.learning.samples import Sampler
from vilco_app.learning.scoring import METRIC, Probe, Prober, choose_weight, score
from vilco_app.learning.snapshots import BASE, Snapshots
from vilco_app.learning.teaching import compared, decide, size_of, strangers, teach
from vilco_app.learning.types import Fusion, LearnReport, Matrix, Progress
from vilco_app.stages import Example, Stage, load_stage
from vilco_app.values import VilcoError

if TYPE_CHECKING:
    from vilco_app.encoders.base import Profile

PICTURES = 16  # held-out picture examples kept per stage, as correspondence maps: 5 MB
PROBES = 64  # held-out examples per stage that are checked after every later stage: keeps the checks linear and small
FAMILIES = ("nlq", "mq", "vq")


def learn_stage(
    home: Path,
    library: Any,
    profile: Profile,
    source: Any,
    strategy: str | None = None,
    preset: str = "auto",
    progress: Progress | None = None,
    job: str | None = None,
    activate: bool = True,
    should_stop: Callable[[], bool] | None = None,
    parent: str | None = None,
) -> LearnReport:
    """See `vilco_app.learning.learn`. should_stop: asked before every step; true: `Stopped` is raised, work is kept.

    parent: the snapshot to learn on top of; None: the active one.
    """
    began = time.perf_counter()
    say = progress or (lambda done, total, text: None)
    snapshots = Snapshots(home)
    resolved = resolve_stage(source, library, profile, progress)
    stage = resolved.stage
    parent = parent or snapshots.active()
    start = restore(snapshots, parent, profile, strategy or _parent_strategy(snapshots, parent))
    sampler = Sampler(library, profile, start.learner.config)
    train = stage.part("train")
    if not train:
        raise VilcoError(
            "bad-stage", f'stage "{stage.name}": every example is held out.', 'Mark some "split": "train".'
        )
    index = len(start.stages)
    finder = finder_of(library, profile) if stage.family == "vq" else None
    samples = [make_sample(sampler, resolved, e, index, library, profile, finder) for e in train]
    narrations = narration_samples(sampler, resolved, index)
    plan = preset_for(preset, stage.family, len(train))
    work = Work(snapshots.folder / ".work", job)
    say(0, 1, f"learning {stage.name}")
    clock = time.perf_counter()
    fitted = fit_stage(start, samples, narrations, stage.name, plan, work, say, should_stop)
    trained = time.perf_counter() - clock
    clock = time.perf_counter()
    say(1, 1, "checking what is remembered")
    name = _unique(stage.name, start.stages)
    held = snapshots.pictures(parent)
    if stage.family == "vq":
        mine = stage.part("heldout")[:PICTURES]
        held += [make_sample(sampler, resolved, e, index, library, profile, finder).compact() for e in mine]
    start.directions = teach(snapshots.directions(parent, profile.blocks), resolved, library, profile)
    start.fusion = decide(start.fusion, start.directions, stage.family, library, profile)
    with start.strategy.view(start.learner):
        network = NetworkGrounder(start.learner, profile.blocks)
        prober = Prober(library, profile).bent(start.fusion.taught, start.directions)
        checked, table = check_all(snapshots, parent, stage, name, resolved, prober, network)
        fusion = fuse_weights(start, checked, resolved, samples, library, profile, plan, stage.family)
        fusion = fuse_pictures(fusion, start, table, resolved, samples, library, profile, plan)
        matrix = _matrix(snapshots, parent, checked, fusion, [str(t["name"]) for t in table], start.learner, held)
    tested = time.perf_counter() - clock
    card = _card(parent, start, name, profile, fusion, fitted, samples, plan.name)
    state = start.strategy.state_dict()
    snapshot = snapshots.save(card, _weights(start), state, matrix, table, held, start.directions)
    work.clear()
    if activate:
        snapshots.use(snapshot)
    say(1, 1, f"saved snapshot {snapshot}")
    return LearnReport(
        snapshot, parent, name, start.strategy.name, loss_summary(fitted), time.perf_counter() - began, matrix, fusion,
        trained, tested, stage.warnings,
    )  # fmt: skip


def make_sample(
    sampler: Sampler, resolved: Resolved, e: Example, index: int, library: Any, profile: Any, finder: Any = None
) -> Any:
    """The network's sample of an example; a picture's frames are decoded here, once."""
    family = resolved.stage.family
    if family == "vq":
        from vilco_app.learning.pictures import picture_sample

        return picture_sample(e, resolved, index, library, profile, finder)
    also = [
        w for o in resolved.stage.examples
        if o.video == e.video and o.text.lower() == e.text.lower() and o.split == "train" for w in o.windows
    ]  # fmt: skip
    return sampler.sample(e, family, resolved.video(e).id, index, also)


def narration_samples(sampler: Sampler, resolved: Resolved, index: int) -> list[Any]:
    """Narrations as samples: a window of 1 s before to 2 s after the time told (narrators speak as things begin)."""
    out = []
    for k, n in enumerate(resolved.stage.narrations):
        length = resolved.videos[n.video].duration
        window = (max(0.0, n.time - 1.0), min(length, n.time + 2.0))
        if window[1] - window[0] < 0.2:
            continue
        e = Example(f"narration-{k}", n.video, (window,), query=n.text)
        out.append(sampler.sample(e, "nlq", resolved.videos[n.video].id, index, ()))
    return out


def check_all(
    snapshots: Snapshots, parent: str, stage: Stage, name: str, resolved: Resolved, prober: Prober,
    network: NetworkGrounder,
) -> tuple[list[list[Probe]], list[dict[str, Any]]]:  # fmt: skip
    """Probes of every stage learnt so far, the new one last, with the new network's proposals; and the table to keep."""
    table = snapshots.probes(parent) if parent != BASE else []
    mine = [_held(e, resolved) for e in stage.part("heldout")][:PROBES]
    table = [*table, {"name": name, "family": stage.family, "examples": mine}]
    return [probes_of(entry, prober, network) for entry in table], table


def probes_of(entry: dict[str, Any], prober: Prober, network: NetworkGrounder | None) -> list[Probe]:
    """The probes of a stage's entry whose recording is still there and whose windows are not forgotten."""
    if entry["family"] == "vq" or not entry["examples"]:
        return []
    stage = load_stage({"schema": 1, "name": entry["name"], "family": entry["family"], "examples": entry["examples"]})
    out = []
    for e in stage.examples:
        try:
            spans = prober.library.stored(e.video).forgotten
        except VilcoError:
            continue  # the recording was removed
        if not any(s < b and t > a for s, t in e.windows for a, b in spans):
            out.append(prober.probe(e, entry["family"], e.video, network))
    return out


def fuse_weights(
    start: Restored, checked: list[list[Probe]], resolved: Resolved, samples: list[Any], library: Any, profile: Any,
    plan: Any, family: str,
) -> Fusion:  # fmt: skip
    """A weight per family, from held-out examples of all stages and, where those are few, folds of the new stage."""
    weights, reasons, doubts = dict(start.fusion.__dict__), dict(start.fusion.reasons), dict(start.fusion.doubts)
    taught = start.fusion.taught
    pool = [p for probes in checked for p in probes if p.family == family]
    if family != "vq":  # pictures: fuse_pictures
        untaught = (
            any(not e.windows for e in resolved.stage.part("train")) and sum(not p.example.windows for p in pool) < 5
        )
        if sum(bool(p.example.windows) for p in pool) < 20 or untaught:
            pool += fold_probes(
                start, resolved, samples, library, profile, plan, strangers(start, resolved, library, profile)
            )
        taught, why = compared(taught, pool, family)
        reasons |= {f"{family} taught": why} if why else {}
        weights[family], reasons[family] = choose_weight(pool)
        doubts.pop(family, None)  # it was fitted to another network
        fitted, why = choose_doubt(pool, library, profile)
        if why:
            reasons[f"{family} absent"] = why
        if fitted is not None:
            doubts[family] = (fitted.slope, fitted.level)
    for other in FAMILIES:
        if other != family:
            known = [p for probes in checked for p in probes if p.family == other]
            if known:
                weights[other], reasons[other] = choose_weight(known)
            doubts.pop(other, None)
            fitted, why = choose_doubt(known, library, profile)
            if fitted is not None:
                doubts[other], reasons[f"{other} absent"] = (fitted.slope, fitted.level), why
    return Fusion(weights["nlq"], weights["mq"], weights["vq"], reasons, doubts, taught)


def _matrix(
    snapshots: Snapshots, parent: str, checked: list[list[Probe]], fusion: Fusion, names: list[str], learner: Any,
    pictures: list[Any],
) -> Matrix:  # fmt: skip
    """The parent's matrix with one row more: fused answers on every stage's held-out part (vq: the head on kept maps)."""
    from vilco_app.learning.picture_scores import head_hits

    old = snapshots.matrix(parent) if parent != BASE else Matrix()
    row, hits, queries = [], [], []
    for k, probes in enumerate(checked):
        found = [(p.example.id, s[METRIC]) for p in probes if (s := score(p, getattr(fusion, p.family))) is not None]
        seen = [s for s in pictures if s.task == k and bool(s.targets["present"].any())]
        found += [(s.id, h) for s, h in zip(seen, head_hits(learner, seen), strict=True)]
        row.append(sum(h for _, h in found) / len(found) if found else None)
        hits.append(tuple(h for _, h in found))
        queries.append(tuple(q for q, _ in found))
    width = len(names)
    values = [tuple([*r, *([None] * (width - len(r)))]) for r in old.values]
    before = [tuple([*h, *([()] * (width - len(h)))]) for h in old.hits]
    return Matrix(METRIC, tuple(names), (*values, tuple(row)), (*before, tuple(hits)), tuple(queries))


def _held(e: Example, resolved: Resolved) -> dict[str, Any]:
    kept = {**e.to_json(), "video": resolved.video(e).id}
    if e.image is not None:  # later stages lie elsewhere
        kept["image"] = str((resolved.stage.folder / Path(e.image).expanduser()).absolute())
    if e.query_frame is not None:
        kept["query_frame"] = {**e.query_frame.to_json(), "video": resolved.videos[e.query_frame.video].id}
    return kept


def _unique(name: str, taken: tuple[str, ...]) -> str:
    if name not in taken:
        return name
    k = 2
    while f"{name} ({k})" in taken:
        k += 1
    return f"{name} ({k})"


def _parent_strategy(snapshots: Snapshots, parent: str) -> str:
    card = snapshots.card(parent)
    return str(card.get("strategy") or card.get("default_strategy") or DEFAULT_STRATEGY)


def _weights(start: Restored) -> dict[str, Any]:
    return {"config": start.learner.config.to_json(), "learner": start.learner.state_dict()}


def _card(
    parent: str,
    start: Restored,
    name: str,
    profile: Any,
    fusion: Fusion,
    fitted: Fitted,
    samples: list[Any],
    preset: str,
) -> dict[str, Any]:
    spans = [list(s) for s in {span for sample in samples for span in sample.spans}]
    cost = start.strategy.cost()
    return {
        "parent": parent, "stages": [*start.stages, name], "profile": profile.id, "strategy": start.strategy.name,
        "fusion": fusion.to_json(), "losses": loss_summary(fitted), "preset": preset,
        "spans": sorted([*start.spans, *spans]), "examples": len(samples),
        "directions": len(start.directions or ()),
        "cost": {"bytes": cost.bytes + size_of(start.directions), "forwards": cost.forwards, "backwards": cost.backwards},
        "curve": fitted.curve(),
    }  # fmt: skip
