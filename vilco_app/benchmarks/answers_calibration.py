"""How the numbers of `answering.calibrate` were fitted, and whether they hold on clips they were not fitted on.

    python -m vilco_app.benchmarks.answers_calibration CASES NAME... [--home DIR]

Text questions of the lists (label 1) against what is not in them (label 0), logistic regression, both labels weighing alike,
one clip left out at a time: its questions, also where they were asked of the other list, are scored by the fit on the rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vilco_app.answering.calibrate import TYPICAL_WEIGHT
from vilco_app.benchmarks.answers import _read
from vilco_app.benchmarks.answers_variants import arguments
from vilco_app.evaluation.retrieval import auroc

PENALTY = 1.0  # of the squared coefficients of inputs of unit deviation
INPUTS = {"margin": (2,), "margin, name": (2, 1), "height": (0,), "height, name": (0, 1), "all three": (0, 1, 2)}


@dataclass(frozen=True)
class Cases:
    """inputs [n, 3]: height and score over the level of unrelated questions (columns 0, 2), minus the log of the best concept's
    weight over the typical one (1). labels [n] 1: it is there. clips [n]: whose question it is."""

    inputs: np.ndarray
    labels: np.ndarray
    clips: np.ndarray


def collect(folder: Path, names: Sequence[str], home: Path) -> Cases:
    """Ask every question of the lists. Raises VilcoError when a list is missing."""
    from vilco_app.answering import Answerer
    from vilco_app.answering.curve import passages_of
    from vilco_app.memory import EpisodicMemory

    memory = EpisodicMemory(home)
    lists = {name: _read(folder, name) for name in names}
    owner = {q["text"]: q["clip"] for data in lists.values() for q in data["text_queries"]}
    rows, labels, clips = [], [], []
    for name, data in lists.items():
        memory.add(folder / f"{name}.mp4")
        video = memory.resolve(folder / f"{name}.mp4")
        answerer = Answerer(memory.library, memory.profile)
        level = answerer.level("text", [video])
        passages = passages_of(memory.library.stored(video.id))
        for label, texts in ((1, [q["text"] for q in data["text_queries"]]), (0, data["absent_queries"])):
            for text in texts:
                vectors = answerer.questions(text)
                best = answerer.zero_shot.propose(vectors, "text", passages).reached()
                assert best is not None and best.height is not None and level.height is not None
                weight = max((c.weight for c in vectors.concepts), default=TYPICAL_WEIGHT)
                rows.append((best.height - level.height, -np.log(weight / TYPICAL_WEIGHT), best.score - level.score))
                labels.append(label)
                clips.append(owner.get(text, text))
    return Cases(np.array(rows), np.array(labels), np.array(clips))


def fit(inputs: np.ndarray, labels: np.ndarray, steps: int = 30) -> np.ndarray:
    """Coefficients [k + 1], the offset last, by Newton's method; both labels weigh alike."""
    deviation = inputs.std(axis=0)
    x = np.concatenate([inputs / deviation, np.ones((len(inputs), 1))], axis=1)
    share = np.where(labels == 1, 0.5 / labels.mean(), 0.5 / (1 - labels.mean()))
    ridge = PENALTY * np.diag([1.0] * inputs.shape[1] + [0.0])
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-x @ w))
        slope = x.T @ (share * (p - labels)) + ridge @ w
        w -= np.linalg.solve((x * (share * p * (1 - p))[:, None]).T @ x + ridge, slope)
    found: np.ndarray = w / np.append(deviation, 1.0)
    return found


def held_out(cases: Cases, columns: Sequence[int]) -> np.ndarray:
    """Log odds [n] of every question, by the fit on the questions of all other clips."""
    x = cases.inputs[:, list(columns)]
    out = np.zeros(len(x))
    for clip in set(cases.clips.tolist()):
        mine = cases.clips == clip
        w = fit(x[~mine], cases.labels[~mine])
        out[mine] = x[mine] @ w[:-1] + w[-1]
    return out


def main() -> None:
    args = arguments(__doc__)
    with tempfile.TemporaryDirectory() as scratch:
        cases = collect(args.cases, args.names, args.home or Path(scratch))
    there = cases.labels == 1
    print("| inputs | AUROC | found of what is there | of what is not | coefficients, offset |\n|---|---|---|---|---|")
    for label, columns in INPUTS.items():
        odds = held_out(cases, columns)
        shares = f"{(odds[there] > 0).mean():.2f} | {(odds[~there] > 0).mean():.2f}"
        numbers = ", ".join(f"{v:.2f}" for v in fit(cases.inputs[:, list(columns)], cases.labels))
        print(f"| {label} | {auroc(odds[there].tolist(), odds[~there].tolist()):.2f} | {shares} | {numbers} |")


if __name__ == "__main__":
    main()
