"""What several tests need: encoders prepared once, homes that use them, and nothing reaching outside."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
# Tiny tensors are not worth a second thread, and its busy waiting costs eight times the processor time on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def encoders() -> Path:
    """The checkout's `models/encoders`, with the embedded profile converted (20 CPU seconds, the first time only)."""
    from vilco_app.encoders import load_profile

    load_profile("embedded", CHECKOUT / "models")
    return CHECKOUT / "models" / "encoders"


@pytest.fixture(scope="session")
def make_home(encoders: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A maker of empty homes whose encoders need no conversion."""
    numbers = itertools.count()

    def make() -> Path:
        home = tmp_path_factory.mktemp(f"home{next(numbers)}")
        (home / "models").mkdir()
        (home / "models" / "encoders").symlink_to(encoders, target_is_directory=True)
        return home

    return make


@pytest.fixture(scope="session")
def street() -> Path:
    """10 s of real footage, a dependency's: cars and a taxi, from 4 s on bicycles (ridden, at a fence, at a wall)."""
    from vilco_app.ui.demo import demo_paths

    return next(p for p in demo_paths() if p.name == "bikes.mp4")
