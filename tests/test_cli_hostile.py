"""What a hostile or damaged name may do to the terminal and to the JSON: nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def vilco(*arguments: str | bytes, home: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [os.fsencode(a) for a in (sys.executable, "-m", "vilco_app.cli", *arguments)]
    return subprocess.run(command, capture_output=True, env={**os.environ, "VILCO_HOME": str(home), **environment})


def test_a_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    name = tmp_path / "a\x1b[31m\x07b.mp4"
    name.write_text("no video")
    done = vilco("doctor", str(name), home=tmp_path)
    assert b"a\xef\xbf\xbd[31m" in done.stdout and b"\x1b" not in done.stdout and b"\x07" not in done.stdout
    failed = vilco("show", str(name), home=tmp_path)
    assert failed.returncode == 1 and b"\x1b[31m" not in failed.stderr and b"Traceback" not in failed.stderr


@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_json_is_whole_whatever_the_name_and_the_locale(environment: dict[str, str], tmp_path: Path) -> None:
    for arguments in (("show", b"caf\xc3\xa9\xff.mp4"), ("doctor", b"caf\xc3\xa9\xff.mp4")):
        done = vilco(*arguments, "--json", home=tmp_path, **environment)
        assert json.loads(done.stdout)["schema"] == 1 and b"Traceback" not in done.stderr
        assert b"Traceback" not in vilco(*arguments, home=tmp_path, **environment).stderr
