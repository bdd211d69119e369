"""From scores to the probability that what was asked for is in the footage at all."""

from __future__ import annotations

import math


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, x))))


def confidence(best: float) -> float:
    """best: the best window's score. First version: even odds at three deviations."""
    return sigmoid(best - 3.0)


def picture_confidence(cosine: float) -> float:
    """cosine: of the best dense match. Even odds at 0.47, between the best wrong places (0.24 to 0.54 on the labelled
    clips, mean 0.44) and the right ones (0.47 to 0.74, mean 0.61)."""
    return sigmoid(20.0 * (cosine - 0.47))
