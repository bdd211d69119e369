"""The server under the page: what it serves, to whom, and what it escapes."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vilco_app.memory import EpisodicMemory
from vilco_app.ui import cards
from vilco_app.values import Answer, Concept, Moment, Searched, TimedBox, Track, Video, VilcoError

NASTY = "<img src=x onerror=alert(1)>\"'&"


@pytest.fixture(scope="module")
def memory(street_memory: EpisodicMemory) -> EpisodicMemory:
    return street_memory


@pytest.fixture(scope="module")
def client(memory: EpisodicMemory) -> Iterator[Any]:
    """The whole server, page included, without a socket."""
    from fastapi.testclient import TestClient

    from vilco_app.ui.page import build
    from vilco_app.ui.serve import make_server
    from vilco_app.ui.worker import Indexer

    page = build(memory, Indexer(memory))
    with TestClient(make_server(page, memory, "127.0.0.1", {}), base_url="http://127.0.0.1") as client:
        yield client


def test_a_recording_is_served_in_place_by_ranges(client: Any, memory: EpisodicMemory, street: Path) -> None:
    video = memory.videos()[0].id
    source = client.get(f"/source/{video}").json()
    assert source == {"state": "ready", "parts": [{"url": f"/media/{video}/0", "offset": 0.0}]}
    reply = client.get(f"/media/{video}/0", headers={"Range": "bytes=100-199"})
    assert reply.status_code == 206 and reply.content == street.read_bytes()[100:200]
    assert reply.headers["content-range"].endswith(f"/{street.stat().st_size}")
    cached = [p for p in memory.home.rglob("*.mp4") if p.is_file()]
    assert cached == []  # nothing was copied


@pytest.mark.parametrize(
    "path",
    ["/media/000000000000/0", "/media/{id}/1", "/media/{id}/-1", "/media/{id}/²", "/media/{id}/proxy", "/media/..%2f..%2fetc/0",
     "/media/%2fetc%2fpasswd/0", "/thumb/000000000000/0", "/gradio_api/file=/etc/passwd", "/gradio_api/file={path}"],
)  # fmt: skip
def test_nothing_else_is_served(client: Any, memory: EpisodicMemory, path: str) -> None:
    video = memory.videos()[0]
    reply = client.get(path.format(id=video.id, path=video.path))
    assert reply.status_code in (403, 404, 422)
    assert b"root:" not in reply.content


def test_a_thumbnail_is_a_picture_of_the_right_time(client: Any, memory: EpisodicMemory) -> None:
    import io

    import numpy as np
    from PIL import Image

    video = memory.videos()[0].id
    reply = client.get(f"/thumb/{video}/8500")
    picture = np.asarray(Image.open(io.BytesIO(reply.content)).convert("RGB"), float)
    assert reply.headers["content-type"] == "image/jpeg" and picture.shape[1] == 320
    distances = {}
    for time in (2.5, 8.5):
        frame = Image.fromarray(memory.frame(video, time)).resize((picture.shape[1], picture.shape[0]))
        distances[time] = np.abs(np.asarray(frame, float) - picture).mean()
    assert distances[8.5] < 8 < distances[2.5]
    assert client.get(f"/thumb/{video}/99999999").status_code == 200  # past the end: the last frame


def test_a_forgotten_moment_has_no_thumbnail(memory: EpisodicMemory) -> None:
    from vilco_app.ui.media import Media

    video, media = memory.videos()[0].id, Media(memory)
    spans = {video: ((2.0, 4.0),)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.catalogue.catalogue, "forgotten", lambda video=None: spans)
        assert media.thumbnail(video, 3000) is None and media.thumbnail(video, 4100)


def test_the_page_names_no_other_host(client: Any) -> None:
    html = client.get("/").text
    assert "vilco" in html
    hosts = {h for h in re.findall(r"(?:src|href)=\"https?://([^/\"]+)", html) if not h.startswith("127.0.0.1")}
    assert hosts == set()


def test_a_page_elsewhere_cannot_reach_us_by_a_name_of_its_own(client: Any, memory: EpisodicMemory) -> None:
    reply = client.get(f"/media/{memory.videos()[0].id}/0", headers={"Host": "evil.example"})
    assert reply.status_code == 400


def test_another_site_cannot_ask_through_a_persons_browser(client: Any) -> None:
    body = {"data": ["/etc"], "fn_index": 0, "session_hash": "x"}
    for origin, allowed in (("http://evil.example", False), ("null", False), ("http://127.0.0.1", True)):
        reply = client.post("/gradio_api/queue/join", json=body, headers={"Origin": origin})
        assert (reply.status_code != 403) == allowed


def test_accounts_guard_the_page_and_the_media(memory: EpisodicMemory) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from vilco_app.ui.guards import BasicAuth
    from vilco_app.ui.media import Media, add_routes

    server = FastAPI()
    add_routes(server, Media(memory))
    server.add_middleware(BasicAuth, accounts={"ann": "secret:word"})
    client, path = TestClient(server), f"/media/{memory.videos()[0].id}/0"

    def status(login: str | None) -> int:
        headers = {} if login is None else {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
        return client.get(path, headers=headers).status_code

    assert [status(x) for x in (None, "ann:wrong", "bob:secret:word", "bob:", ":", "ann:secret:word")] == [401] * 5 + [
        200
    ]
    assert client.get(path, headers={"Authorization": "Basic %%%"}).status_code == 401


def test_a_file_no_browser_plays_gets_a_copy_that_one_does(memory: EpisodicMemory, tmp_path: Path) -> None:
    import time

    from vilco_app.ui.media import Media
    from vilco_app.video import browser_playable, probe

    film = tmp_path / "old.avi"
    source = ["-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25:duration=2"]
    subprocess.run(["ffmpeg", "-v", "error", *source, "-c:v", "mpeg4", str(film)], check=True)
    video = memory.add(film).added[0]
    media = Media(memory)
    states = [media.source(video)["state"]]
    while states[-1] == "making" and len(states) < 300:
        time.sleep(0.1)
        states.append(media.source(video)["state"])
    assert states[0] == "making" and states[-1] == "ready"
    copy = media.file(video, "proxy")
    assert copy is not None and browser_playable(probe(copy)) and abs(probe(copy).duration - 2.0) < 0.1
    memory.remove(video)
    assert not copy.exists()


def test_strings_of_others_are_escaped() -> None:
    moment = Moment("a" * 12, f"/films/{NASTY}.mp4", 1.0, 2.0, 0.5, category=NASTY)
    video = Video("a" * 12, moment.path, 10.0, "indexing", 5.0, "p", note=NASTY)
    track = Track(moment, (TimedBox(1.5, 0.1, 0.1, 0.4, 0.5),))
    answer = Answer(
        NASTY,
        "visual",
        0.9,
        0.5,
        Searched(1, 10.0, 10.0),
        (moment,),
        (track,),
        concepts=(Concept(NASTY, 0.5),),
        profile=NASTY,
    )
    for html in (
        cards.answer_html(answer, {video.id: video}),
        cards.library_html([video], [], [NASTY]),
        cards.error_card(VilcoError("x", NASTY, NASTY)),
    ):
        assert "<img src=x" not in html
        for attribute in re.findall(r'data-seek="([^"]*)"', html):
            from html import unescape

            assert json.loads(unescape(attribute))["video"] == "a" * 12


def test_an_answer_that_was_not_found_shows_guesses_as_guesses() -> None:
    moment = Moment("a" * 12, "a.mp4", 1.0, 2.0, 0.5)
    no = Answer("q", "text", 0.2, 0.5, Searched(1, 60.0, 60.0), (moment,))
    html = cards.answer_html(no, {})
    assert "Not found in 1 min of 1 video" in html and ">guess<" in html
    assert ">guess<" not in cards.answer_html(replace(no, confidence=0.9), {})


def test_an_upload_keeps_its_name_and_never_leaves_the_folder(tmp_path: Path) -> None:
    from vilco_app.ui.page import free_name

    assert free_name(tmp_path, "../../etc/film.mp4") == tmp_path / "film.mp4"
    assert free_name(tmp_path, "..\\x.mp4") == tmp_path / "x.mp4"
    (tmp_path / "film.mp4").touch()
    assert free_name(tmp_path, "film.mp4") == tmp_path / "film-2.mp4"


@pytest.mark.parametrize(("text", "line"), [("ann", "line 1"), ("# only\n", "nobody"), ("ann:a\n:b", "line 2")])
def test_a_bad_auth_file_is_named(text: str, line: str, tmp_path: Path) -> None:
    from vilco_app.ui.serve import read_accounts

    (tmp_path / "auth").write_text(text)
    with pytest.raises(VilcoError, match=line):
        read_accounts(tmp_path / "auth")


def test_the_network_needs_an_auth_file(tmp_path: Path) -> None:
    from vilco_app.ui.serve import serve

    with pytest.raises(VilcoError, match="auth-file"):
        serve(tmp_path, "0.0.0.0", 0, None, False, "auto")
