"""Features computed elsewhere become a recording of the library through `add`, without decoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.media import cut_bytes, make
from vilco_app import EpisodicMemory
from vilco_app.values import VilcoError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "features"
    out.mkdir()
    settings = {"schema": 1, "name": "slow-fast", "stride": 0.5, "window": 1.0, "dim": 6}
    (out / "features.json").write_text(json.dumps(settings))
    return out


def test_rows_are_stored_at_their_times(folder: Path, tmp_path: Path, make_home: Callable[[], Path]) -> None:
    """Row k covers [k/2, k/2 + 1] s and so stands for the half second around k/2 + 1/2."""
    clip = make(tmp_path / "walk.mp4", 100)  # 4 s
    rows = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)
    np.save(folder / "walk.npy", rows)
    memory = EpisodicMemory(make_home(), profile=f"precomputed:{folder}")
    report = memory.add(clip)
    assert len(report.added) == 1 and not report.refused and not report.warnings
    stored = memory.library.stored(report.added[0])
    np.testing.assert_allclose(stored.times, np.arange(7) * 0.5 + 0.25)
    np.testing.assert_allclose(stored.durations, 0.5)
    np.testing.assert_allclose(np.asarray(stored.globals, np.float32), rows, atol=2e-3)
    assert memory.catalogue.videos()[0].state == "ready"
    assert memory.add(clip).unchanged == report.added


def test_missing_features_refuse_the_file_by_name(folder: Path, tmp_path: Path, make_home: Callable[[], Path]) -> None:
    memory = EpisodicMemory(make_home(), profile=f"precomputed:{folder}")
    (refused,) = memory.add(make(tmp_path / "other.mp4", 50)).refused
    assert refused.code == "missing-features" and "other" in refused.reason
    assert memory.catalogue.videos() == []


def test_words_need_training_first(folder: Path, tmp_path: Path, make_home: Callable[[], Path]) -> None:
    clip = make(tmp_path / "walk.mp4", 100)
    np.save(folder / "walk.npy", np.ones((7, 6), np.float32))
    memory = EpisodicMemory(make_home(), profile=f"precomputed:{folder}")
    memory.add(clip)
    with pytest.raises(VilcoError) as error:
        memory.ask("where is the kettle?")
    assert error.value.code == "not-aligned" and error.value.remedy


def test_a_truncated_file_is_told_of_when_added(tmp_path: Path, make_home: Callable[[], Path]) -> None:
    whole = make(tmp_path / "whole.mp4", 300, "-movflags", "+faststart")
    cut = cut_bytes(whole, tmp_path / "cut.mp4", 0.5)
    report = EpisodicMemory(make_home()).add(cut)
    assert len(report.added) == 1
    assert "cut.mp4" in report.warnings[0] and "readable up to 6.0 s of 12.0 s" in report.warnings[0]
