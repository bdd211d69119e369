"""May what the network learnt of absence lower a confidence? Decided, like the fusion weight, on examples it was not taught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vilco_app.answering.calibrate import Doubt, logit
from vilco_app.learning.scoring import KINDS, Probe, cross_validated

if TYPE_CHECKING:
    from vilco_app.answering.answerer import Answerer

SLOPES = (0.25, 0.5, 1.0, 2.0)  # from a quarter of what the network says to twice
LEVELS = (0.25, 0.5, 0.75)  # quantiles of the network's best scores at which doubt may begin
LEAST = 5  # examples of either sort: with fewer a chance order looks like a gain


def choose_doubt(probes: Sequence[Probe], library: Any, profile: Any) -> tuple[Doubt | None, str]:
    """The doubt that makes confidences truer (log loss), and a sentence why; (None, "") when no negative was held.

    Leave-one-out under 20 examples, else ten folds; a gain within one standard error leaves the confidence as it is.
    """
    usable = [p for p in probes if p.zero_shot is not None and p.network is not None and p.passages and not p.known]
    present = np.array([bool(p.example.windows) for p in usable], dtype=bool)
    absences = int((~present).sum())
    if not absences:
        return None, ""
    if absences < LEAST or int(present.sum()) < LEAST:
        found = f"to check by: {absences} not in the footage, {int(present.sum())} in it"
        return None, f"{found}; {LEAST} of each are needed"
    before = _confidences(usable, library, profile)
    best = np.array([float(p.network.windows.scores.max(initial=0.0)) for p in usable if p.network is not None])
    return fit_doubt(present, before, best)


def fit_doubt(present: np.ndarray, before: np.ndarray, best: np.ndarray) -> tuple[Doubt | None, str]:
    """present [n] bool; before [n] confidences; best [n] the network's best window scores -> as `choose_doubt`."""
    heights = [float(np.quantile([logit(b) for b in best], q)) for q in LEVELS]
    choices = [Doubt(0.0, 0.0), *(Doubt(s, h) for s in SLOPES for h in heights)]
    after = np.array([[d.lowered(float(c), float(b)) for d in choices] for c, b in zip(before, best, strict=True)])
    right = np.clip(np.where(present[:, None], after, 1.0 - after), 1e-4, 1.0)
    found = cross_validated(np.log(right))  # [n, choices]
    if not found.earned:
        said = f"no truer beyond one standard error ({found.gain:+.3f} nats, error {found.error:.3f})"
        return None, f"{found.how}: confidences get {said}"
    return choices[found.best], f"{found.how}: confidences truer by {found.gain:.3f} nats (error {found.error:.3f})"


def _confidences(probes: Sequence[Probe], library: Any, profile: Any) -> np.ndarray:
    """What the answer would have said without the network [n]."""
    from vilco_app.answering.answerer import Answerer

    answerer: Answerer = Answerer(library, profile)
    out = []
    for p in probes:
        assert p.zero_shot is not None
        vectors = answerer.questions(p.example.text.replace("_", " "))
        sure = answerer.sure(KINDS[p.family], vectors, [p.passages[0].stored.video], p.zero_shot)
        scores = p.zero_shot.windows.scores
        out.append(sure(float(scores.max())) if len(scores) else 0.0)
    return np.array(out)
