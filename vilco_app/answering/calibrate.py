"""From scores to the probability that what was asked for is in the footage at all."""

from __future__ import annotations

import math
from dataclasses import dataclass


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, x))))


# Logistic regression with two inputs on the 156 labelled questions of the two development lists, what is there and what is
# not counted alike (docs/answers.md).
HEIGHT = 3.0  # per unit the evidence block rises above the level of unrelated questions
SURENESS = 0.41  # per factor e in the weight of the best concept: a thing known by name has to show itself more clearly
TYPICAL_WEIGHT = 0.145  # weight of the best concept at which it changes nothing
OFFSET = -0.36
STEEPNESS = 0.80  # per deviation of a window: what a worse window of the same answer loses
MARGIN_SURENESS = 0.32  # SURENESS where a profile has no evidence block: STEEPNESS then counts from unrelated questions


@dataclass(frozen=True)
class Reached:
    """How high a question reaches on some footage: its best window's score, and the height of the evidence block there."""

    score: float
    height: float | None = None


def confidence(score: float, best: Reached, level: Reached, concept_weight: float | None = None) -> float:
    """Probability that what was asked for is in the footage, judged by a window of this score.

    best: what the question reaches; level: the mean of what unrelated questions reach on the same footage; concept_weight:
    of the question's best concept in (0, 1], None when the profile names none.
    """
    if best.height is None or level.height is None:
        odds = STEEPNESS * (score - level.score)
        named = MARGIN_SURENESS
    else:
        odds = OFFSET + HEIGHT * (best.height - level.height) + STEEPNESS * (score - best.score)
        named = SURENESS
    if concept_weight:
        odds -= named * math.log(concept_weight / TYPICAL_WEIGHT)
    return sigmoid(odds)


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
