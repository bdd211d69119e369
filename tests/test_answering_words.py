"""Questions, keys, corrections and confidence through the public doors."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.answering_fakes import FakeLibrary, make_stored
from vilco_app.answering import Answerer, Grounded, keys_of, make_key, normalise, picture_digest
from vilco_app.answering.options import Options
from vilco_app.answering.phrases import wanted
from vilco_app.answering.windows import Windows
from vilco_app.values import Correction, MomentQuery, TextQuery, VilcoError, VisualQuery


@pytest.mark.parametrize(
    "question, looked_for",
    [
        ("Where did I see the red cup?", "the red cup"),
        ("where is my phone", "my phone"),
        ("Did I feed the dog?", "feed the dog"),
        ("What did I put in the oven?", "in the oven"),
        ("a piano in a room", "a piano in a room"),
        ("When?", "When"),
        ("wash dishes", "wash dishes"),
        ("whereabouts of the cat", "whereabouts of the cat"),
    ],
)
def test_asking_words_are_taken_off(question, looked_for):
    assert wanted(question) == looked_for


def test_one_question_one_key():
    assert normalise("  Where is  MY Phone?? ") == "where is my phone"
    assert make_key("text", "Where is my phone?") == make_key("text", "where is my PHONE")
    assert make_key("text", "wash dishes") != make_key("moment", "wash dishes")
    assert make_key("moment", "wash_dishes") == make_key("moment", "Wash dishes")
    image = np.zeros((4, 6, 3), dtype=np.uint8)
    assert picture_digest(image) != picture_digest(image.reshape(6, 4, 3))
    query = VisualQuery(image, picture_digest(image), "a.png")
    assert keys_of(query) == [make_key("visual", "another name", query.digest)]


def scenes(axes, seconds=5, dim=8):
    return np.repeat(np.eye(dim)[list(axes)], int(seconds * 2), axis=0)


@pytest.fixture
def library():
    return FakeLibrary([make_stored(scenes([0, 1, 2, 3, 1])), make_stored(scenes([4, 5, 4]), video="b" * 12)])


def said(library, kind, words, video, windows, created="2026-01-01"):
    library.said.append(
        Correction(f"c{len(library.said)}", make_key(kind, words), words, kind, video, windows, created)
    )


def test_a_correction_answers_first_and_at_once(library):
    answerer = Answerer(library, library.profile)
    said(library, "text", "thing 2", "a" * 12, ((1.0, 2.5),))
    answer = answerer.text(TextQuery("Thing 2?"), library.videos())
    first = answer.moments[0]
    assert (first.start, first.end, first.source, first.score) == (1.0, 2.5, "correction", 1.0)
    assert answer.confidence == 1 and answer.found
    assert any(abs(m.start - 10) < 0.6 for m in answer.moments[1:])  # the guess stays behind it
    assert [m.score for m in answer.moments] == sorted((m.score for m in answer.moments), reverse=True)
    early = answerer.text(TextQuery("thing 2"), library.videos()[:1], before=2.0)
    assert all(m.source != "correction" for m in early.moments)  # it ends after 2.0 s


def test_not_in_here_is_believed_until_corrected_again(library):
    answerer = Answerer(library, library.profile)
    for video in ("a" * 12, "b" * 12):
        said(library, "text", "thing 2", video, ())
    answer = answerer.text(TextQuery("thing 2"), library.videos())
    assert not answer.found and answer.confidence == 0 and not answer.moments
    said(library, "text", "thing 2", "a" * 12, ((10.0, 15.0),), created="2026-01-02")
    assert answerer.text(TextQuery("thing 2"), library.videos()).moments[0].source == "correction"


def test_categories_are_answered_apart(library):
    answerer = Answerer(library, library.profile)
    query = MomentQuery(("thing_1", "thing 3"))
    answer = answerer.moments(query, library.videos()[:1], top=3)
    assert {m.category for m in answer.moments} == {"thing_1", "thing 3"}
    windows = [(m.start, m.end) for m in answer.moments if m.category == "thing_1"]
    assert any(abs(a - 5) < 0.6 and abs(b - 10) < 0.6 for a, b in windows)  # every window of the category
    assert any(abs(a - 20) < 0.6 and abs(b - 25) < 0.6 for a, b in windows)
    assert answer.categories == query.categories
    assert answer.moments[0].to_json()["category"]
    with pytest.raises(VilcoError):
        answerer.moments(MomentQuery(("",)), library.videos())


def test_what_is_there_is_surer_than_what_is_not():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, size=(80, 32))
    noise[30:40, 3] += 1
    library = FakeLibrary([make_stored(noise)])
    answerer = Answerer(library, library.profile)
    there = answerer.text(TextQuery("thing 3"), library.videos())
    absent = [answerer.text(TextQuery(f"thing {i}"), library.videos()).confidence for i in (5, 6, 7, 8)]
    assert there.found and there.confidence > max(absent)
    assert there.moments[0].start == pytest.approx(15, abs=0.6)


def test_a_question_is_encoded_once(library):
    answerer = Answerer(library, library.profile)
    answerer.text(TextQuery("thing 2"), library.videos())
    before = len(library.profile.asked)
    answerer.text(TextQuery("thing 2"), library.videos())
    assert len(library.profile.asked) == before


def test_nothing_indexed_is_an_answer_not_an_error():
    library = FakeLibrary([make_stored(np.zeros((0, 4)))])
    answerer = Answerer(library, library.profile)
    answer = answerer.text(TextQuery("thing 1"), library.videos())
    assert not answer.found and answer.moments == () and answer.confidence == 0
    picture = np.zeros((8, 8, 3), dtype=np.uint8)
    assert answerer.find(VisualQuery(picture, picture_digest(picture)), library.videos()).tracks == ()


def test_the_shortlist_finds_what_exact_search_finds():
    rng = np.random.default_rng(1)
    stored = []
    for k in range(6):
        rows = rng.normal(0, 0.05, size=(600, 16))
        rows[:, 0] += 1
        if k == 4:
            rows[300:312, 7] += 1
        stored.append(make_stored(rows, video=f"{k}" * 12))
    library = FakeLibrary(stored)
    exact = Answerer(library, library.profile).text(TextQuery("thing 7"), library.videos())
    shortlisted = Answerer(library, library.profile, Options(exact_samples=100)).text(
        TextQuery("thing 7"), library.videos()
    )
    for answer in (exact, shortlisted):
        assert answer.moments[0].video == "4" * 12
        assert answer.moments[0].start == pytest.approx(150, abs=0.6)
        assert answer.moments[0].end == pytest.approx(156, abs=0.6)
    assert shortlisted.found == exact.found


class OnlyNetwork:
    """A grounder that knows one window."""

    source = "vilco"

    def propose(self, query, kind, passages, scale=None):
        one = Windows(np.array([3.0]), np.array([4.5]), np.array([0.8]), np.zeros(1, dtype=int))
        return Grounded(tuple(np.zeros(len(p)) for p in passages), one, "vilco")


def test_a_profile_that_is_not_aligned_needs_a_network(library, monkeypatch):
    encode = library.profile.text
    monkeypatch.setattr(library.profile, "text", lambda t: replace(encode(t), scene=None, thing=None))
    videos = library.videos()[:1]
    with pytest.raises(VilcoError, match="without training"):
        Answerer(library, library.profile).text(TextQuery("thing 2"), videos)
    answer = Answerer(library, library.profile, network=OnlyNetwork(), weights={"text": 1.0}).text(
        TextQuery("thing 2"), videos
    )
    assert (answer.moments[0].start, answer.moments[0].end, answer.moments[0].source) == (3.0, 4.5, "vilco")
    assert answer.confidence == 0.8


def test_a_network_weighs_in_by_its_weight(library):
    videos = library.videos()[:1]
    asked = TextQuery("thing 2")
    alone = Answerer(library, library.profile).text(asked, videos)
    unused = Answerer(library, library.profile, network=OnlyNetwork(), weights={"text": 0.0}).text(asked, videos)
    assert unused.moments == alone.moments
    fused = Answerer(library, library.profile, network=OnlyNetwork(), weights={"text": 0.9}).text(asked, videos)
    assert fused.moments[0].source == "fused" and (fused.moments[0].start, fused.moments[0].end) == (3.0, 4.5)
    assert fused.confidence == alone.confidence
    assert fused.moments[0].score == pytest.approx(fused.confidence)  # no window is surer than the whole answer
    assert all(a.score >= b.score for a, b in zip(fused.moments, fused.moments[1:], strict=False))


def test_answering_loads_no_heavy_library():
    code = (
        "import sys, vilco_app.answering\n"
        "print([m for m in ('torch', 'gradio', 'transformers', 'faiss', 'openvino', 'av') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_before_in_a_long_recording_still_finds_what_came_earlier():
    rng = np.random.default_rng(2)
    rows = rng.normal(0, 0.05, size=(1200, 16))
    rows[:, 0] += 1
    rows[40:52, 7] += 1  # asked for, at 20 s
    rows[300:1200, 7] += 1.2  # and much more of it later
    library = FakeLibrary([make_stored(rows)])
    answerer = Answerer(library, library.profile, Options(exact_samples=100, hits=20))
    answer = answerer.text(TextQuery("thing 7"), library.videos(), before=140.0)
    assert answer.moments and all(m.end <= 140.0 for m in answer.moments)
    assert answer.moments[0].start == pytest.approx(20, abs=0.6)
