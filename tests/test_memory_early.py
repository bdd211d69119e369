"""What can be refused without encoders is refused before they are prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vilco_app.memory import EpisodicMemory
from vilco_app.values import VilcoError


@pytest.mark.parametrize(
    ("code", "asked"),
    [("empty-library", {}), ("bad-time", {"before": "3:99", "video": "a.mp4"}), ("bad-top", {"top": 0}),
     ("before-needs-one-video", {"before": "0:03"})],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_loads_nothing(code: str, asked: dict[str, Any], tmp_path: Path) -> None:
    memory = EpisodicMemory(tmp_path, profile="no-such-profile")  # loading it would be another error
    for ask in (lambda: memory.ask("a cat", **asked), lambda: memory.moments("run", **asked)):
        with pytest.raises(VilcoError) as told:
            ask()
        assert told.value.code == code
