"""Corrections, files and jobs from the page, through the server's own doors."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from vilco_app.jobs import Job
from vilco_app.memory import EpisodicMemory
from vilco_app.ui import cards
from vilco_app.ui.acts import Acts
from vilco_app.ui.worker import Indexer
from vilco_app.values import Answer, Moment, Searched


@pytest.fixture(scope="module")
def memory(street_memory: EpisodicMemory) -> EpisodicMemory:
    return street_memory


@pytest.fixture(scope="module")
def acts(memory: EpisodicMemory) -> Acts:
    return Acts(memory, Indexer(memory))


@pytest.fixture(scope="module")
def client(memory: EpisodicMemory, acts: Acts) -> Iterator[Any]:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from vilco_app.ui.acts import add_routes
    from vilco_app.ui.guards import SameOrigin

    server = FastAPI()
    add_routes(server, acts)
    server.add_middleware(SameOrigin)
    with TestClient(server, base_url="http://127.0.0.1") as client:
        yield client


def test_what_a_person_said_answers_and_can_be_taken_back(client: Any, memory: EpisodicMemory, acts: Acts) -> None:
    before = memory.ask("a taxi")
    token = acts.keep(before)
    reply = client.post(f"/said/{token}", json={"rank": 2, "start": 1.0, "end": 2.5})
    assert reply.status_code == 200 and "0:01.0 to 0:02.5 of bikes.mp4" in reply.json()["note"]
    after = memory.ask("A taxi?")
    assert (after.moments[0].start, after.moments[0].end, after.moments[0].source) == (1.0, 2.5, "correction")
    assert acts.said(after) and not acts.said(memory.ask("a bus"))

    assert client.post(f"/said/{token}", json={"absent": True}).status_code == 200
    assert memory.ask("a taxi").moments == ()
    assert client.post(f"/said/{token}", json={"nothing": True}).status_code == 200
    assert memory.ask("a taxi").moments == before.moments


@pytest.mark.parametrize(
    "said",
    [{}, {"rank": 0}, {"rank": 99}, {"rank": True}, {"rank": "1"}, {"rank": 1, "start": "x", "end": 3}, {"rank": 1, "start": 5, "end": 2},
     {"rank": 1, "start": 0, "end": 1e9}],
)  # fmt: skip
def test_what_is_no_correction_is_refused_and_changes_nothing(
    client: Any, memory: EpisodicMemory, acts: Acts, said: dict[str, Any]
) -> None:
    reply = client.post(f"/said/{acts.keep(memory.ask('a bicycle'))}", json=said)
    assert reply.status_code == 400 and reply.json()["error"]["remedy"]
    assert memory.catalogue.corrections() == []


def test_an_answer_is_saved_as_a_file_and_nothing_stays_behind(
    client: Any, memory: EpisodicMemory, acts: Acts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer = memory.ask("../a parked bicycle", top=2)
    token = acts.keep(answer)
    table = client.post(f"/saved/{token}/csv")
    assert table.text.count("\n") == 1 + len(answer.moments)
    assert 'filename="a-parked-bicycle.csv"' in table.headers["content-disposition"]
    clips = zipfile.ZipFile(io.BytesIO(client.post(f"/saved/{token}/clips").content))
    assert len(clips.namelist()) == len(answer.moments) and all(n.endswith(".mp4") for n in clips.namelist())
    for path in (f"/saved/{token}/exe", "/saved/unknown/csv"):
        assert client.post(path).status_code == 400
    assert list(tmp_path.iterdir()) == []


def test_only_the_page_itself_may_act(client: Any, memory: EpisodicMemory, acts: Acts) -> None:
    token = acts.keep(memory.ask("a bicycle"))
    foreign = {"Origin": "http://evil.example"}
    for path, body in ((f"/said/{token}", {"absent": True}), ("/jobs/1/stop", {}), ("/dismiss", {})):
        assert client.post(path, json=body, headers=foreign).status_code == 403
    assert memory.catalogue.corrections() == []


def test_a_job_is_stopped_and_goes_on(client: Any, memory: EpisodicMemory) -> None:
    job = memory.jobs.enqueue("no-such-kind", {}, "film.mp4")  # nobody here can run it: it stays as it is put
    assert client.post(f"/jobs/{job}/stop").status_code == 200
    assert memory.jobs.get(job).state == "stopped"
    html = cards.library_html([], memory.jobs.list())
    assert f'data-post="/jobs/{job}/resume"' in html and "film.mp4: stopped" in html
    assert client.post(f"/jobs/{job}/resume").status_code == 200
    assert memory.jobs.get(job).state == "waiting"
    assert client.post("/jobs/999/stop").status_code == 400
    assert client.post(f"/jobs/{job}/drop").status_code == 404


def test_the_page_says_what_waits_and_what_was_refused_once() -> None:
    error = {"code": "x", "message": "it broke.", "remedy": "Look."}
    failed = Job(7, "index", "a.mp4", {}, "failed", 1.0, 2.0, error=error)
    done = Job(8, "index", "b.mp4", {}, "done")
    html = cards.library_html([], [failed, done], ["a.mp4: it broke. Look.", "c.txt: no film."], "Preparing.")
    text = re.sub(r"<[^>]+>", " ", unescape(html))
    assert text.count("it broke.") == 1 and text.count("no film.") == 1 and "b.mp4" not in text
    assert "Try again" in text and "Dismiss" in text and "Preparing." in text


def test_moments_too_short_for_whole_seconds_show_tenths() -> None:
    short, long = Moment("a" * 12, "a.mp4", 2.0, 2.8, 0.5), Moment("a" * 12, "a.mp4", 2.0, 9.8, 0.5)
    html = cards.answer_html(Answer("q", "text", 0.9, 0.5, Searched(1, 60.0, 60.0), (short, long)), {})
    assert "0:02.0 – 0:02.8" in html and "0:02 – 0:09" in html
    assert "data-absent" not in html  # without a token there is nothing to correct


def test_a_question_before_any_footage_says_so_at_once(tmp_path: Path) -> None:
    from vilco_app.ui.page import _answering

    empty = EpisodicMemory(tmp_path)

    def ask(query: Any, where: Any) -> Answer:
        raise AssertionError("no encoder is loaded for a library that holds nothing")

    shown = list(_answering(empty, Indexer(empty), None, ask)("a cat", "all videos"))
    assert len(shown) == 1 and "no footage yet" in shown[0][0] and shown[0][1]["error"]["code"] == "empty-library"


def test_a_question_waits_for_the_first_footage(tmp_path: Path) -> None:
    from vilco_app.ui.page import _answering

    empty, indexer = EpisodicMemory(tmp_path), Indexer(EpisodicMemory(tmp_path))
    indexer.add([tmp_path / "nothing-works-on-it-yet.mp4"])
    answers = _answering(empty, indexer, None, lambda query, where: pytest.fail("asked too early"))(
        "a cat", "all videos"
    )
    assert "being prepared" in next(answers)[0]  # said at once, while it waits
