"""Cutting a benchmark into stages: by query template (NLQ), groups of categories (MQ), object titles (VQ).

Every function is a pure function of its input and a seed; `save_splits` writes what it decided as JSON: example ids per
stage, counts, and a digest, so that two people can check that they trained on the same split.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vilco_app.stages.format import write_json
from vilco_app.stages.types import Example, Stage
from vilco_app.values import SCHEMA, VilcoError

OTHER = "no template"


def by_template(stage: Stage, stages: int | None = None) -> list[Stage]:
    """NLQ: one stage per template, in order of first appearance (13 in Ego4D).

    Queries without a template go to the one whose queries share most words with theirs (weighted by rarity). stages: keep
    only the first so many.
    """
    names: dict[str, list[Example]] = {}
    lost: list[Example] = []
    for e in stage.examples:
        template = e.source.get("template") or e.extra.get("template")
        if template:
            names.setdefault(str(template), []).append(e)
        else:
            lost.append(e)
    if not names:
        raise VilcoError(
            "no-template", f'stage "{stage.name}": no example has a template.', "Split by category instead."
        )
    spread = Counter(w for members in names.values() for w in {w for e in members for w in _words(e.text)})
    vocabulary = {t: Counter(w for e in members for w in _words(e.text)) for t, members in names.items()}
    for e in lost:

        def fit(template: str, e: Example = e) -> float:
            seen = vocabulary[template]
            return sum((seen[w] / len(names[template])) / spread[w] for w in set(_words(e.text)) if w in seen)

        names[max(names, key=fit)].append(e)
    chosen = list(names.items())[:stages]
    return [replace(stage, name=name, examples=tuple(members), warnings=()) for name, members in chosen]


def _words(text: str) -> list[str]:
    return [w.strip(".,?!\"'").lower() for w in text.split()]


def by_category(
    stage: Stage, stages: int = 5, seed: int = 0, order: Sequence[str] | None = None, exclusive: bool = True
) -> list[Stage]:
    """MQ: equal groups of categories (5 x 22 in Ego4D), balanced by number of examples.

    order: categories in the benchmark's own order, cut in blocks (the reference code's split); None: the seeded, balanced
    one: categories by falling count are dealt to the group with the fewest examples that still has room. exclusive: a
    recording's examples go to the group most of them belong to (ties: the first); others on it are left out, so that no
    recording is in two stages, as the paper says.
    """
    counts = Counter(e.category for e in stage.examples if e.category)
    names = list(order) if order is not None else sorted(str(c) for c in counts)
    unknown = set(counts) - set(names)
    if unknown or len(names) < stages:
        what = f"categories outside the given order: {', '.join(sorted(map(str, unknown))[:5])}" if unknown else (
            f"{len(names)} categories cannot make {stages} stages")  # fmt: skip
        raise VilcoError("bad-split", f'stage "{stage.name}": {what}.', "Give all categories, or fewer stages.")
    groups = _blocks(names, stages) if order is not None else _deal(names, counts, stages, seed)
    return _grouped(stage, groups, lambda e: e.category or "", exclusive, "categories")


def by_object(stage: Stage, stages: int = 5, seed: int = 0, exclusive: bool = False) -> list[Stage]:
    """VQ: object titles shuffled by the seed and dealt evenly (5 stages in ViLCo-Bench)."""
    counts = Counter(_title(e) for e in stage.examples)
    if len(counts) < stages:
        raise VilcoError(
            "bad-split",
            f'stage "{stage.name}": {len(counts)} object titles cannot make {stages} stages.',
            "Ask for fewer.",
        )
    return _grouped(stage, _deal(sorted(counts), counts, stages, seed), _title, exclusive, "objects")


def _title(e: Example) -> str:
    return str(e.source.get("object_title") or e.extra.get("object_title") or e.text or e.image or "")


def _blocks(names: Sequence[str], stages: int) -> list[list[str]]:
    size = -(-len(names) // stages)
    return [list(names[k * size : (k + 1) * size]) for k in range(stages)]


def _deal(names: Sequence[str], counts: Counter[Any], stages: int, seed: int) -> list[list[str]]:
    """Groups of equal size (to one) and near-equal examples: largest first to the lightest group with room."""
    shuffled = sorted(names)
    random.Random(seed).shuffle(shuffled)  # decides between equal counts
    room = [len(names) // stages + (k < len(names) % stages) for k in range(stages)]
    groups: list[list[str]] = [[] for _ in range(stages)]
    load = [0] * stages
    for name in sorted(shuffled, key=lambda n: -counts[n]):
        k = min((k for k in range(stages) if len(groups[k]) < room[k]), key=lambda k: (load[k], k))
        groups[k].append(name)
        load[k] += counts[name]
    return groups


def _grouped(
    stage: Stage, groups: list[list[str]], key: Callable[[Example], str], exclusive: bool, what: str
) -> list[Stage]:
    owner = {name: k for k, group in enumerate(groups) for name in group}
    homes: dict[str, int] = {}
    if exclusive:
        votes: dict[str, Counter[int]] = {}
        for e in stage.examples:
            votes.setdefault(e.video, Counter())[owner[key(e)]] += max(1, len(e.windows))
        homes = {v: min(c, key=lambda k: (-c[k], k)) for v, c in votes.items()}
    out = []
    for k, group in enumerate(groups):
        members = [e for e in stage.examples if owner[key(e)] == k and homes.get(e.video, k) == k]
        if members:
            title = f"{stage.name} {k + 1} of {len(groups)}"
            out.append(
                replace(stage, name=title, examples=tuple(members), warnings=(), extra={**stage.extra, what: group})
            )
    return out


def split_json(stages: Sequence[Stage], how: str, seed: int) -> dict[str, Any]:
    """What a split decided: names, example ids by part, counts, and a digest of it all."""
    rows = [
        {"name": s.name, "family": s.family, "train": [e.id for e in s.part("train")],
         "heldout": [e.id for e in s.part("heldout")], "examples": len(s.examples),
         "videos": len({e.video for e in s.examples})}
        for s in stages
    ]  # fmt: skip
    digest = hashlib.blake2b(json.dumps(rows, sort_keys=True).encode(), digest_size=8).hexdigest()
    return {"schema": SCHEMA, "how": how, "seed": seed, "digest": digest, "stages": rows}


def save_splits(stages: Sequence[Stage], how: str, seed: int, folder: Path) -> list[Path]:
    """Write splits.json and one stage file per stage into `folder` -> their paths, splits.json first."""
    paths = [folder / "splits.json"]
    write_json(paths[0], split_json(stages, how, seed))
    for k, s in enumerate(stages):
        paths.append(folder / f"stage-{k + 1:02d}.json")
        write_json(paths[-1], s.to_json())
    return paths
