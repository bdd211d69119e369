"""Answers read back from files that people and programs have edited."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from vilco_app.cli_support import given_answer
from vilco_app.reading import read_answer
from vilco_app.values import VilcoError

ANSWER: dict[str, Any] = {
    "schema": 1, "query": "a cat", "kind": "visual", "found": True, "confidence": 0.7, "threshold": 0.5,
    "searched": {"videos": 1, "seconds": 30.0, "indexed_seconds": 30.0},
    "moments": [{"video": "2ee1f86bde3f", "path": "cat.mp4", "start": 1.0, "end": 2.5, "score": 0.7, "source": "fused"}],
    "tracks": [{"video": "2ee1f86bde3f", "path": "cat.mp4", "start": 1.0, "end": 2.5, "score": 0.7, "source": "fused",
                "boxes": [[1.0, 0.1, 0.2, 0.3, 0.4]]}],
    "curves": [{"video": "2ee1f86bde3f", "times": [0.0, 0.5], "values": [0.1, 0.2]}],
    "concepts": [["tabby cat", 0.5]], "model": {"snapshot": "base", "profile": "embedded@1"}, "milliseconds": 4.0,
}  # fmt: skip


def edited(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    data = copy.deepcopy(ANSWER)
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return data


def test_an_answer_is_read_as_it_was_written() -> None:
    assert read_answer(ANSWER).to_json() == ANSWER


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("query",), 5), (("kind",), "other"), (("kind",), ["text"]), (("confidence",), "x"), (("confidence",), None),
        (("threshold",), True), (("searched",), []), (("searched", "seconds"), "9"), (("moments",), "abc"),
        (("moments",), [3]), (("moments", 0, "start"), "1"), (("moments", 0, "start"), math.nan),
        (("moments", 0, "start"), -5.0), (("moments", 0, "start"), 9.0), (("moments", 0, "end"), None),
        (("moments", 0, "end"), 1e300), (("moments", 0, "score"), "x"), (("moments", 0, "path"), 7),
        (("moments", 0, "video"), "../../elsewhere"), (("moments", 0, "video"), None), (("moments", 0, "video"), ""),
        (("moments", 0, "source"), "hearsay"), (("tracks", 0, "boxes"), [[1.0, "a", 0.2, 0.3, 0.4]]),
        (("curves", 0, "values"), ["x"]), (("concepts",), [3]), (("model",), None), (("milliseconds",), "x"),
    ],
)  # fmt: skip
def test_a_field_of_a_wrong_type_is_named(path: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(VilcoError) as caught:
        read_answer(edited(path, value))
    assert caught.value.code == "bad-answer"


@pytest.mark.parametrize("name", [n for n in ANSWER if n not in ("found", "curves", "concepts")])
def test_a_missing_field_is_named(name: str) -> None:
    data = {key: value for key, value in ANSWER.items() if key != name}
    with pytest.raises(VilcoError, match=name):
        read_answer(data)


def test_json_nested_without_end_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(VilcoError, match=r"deep\.json"):
        given_answer(tmp_path / "deep.json")
