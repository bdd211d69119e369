"""What was asked and corrected before: listed, used as 'last', taken back, forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_cli_contract import asked, vilco
from vilco_app import EpisodicMemory
from vilco_app.values import VilcoError


@pytest.fixture(scope="module")
def library(make_home: Callable[[], Path], street: Path) -> Path:
    home = make_home()
    asked("add", str(street), home=home)
    return home


def test_the_last_answer_can_be_corrected_exported_and_the_correction_taken_back(library: Path, tmp_path: Path) -> None:
    question = "a parked bicycle"
    first = asked("ask", question, home=library)
    asked("correct", "last", "--start", "1", "--end", "2.5", home=library)
    again = asked("ask", question, home=library)
    assert again["moments"][0]["source"] == "correction" and again["moments"][0]["start"] == 1.0
    table = tmp_path / "last.csv"
    asked("export", "last", "--to", "csv", "-o", str(table), home=library)
    assert "1.0" in table.read_text().splitlines()[1]
    (filed,) = asked("corrections", home=library)["corrections"]
    assert filed["windows"] == [[1.0, 2.5]] and filed["query"] == question
    assert question in vilco("corrections", home=library).stdout
    assert asked("corrections", "--remove", filed["id"][:5], home=library)["removed"][0]["id"] == filed["id"]
    assert asked("corrections", home=library)["corrections"] == []
    assert asked("ask", question, home=library)["moments"] == first["moments"]
    error = asked("corrections", "--remove", filed["id"], home=library, code=1)["error"]
    assert error["code"] == "no-such-correction" and "vilco corrections" in error["remedy"]


def test_history_lists_questions_of_all_kinds_and_can_be_forgotten(library: Path, street: Path) -> None:
    memory = EpisodicMemory(library)
    memory.clear_history()
    given = [memory.ask("a car", curve=True), memory.moments(["walk", "drive"]), memory.find(f"{street}@8")]
    past = asked("history", home=library)["history"]
    assert [p["kind"] for p in past] == ["visual", "moment", "text"]
    for kept, answer in zip(past, reversed(given), strict=True):
        data = answer.to_json()
        data.pop("curves", None)
        kept.pop("asked")
        assert kept == data
    assert [p["query"] for p in asked("history", "--limit", "1", home=library)["history"]] == [past[0]["query"]]
    assert "a car" in vilco("history", home=library).stdout
    assert asked("history", "--clear", home=library)["removed"] == 3
    assert asked("history", home=library)["history"] == []
    error = asked("correct", "last", "--rank", "1", home=library, code=1)["error"]
    assert error["code"] == "no-history"


def test_only_the_newest_answers_are_kept(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vilco_app.library import catalogue

    monkeypatch.setattr(catalogue, "REMEMBERED", 3)
    memory = EpisodicMemory(library)
    for k in range(5):
        memory.ask(f"question {k}")
    assert [p.answer.query for p in memory.history()] == ["question 4", "question 3", "question 2"]


def test_a_question_is_answered_when_history_cannot_be_written(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = EpisodicMemory(library)
    memory.clear_history()

    def refuse(*_: object) -> None:
        raise VilcoError("disk-full", "no space.", "Make room.")

    monkeypatch.setattr(memory.catalogue.catalogue, "remember", refuse)
    assert memory.ask("a car").moments and memory.history() == []


def test_an_answer_with_a_picture_is_corrected_from_history(library: Path, street: Path) -> None:
    asked("find", f"{street}@8", home=library)
    asked("correct", "last", "--start", "0.5", "--end", "1.5", home=library)
    again = asked("find", f"{street}@8", home=library)
    assert again["moments"][0]["source"] == "correction"
    (filed,) = asked("corrections", home=library)["corrections"]
    assert filed["kind"] == "visual" and json.dumps(filed["windows"]) == "[[0.5, 1.5]]"
    asked("corrections", "--remove", filed["id"], home=library)
