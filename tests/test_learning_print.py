"""What `vilco learn`, `models` and `evaluate` print for a person."""

from __future__ import annotations

from vilco_app.cli_print import brief, history_text, learnt_text, matrix_text, models_text
from vilco_app.learning.types import Fusion, LearnReport, Matrix, ModelList, SnapshotInfo
from vilco_app.values import Answer, PastQuestion, Searched


def test_learning_says_how_much_the_network_counts_and_why() -> None:
    fusion = Fusion(0.3, 0, 0, {"nlq": "over 20 examples: +0.1", "nlq absent": "truer by 0.1"}, {"nlq": (1.0, -0.5)})
    report = LearnReport("abc", "base", "kitchen", "episodic", {"new": 1.0}, 12.4, Matrix(), fusion, 8.0)
    text = learnt_text(report.to_json())
    assert "'kitchen'" in text and "abc" in text and "30%" in text and "over 20 examples" in text
    assert "may lower" in text and Fusion.from_json(fusion.to_json()) == fusion


def test_pictures_say_both_of_their_weights() -> None:
    fusion = Fusion(0, 0, 0.5, {"vq": "frames: better", "vq boxes": "no gain"}, vq_boxes=0.25)
    report = LearnReport("abc", "base", "keys", "episodic", {}, 12.4, Matrix(), fusion, 8.0)
    first, second = learnt_text(report.to_json()).splitlines()[1:]
    assert "50%" in first and "frames: better" in first and "25%" in second and "no gain" in second


def test_the_matrix_is_a_triangle_of_numbered_stages() -> None:
    text = matrix_text(Matrix(stages=("one", "two"), values=((0.5, None), (0.25, None))).to_json())
    first, second = text.splitlines()[-2:]
    assert first.split() == ["after", "1.", "one", "0.50"] and second.split() == ["after", "2.", "two", "0.25", "-"]
    assert matrix_text(Matrix().to_json()) == ""


def test_models_marks_the_active_one_and_what_was_forgotten() -> None:
    rows = (
        SnapshotInfo("base", None, (), "any", None, "2026-01-01T00:00:00"),
        SnapshotInfo(
            "abc", "base", ("one",), "p@1", "vilco", "2026-01-02T00:00:00", marked="trained on what was forgotten"
        ),
    )
    text = models_text(ModelList("abc", rows).to_json())
    assert next(line for line in text.splitlines() if line.startswith("*")).split()[1] == "abc"
    assert "zero-shot answers only" in text and "abc: trained on what was forgotten" in text


def test_a_question_without_end_does_not_widen_the_table() -> None:
    answer = Answer("horse " * 20_000, "text", 0.1, 0.5, Searched(1, 9.0, 9.0), ())
    said = history_text([PastQuestion(answer, "2026-11-30T00:00:00")])
    assert max(map(len, said.splitlines())) < 140 and "horse ho ..." in said
    assert brief("where\n is it?") == "where is it?" and brief("x" * 500) == "x" * 56 + " ..."
