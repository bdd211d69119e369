"""What several tests need: encoders prepared once, homes that use them, and nothing reaching outside."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from vilco_app import EpisodicMemory

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


@pytest.fixture(scope="module")
def street_memory(make_home: Callable[[], Path], street: Path) -> EpisodicMemory:
    """A memory of its own for each module, with the street in it."""
    from vilco_app import EpisodicMemory

    memory = EpisodicMemory(make_home())
    memory.add(street)
    return memory


@pytest.fixture(scope="module")
def prepared_models(tmp_path_factory: pytest.TempPathFactory, encoders: Path) -> Path:
    """A models folder whose embedded encoder (the text side of unaligned profiles) is prepared already."""
    models = tmp_path_factory.mktemp("models")
    (models / "encoders").mkdir()
    for folder in encoders.glob("embedded@*"):
        (models / "encoders" / folder.name).symlink_to(folder)
    return models


@pytest.fixture(scope="module")
def smooth_pictures() -> np.ndarray:
    """[3, 64, 111, 3] smooth smooth_pictures, wider than high."""
    y, x = np.mgrid[0:64, 0:111]
    waves = [np.sin(x / (7 + k) + k) * np.cos(y / (5 + k)) for k in range(9)]
    return (np.stack(waves, -1).reshape(64, 111, 3, 3).transpose(2, 0, 1, 3) * 127 + 128).astype(np.uint8)
