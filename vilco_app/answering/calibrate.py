"""From scores to the probability that what was asked for is in the footage at all."""

from __future__ import annotations

import math
from dataclasses import dataclass


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, x))))


# Logistic regression with two inputs on the 156 labelled questions of the two development lists (docs/answers.md).
STEEPNESS = 0.80  # per deviation of the best window above the level of unrelated questions
SURENESS = 0.32  # per factor e in the weight of the best concept: a thing known by name has to show itself more clearly
TYPICAL_WEIGHT = 0.145  # weight of the best concept at which it changes nothing


def confidence(best: float, level: float, concept_weight: float | None = None) -> float:
    """Probability that what was asked for is in the footage.

    best: the best window's score; level: the mean best score of unrelated questions on the same footage; concept_weight:
    of the question's best concept in (0, 1], None when the profile names none.
    """
    logit = STEEPNESS * (best - level)
    if concept_weight:
        logit -= SURENESS * math.log(concept_weight / TYPICAL_WEIGHT)
    return sigmoid(logit)


def picture_confidence(cosine: float) -> float:
    """cosine: of the best dense match. Even odds at 0.47, between the best wrong places (0.24 to 0.54 on the labelled
    clips, mean 0.44) and the right ones (0.47 to 0.74, mean 0.61)."""
    return sigmoid(20.0 * (cosine - 0.47))


def logit(p: float) -> float:
    p = min(max(p, 1e-6), 1.0 - 1e-6)
    return math.log(p / (1.0 - p))


@dataclass(frozen=True)
class Doubt:
    """How a network that was taught "not in here" lowers a confidence; it never raises one.

    Below `level` (logit of the network's best window on what was searched) each unit takes `slope` off the confidence's
    logit. On more footage than it was fitted on the network's best window only gets better, so that doubt gets weaker.
    """

    slope: float
    level: float

    def lowered(self, confidence: float, best: float) -> float:
        """confidence: in [0, 1], before. best: the network's best window score in (0, 1); 0 when it proposes none."""
        return sigmoid(logit(confidence) + self.slope * min(0.0, logit(best) - self.level))
