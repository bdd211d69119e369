"""Scores of a network, alone and fused, on labelled examples; the weights of the fusion are chosen here as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.answering.curve import passages_of
from vilco_app.answering.grounding import Grounded, fuse
from vilco_app.answering.options import DEFAULTS
from vilco_app.answering.questions import Questions
from vilco_app.answering.windows import best_windows
from vilco_app.network.decode import iou_1d

if TYPE_CHECKING:
    from vilco_app.answering.curve import Passage
    from vilco_app.learning.directions import Directions
    from vilco_app.learning.grounder import NetworkGrounder
    from vilco_app.stages import Example

METRIC = "R@1@0.3"
TOP = 5
KINDS: dict[str, Any] = {"nlq": "text", "mq": "moment"}
GRID = tuple(round(0.1 * k, 1) for k in range(11))


@dataclass
class Probe:
    """A labelled example on its recording, with what both grounders propose. zero_shot: None in unaligned profiles, but for
    known questions, which taught directions then answer alone."""

    example: Example
    family: str
    passages: list[Passage]
    zero_shot: Grounded | None
    network: Grounded | None = None
    known: bool = False

    def ranked(self, weight: float, top: int = TOP) -> np.ndarray:
        """The best windows [n, 3] (start, end, score) at a fusion weight."""
        if self.zero_shot is None:
            grounded = self.network
        else:
            grounded = fuse(self.zero_shot, self.network, 0.0 if self.known else weight)
        if grounded is None or not len(grounded.windows.scores):
            return np.zeros((0, 3))
        w = grounded.windows
        best = best_windows(w, top, DEFAULTS.overlap)
        return np.stack([w.starts[best], w.ends[best], w.scores[best]], axis=1)


class Prober:
    """Makes probes of examples; zero-shot proposals are computed once per example."""

    def __init__(self, library: Any, profile: Any) -> None:
        from vilco_app.answering.grounding import ZeroShotGrounder

        self.library, self.profile = library, profile
        self.questions = Questions(profile, DEFAULTS)  # as answers encode them
        self.zero_shot = ZeroShotGrounder(profile.blocks, DEFAULTS)
        self._passages: dict[str, list[Passage]] = {}
        self._choices: Mapping[str, tuple[float, float]] = {}
        self._directions: Directions | None = None

    def bent(self, choices: Mapping[str, tuple[float, float]], directions: Directions | None) -> Prober:
        """This prober, asking with a memory of taught directions. choices: (strength, nearness) by family."""
        other = copy(self)
        other._choices, other._directions = choices, directions
        return other

    def probe(self, example: Example, family: str, video: str, network: NetworkGrounder | None) -> Probe:
        if video not in self._passages:
            self._passages[video] = passages_of(self.library.stored(video))
        passages = self._passages[video]
        vectors = self.questions(example.text.replace("_", " "))
        kind = KINDS[family]
        first, looked = None, vectors
        if self._directions is not None and family in self._choices:
            sought = self.questions.sought(example.text.replace("_", " "))
            looked, _ = self._directions.bend(vectors, sought, *self._choices[family])
        if looked.scene is not None and passages:
            first = self.zero_shot.propose(looked, kind, passages)
        second = network.propose(vectors, kind, passages) if network is not None and passages else None
        return Probe(example, family, passages, first, second, vectors.scene is None and looked.scene is not None)


def recalls(ranked: np.ndarray, windows: Sequence[tuple[float, float]], family: str) -> dict[str, float]:
    """R@k@t of one example: NLQ: 1 if any of the first k has IoU >= t with a window. MQ (vilco.md 6.1): the share of the
    n windows met by one of the first k * n."""
    out: dict[str, float] = {}
    truth = np.asarray(windows, dtype=float).reshape(-1, 2)
    iou = iou_1d(ranked[:, :2], truth) if len(ranked) else np.zeros((0, len(truth)))
    for k in (1, 5):
        count = k * len(truth) if family == "mq" else k
        best = iou[:count].max(axis=0) if len(iou[:count]) else np.zeros(len(truth))
        for t in (0.3, 0.5):
            hit = best >= t
            out[f"R@{k}@{t}"] = float(hit.mean() if family == "mq" else hit.any())
    out["mIoU"] = float(iou[:1].max()) if len(iou) else 0.0
    return out


def score(probe: Probe, weight: float) -> dict[str, float] | None:
    """Metrics of one example; None for a negative (nothing to localise)."""
    if not probe.example.windows:
        return None
    top = TOP * len(probe.example.windows) if probe.family == "mq" else TOP
    return recalls(probe.ranked(weight, top), probe.example.windows, probe.family)


def goodness(probe: Probe, weight: float) -> float:
    """What the fusion weight is chosen by: hit at IoU 0.3 and overlap of the best window, half each (less jumpy than hits)."""
    found = score(probe, weight)
    return 0.0 if found is None else 0.5 * found[METRIC] + 0.5 * found["mIoU"]


def choose_weight(probes: Sequence[Probe], least: int = 5) -> tuple[float, str]:
    """Fusion weight in [0, 1] by cross-validation over labelled examples no scored network was trained on, and the reason.

    Leave-one-out under 20 examples, else ten folds: the weight is chosen on the others, its gain is measured on the one left
    out. A gain within one standard error, or fewer than `least` examples, leaves the weight at 0: answers stay zero-shot.
    """
    probes = [p for p in probes if p.example.windows and p.network is not None]
    if probes and all(p.zero_shot is None or p.known for p in probes):
        return 1.0, "this profile has no zero-shot answers: the network answers alone"
    return weigh(np.array([[goodness(p, w) for w in GRID] for p in probes]), GRID, least)


def weigh(table: np.ndarray, grid: Sequence[float], least: int = 5) -> tuple[float, str]:
    """The weight of `grid` (its first: 0) by cross-validation over a table [n, weights] of goodness, and why: `choose_weight`."""
    n = len(table)
    if n < least:
        return 0.0, f"only {n} labelled examples to check the network by; {least} are needed before it may answer"
    found = cross_validated(table)
    if not found.earned:
        said = f"no gain beyond one standard error ({found.gain:+.3f}, error {found.error:.3f})"
        return 0.0, f"{found.how}: {said}"
    return grid[found.best], f"{found.how}: {found.gain:+.3f} against zero-shot alone (error {found.error:.3f})"


@dataclass(frozen=True)
class CrossValidated:
    """What choosing by other examples gains over the first choice. best: the choice by all of them; how: in words."""

    best: int
    gain: float
    error: float
    how: str

    @property
    def earned(self) -> bool:
        """Whether the gain is beyond one standard error."""
        return self.gain > max(self.error, 0.0)


def cross_validated(table: np.ndarray) -> CrossValidated:
    """table [n, choices] of goodness, n >= 2: leave-one-out under 20 examples, else ten folds."""
    n = len(table)
    folds = n if n < 20 else 10
    owner = np.arange(n) % folds
    gain = np.zeros(n)
    for f in range(folds):
        out = owner == f
        gain[out] = table[out][:, _best(table[~out].mean(axis=0))] - table[out][:, 0]
    how = f"{'leave-one-out' if folds == n else '10-fold cross-validation'} over {n} examples"
    error = float(gain.std(ddof=1) / np.sqrt(n))
    return CrossValidated(_best(table.mean(axis=0)), float(gain.mean()), error, how)


def _best(means: np.ndarray) -> int:
    """Index of the best mean; of equals the smallest weight."""
    return int(np.flatnonzero(means >= means.max() - 1e-9)[0])


def bootstrap(hits: Sequence[float], share: float = 0.9, draws: int = 2000) -> tuple[float, float]:
    """Percentile interval of the mean over examples (seeded)."""
    if not len(hits):
        return 0.0, 0.0
    rng = np.random.default_rng(0)
    values = np.asarray(hits, dtype=float)
    means = values[rng.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
