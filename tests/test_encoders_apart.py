"""Work in a process of its own: what it says, and how it fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vilco_app.encoders.apart import apart
from vilco_app.values import VilcoError

TARGETS = "tests.encoders_apart_targets"


def test_another_process_does_the_work_and_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    apart(f"{TARGETS}:write_pid", tmp_path, lambda done, total, text: told.append((done, total, text)))
    assert told == [(1, 2, "half"), (2, 2, "done")]
    assert int((tmp_path / "pid").read_text()) != os.getpid()
    apart(f"{TARGETS}:write_pid", tmp_path)  # nobody listens


def test_its_error_is_ours(tmp_path: Path) -> None:
    with pytest.raises(VilcoError) as caught:
        apart(f"{TARGETS}:refuse", tmp_path)
    assert (caught.value.code, caught.value.message, caught.value.remedy) == (
        "no-weights", f"{tmp_path.name}: not here.", "Get them.",
    )  # fmt: skip


def test_a_breakdown_is_told_of_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(VilcoError) as caught:
        apart(f"{TARGETS}:break_down", tmp_path)
    assert caught.value.message.endswith("could not be prepared: RuntimeError: out of luck")
    assert caught.value.code == "preparing-failed" and "doctor" in caught.value.remedy
