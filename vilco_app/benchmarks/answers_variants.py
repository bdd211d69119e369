"""What each choice of the zero-shot grounder brings: the table in docs/answers.md.

    python -m vilco_app.benchmarks.answers_variants CASES NAME... [--home DIR]

Every row is the product with one choice changed, on the text, moment and absent questions of the lists together.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vilco_app.answering import DEFAULTS, Answerer, Options
from vilco_app.benchmarks.answers import _read
from vilco_app.benchmarks.answers_scores import LEVELS
from vilco_app.encoders.base import Blocks
from vilco_app.evaluation.retrieval import auroc, hit_at
from vilco_app.values import MomentQuery, TextQuery

OPTIONS: dict[str, Options] = {
    "as shipped": DEFAULTS,
    "asking words kept": replace(DEFAULTS, strip_asking=False),
    "without regions": replace(DEFAULTS, region_weight=0.0),
    "regions count double": replace(DEFAULTS, region_weight=2.0),
    "not smoothed": replace(DEFAULTS, smooth=0.0),
    "smoothed over 2 s": replace(DEFAULTS, smooth=2.0),
    "length weight .15": replace(DEFAULTS, length_weight=0.15),
    "length weight .35": replace(DEFAULTS, length_weight=0.35),
    "length weight .5": replace(DEFAULTS, length_weight=0.5),
    "first answer by contrast .3": replace(DEFAULTS, text_contrast=0.3),
    "moments without contrast": replace(DEFAULTS, moment_contrast=0.0),
    "rest as the first": replace(DEFAULTS, rest_contrast=0.0, rest_length_weight=DEFAULTS.length_weight),
    "rest contrast .5": replace(DEFAULTS, rest_contrast=0.5),
    "rest contrast 1": replace(DEFAULTS, rest_contrast=1.0),
    "harder suppression (.2)": replace(DEFAULTS, overlap=0.2),
    "6 unrelated questions": replace(DEFAULTS, null_questions=6),
}
BLOCKS = ("conse", "q2c", "colour")  # each left out once, where the profile has it


def without(blocks: Blocks, name: str) -> Blocks:
    return replace(
        blocks, weights=tuple(0.0 if n == name else w for n, w in zip(blocks.names, blocks.weights, strict=True))
    )


def variants(cases: Path, names: Sequence[str], home: Path) -> list[tuple[str, dict[str, float]]]:
    """-> (variant, metrics) rows; metrics as of `bench answers`, moments prefixed with "moment "."""
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(home)
    lists = []
    for name in names:
        memory.add(cases / f"{name}.mp4")
        lists.append((memory.resolve(cases / f"{name}.mp4"), _read(cases, name)))
    rows = []
    for label, options in OPTIONS.items():
        rows.append((label, _measure(Answerer(memory.library, memory.profile, options), lists)))
    for block in BLOCKS:
        if block in memory.profile.blocks.names:
            answerer = Answerer(memory.library, memory.profile)
            answerer.zero_shot.blocks = without(memory.profile.blocks, block)
            rows.append((f"without {block}", _measure(answerer, lists)))
    return rows


def _measure(answerer: Answerer, lists: Sequence[tuple[Any, dict[str, Any]]]) -> dict[str, float]:
    hits: dict[str, list[list[bool]]] = {"": [], "moment ": []}
    present, absent = [], []
    for video, data in lists:
        for q in data["text_queries"]:
            answer = answerer.text(TextQuery(q["text"]), [video])
            windows = [(m.start, m.end) for m in answer.moments]
            truth = q["windows"] + q.get("also_plausible", [])
            hits[""].append([hit_at(windows, truth, k, t) for k, t in LEVELS])
            present.append(answer.confidence)
        absent += [answerer.text(TextQuery(q), [video]).confidence for q in data["absent_queries"]]
        for label, truth in data["moments"].items():
            answer = answerer.moments(MomentQuery((label.replace("_", " "),)), [video])
            windows = [(m.start, m.end) for m in answer.moments]
            hits["moment "].append([hit_at(windows, truth, k, t) for k, t in LEVELS])
    out = {}
    for prefix, rows in hits.items():
        for (k, t), value in zip(LEVELS, np.mean(np.array(rows, dtype=float), axis=0), strict=True):
            out[f"{prefix}R@{k}@{t}"] = float(value)
    return {**out, "AUROC": auroc(present, absent)}


def arguments(about: str | None) -> argparse.Namespace:
    """CASES NAME... [--home HOME]. about: the docstring of the module that is run."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("cases", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--home", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        for label, metrics in variants(args.cases, args.names, args.home or Path(scratch)):
            cells = " | ".join(f"{v:.2f}" for v in metrics.values())
            print(f"| {label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
