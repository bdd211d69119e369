"""From scores to the probability that what was asked for is in the footage at all."""

from __future__ import annotations

import math


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, x))))


def confidence(best: float) -> float:
    """best: the best window's score. First version: even odds at three deviations."""
    return sigmoid(best - 3.0)
