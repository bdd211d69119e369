"""What tests of encoders share."""

from __future__ import annotations

import numpy as np

from vilco_app.encoders import RuntimeOptions
from vilco_app.encoders.cells import unit

TORCH = RuntimeOptions(engine="torch")


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (unit(a) * unit(b)).sum(-1)
