"""`make app-check`: start the app with its demo library, wait for the page, ask the demo questions, stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from vilco_app.ui.demo import demo_paths
from vilco_app.ui.page import EVERYWHERE

PATIENCE = 600  # seconds until the demo library must be indexed: a fresh machine first prepares the encoders
# question -> the file that shows it
EXPECTED = (
    ("ask", "a parked bicycle", "bikes.mp4"),
    ("ask", "a man with a bow tie", "carphone_pristine.mp4"),
    ("ask", "the earth seen from space", "world.mp4"),
    ("moments", "riding a bicycle", "bikes.mp4"),
)


def main() -> int:
    """Returns 0 when every demo question was answered from the right file."""
    with tempfile.TemporaryDirectory() as home:
        environment = dict(os.environ, VILCO_HOME=home, GRADIO_ANALYTICS_ENABLED="False")
        command = [sys.executable, "-m", "vilco_app.cli", "app", "--demo", "--port", "0", "--json"]
        app = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert app.stdout is not None
            line = app.stdout.readline()
            if not line:
                print("the app ended before it served anything")
                return 1
            return _questions(json.loads(line)["address"])
        finally:
            app.terminate()
            try:
                app.wait(timeout=30)
            except subprocess.TimeoutExpired:
                app.kill()


def _questions(address: str) -> int:
    _wait(address)
    print(f"page: {address} answers")
    from gradio_client import Client

    # an answer names files by their path; the client would try to fetch them
    client = Client(address, verbose=False, analytics_enabled=False, download_files=False)
    _indexed(client)
    wrong = 0
    for kind, question, name in EXPECTED:
        answer = _ask(client, kind, question)
        best = Path(answer["moments"][0]["path"]).name if answer.get("moments") else json.dumps(answer.get("error"))
        wrong += best != name
        print(
            f"{'ok   ' if best == name else 'WRONG'} {kind}: {question!r} -> {best}, confidence {answer.get('confidence')}"
        )
    return int(wrong > 0)


def _ask(client: Any, kind: str, question: str) -> dict[str, Any]:
    _, answer = client.predict(question, EVERYWHERE, api_name=f"/{kind}")
    return answer


def _indexed(client: Any) -> None:
    """Until everything of the demo library is indexed."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        searched = _ask(client, "ask", "anything").get("searched", {})
        if searched.get("videos") == len(demo_paths()) and searched["indexed_seconds"] >= searched["seconds"] - 1.0:
            print(f"library: {searched['videos']} videos, {searched['seconds']:.0f} s indexed")
            return
        time.sleep(1.0)
    raise SystemExit(f"the demo library was not indexed within {PATIENCE} s")


def _wait(address: str) -> None:
    began = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as reply:
                if b"vilco" in reply.read():
                    return
        except OSError:
            if time.monotonic() - began > 120:
                raise
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
