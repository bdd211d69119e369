"""The page in a real browser: ask, see, seek, add. Needs chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
PATIENCE = 120_000  # milliseconds: a slow machine is not a failure


@pytest.fixture(scope="module")
def address(make_home: Callable[[], Path]) -> Iterator[str]:
    """The app with its demo library, as `make app` starts it."""
    environment = dict(os.environ, VILCO_HOME=str(make_home()))
    command = [sys.executable, "-m", "vilco_app.cli", "app", "--demo", "--port", "0", "--json"]
    app = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    yield json.loads(app.stdout.readline())["address"]
    app.terminate()
    app.wait(timeout=60)


@pytest.fixture(scope="module")
def outside() -> list[str]:
    return []


@pytest.fixture(scope="module")
def page(address: str, outside: list[str]) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    def request(sent: Any) -> None:
        if not sent.url.startswith((address, "data:", "blob:")):
            outside.append(sent.url)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.set_default_timeout(PATIENCE)
        page.on("request", request)
        page.goto(address)
        page.wait_for_function("document.querySelectorAll('.v-row').length >= 3", timeout=PATIENCE)
        page.wait_for_function("!document.querySelector('.v-row .v-bar')", timeout=PATIENCE)
        yield page
        browser.close()


def answered(page: Any, button: str) -> None:
    """Press a button and wait for the answer to this press: the old verdict is marked, the new one is not."""
    page.evaluate("document.querySelectorAll('#v-result .v-verdict').forEach(e => { e.dataset.old = 1 })")
    page.click(button)
    page.wait_for_selector("#v-result .v-verdict:not([data-old])")


def ask(page: Any, question: str) -> None:
    page.click("role=tab[name='In words']")
    page.fill("#v-text input, #v-text textarea", question)
    answered(page, "#v-ask-button")


def test_a_question_shows_moments_and_a_press_seeks_there(page: Any) -> None:
    ask(page, "a man with a bow tie")
    cards = page.query_selector_all("#v-result .v-card")
    assert cards and "searched" in page.inner_text("#v-result .v-verdict")
    for card in cards:
        wanted = json.loads(card.get_attribute("data-seek"))
        card.click()
        page.wait_for_function(
            """([start, end]) => { const v = document.getElementById('v-video');
            return v.readyState >= 2 && v.currentTime >= start - 0.05 && v.currentTime <= end + 1.5 }""",
            arg=[wanted["start"], wanted["end"]],
        )
        assert wanted["name"] in page.inner_text("#v-caption")
    assert page.evaluate("document.querySelectorAll('#v-strip .v-mark').length") >= 1
    images = "[...document.querySelectorAll('.v-card img')].every(i => i.complete && i.naturalWidth > 0)"
    page.wait_for_function(images)


def test_the_place_to_look_in_is_kept(page: Any) -> None:
    page.click("#v-where input")
    page.click("role=option[name='world.mp4']")
    ask(page, "a parked car")
    assert set(page.eval_on_selector_all(".v-card .v-name", "els => els.map(e => e.firstChild.textContent)")) == {
        "world.mp4"
    }
    page.click("#v-where input")
    page.click("role=option[name='all videos']")


def test_activities_carry_their_names(page: Any) -> None:
    page.click("role=tab[name='By activity']")
    page.fill("#v-category input, #v-category textarea", "riding a bicycle, parking a car")
    answered(page, "#v-moments-button")
    assert page.query_selector(".v-card em:has-text('riding a bicycle')")
    assert page.query_selector(".v-card em:has-text('parking a car')")


def test_a_thing_marked_in_the_player_is_found(page: Any) -> None:
    page.click("role=tab[name='In words']")
    page.route("**/source/*", lambda route: (page.wait_for_timeout(700), route.continue_()))  # a slow machine
    page.click(".v-row:has-text('carphone')")
    page.click("role=tab[name='With a picture']")
    page.click("#v-frame-button")  # pressed before the video is there
    sheet = page.wait_for_selector("#v-draw", state="visible")
    page.unroute("**/source/*")
    page.wait_for_function("document.getElementById('v-video').readyState >= 2")
    box = sheet.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.3)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.8, steps=4)
    page.mouse.up()
    page.wait_for_selector("#v-picture img")
    answered(page, "#v-find-button")
    assert page.query_selector(".v-card .v-box")
    assert page.inner_text(".v-card >> nth=0").count("carphone")


def test_edges_marked_in_the_player_are_the_answer_from_then_on(page: Any) -> None:
    ask(page, "a bicycle")
    card = page.query_selector("#v-result .v-card")
    wanted = json.loads(card.get_attribute("data-seek"))
    card.click()
    page.wait_for_function(
        """([id, start]) => { const v = document.getElementById('v-video');
        return v.src.includes(id) && v.readyState >= 2 && !v.seeking && v.currentTime >= start - 0.05 }""",
        arg=[wanted["video"], wanted["start"]],
    )
    for edge, time in (("start", 1.0), ("end", 3.5)):
        page.evaluate("t => { const v = document.getElementById('v-video'); v.pause(); v.currentTime = t }", time)
        page.wait_for_function("!document.getElementById('v-video').seeking")
        page.click(f"[data-edge={edge}]")
    assert "0:01.0 – 0:03.5" in page.inner_text("#v-caption")
    page.click("[data-right]")
    page.wait_for_selector("#v-result .v-note:has-text('0:01 to 0:03')")
    ask(page, "A bicycle?")
    assert "as you said" in page.inner_text("#v-result .v-card >> nth=0")
    with page.expect_download() as saved:
        page.click("[data-save=csv]")
    assert saved.value.suggested_filename == "A-bicycle.csv"
    page.click("#v-result [data-nothing]")
    page.wait_for_selector("#v-result .v-note:has-text('Taken back')")
    ask(page, "a bicycle")
    assert page.query_selector("#v-result em:has-text('as you said')") is None


def test_a_path_is_added_and_a_refusal_is_said(page: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.mp4").write_text("no film")
    page.fill("#v-path input, #v-path textarea", str(tmp_path / "notes.mp4"))
    page.click("#v-add-button")
    page.wait_for_selector(".v-failed:has-text('notes.mp4')")


def test_an_upload_is_kept_and_indexed(page: Any, tmp_path: Path) -> None:
    film = tmp_path / "<b>loud&.mp4"
    source = ["-f", "lavfi", "-i", "mandelbrot=size=320x180:rate=25", "-t", "2", "-pix_fmt", "yuv420p"]
    subprocess.run(["ffmpeg", "-v", "error", *source, str(film)], check=True)
    page.set_input_files("#v-upload input[type=file], input[type=file][accept*='video']", str(film))
    page.wait_for_function("document.querySelectorAll('.v-row').length >= 4")
    assert page.query_selector(".v-row b") is None  # the name is text, not markup


def test_nothing_was_asked_of_any_other_host(page: Any, outside: list[str]) -> None:
    assert outside == []
