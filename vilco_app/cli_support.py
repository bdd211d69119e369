"""What every command shares: its options, its way of printing, its progress, its errors."""

from __future__ import annotations

import json as jsonlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from vilco_app.values import SCHEMA, VilcoError

Progress = Callable[[float, float, str], None]

DONE, FAILED, USAGE, PARTLY = 0, 1, 2, 3  # exit codes (design, contracts)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Home = Annotated[
    Path | None, typer.Option("--home", help="Data folder; default $VILCO_HOME, else this checkout or your user data folder.", show_default=False, rich_help_panel="Common")
]  # fmt: skip
ProfileName = Annotated[
    str, typer.Option("--profile", help="auto, embedded, clip[:MODEL[:WEIGHTS]], dino, egovlp or precomputed.")
]
Videos = Annotated[
    list[str] | None,
    typer.Option(
        "--video", help="Only in this video: a path, an id or its first digits. Repeatable.", show_default=False
    ),
]
Top = Annotated[int, typer.Option("--top", min=1, help="How many moments to return (of each activity).")]
Before = Annotated[
    str | None,
    typer.Option("--before", metavar="T", help="Only what ended by then (seconds or H:MM:SS); needs one --video.", show_default=False),
]  # fmt: skip
CurveFlag = Annotated[bool, typer.Option("--curve", help="Include the saliency curve of each video (JSON).")]
Output = Annotated[Path, typer.Option("-o", "--output", help="File (clips: folder) to write.")]


def emit(as_json: bool, data: dict[str, Any], human: Callable[[], str]) -> None:
    """Print the result: the JSON object, or the text `human` makes of it."""
    if as_json:
        print(_json({"schema": SCHEMA, **data}), flush=True)
    else:
        text = printable(human())
        if text:
            print(text, flush=True)


def fail(as_json: bool, error: VilcoError) -> None:
    """Print an error: the JSON object on stdout, or two lines on stderr."""
    if as_json:
        with suppress(BrokenPipeError):  # the reader has left: there is nobody to tell
            print(_json(error.to_json()), flush=True)
    else:
        from rich.console import Console

        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print("[bold red]error:[/] ", end="")
        console.print(printable(error.message), markup=False)
        console.print(printable(error.remedy), markup=False, style="dim")


def _json(data: dict[str, Any]) -> str:
    """One line of JSON that stdout can take: a name may hold what its encoding has no sign for."""
    text = jsonlib.dumps(data, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return jsonlib.dumps(data)
    return text


def printable(text: str) -> str:
    """Text for a terminal: a file's name must not move the cursor, change colours or fail to print."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\N{REPLACEMENT CHARACTER}", text)
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def warn(text: str) -> None:
    """A warning on stderr."""
    print(f"warning: {printable(text)}", file=sys.stderr, flush=True)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Progress]:
    """A progress callable (done, total, text) drawn on stderr: a bar on a terminal, a line now and then elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield _lines(quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def update(done: float, total: float, text: str) -> None:
            bar.update(task, completed=done, total=total or None, description=printable(text))

        yield update


def _lines(quiet: bool) -> Progress:
    import time

    last_time, last_text = time.monotonic(), ""

    def update(done: float, total: float, text: str) -> None:
        nonlocal last_time, last_text
        waited = time.monotonic() - last_time
        if quiet or waited < 2 or (text == last_text and waited < 10):
            return
        last_time, last_text = time.monotonic(), text
        share = f" {done / total:.0%}" if total else ""
        print(f"{printable(text)}{share}", file=sys.stderr, flush=True)

    return update


def memory(home: Path | None, profile: str = "auto") -> Any:
    """The service object of this home. Says on stderr when encoders are prepared, which happens once."""
    from vilco_app.memory import EpisodicMemory

    return EpisodicMemory(home, profile=profile, progress=lambda done, total, text: _tell(text))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def given_answer(path: Path, home: Path | None = None) -> Any:
    """The answer stored in a JSON file ('-' for stdin, 'last' for the one given last). Raises VilcoError naming the file."""
    from vilco_app import reading

    remedy = "Use a file written by: vilco ask ... --json > answer.json"
    if str(path) == "last" and not path.exists():
        given = memory(home).history(1)
        if given:
            return given[0].answer
        raise VilcoError("no-history", "last: nothing was asked in this home yet.", 'Ask first: vilco ask "..."')
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("cannot-read", f"{path}: {getattr(error, 'strerror', None) or error}.", remedy) from None
    try:
        data = jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        raise VilcoError("bad-answer", f"{path} is not JSON ({error}).", remedy) from None
    if not isinstance(data, dict):
        raise VilcoError("bad-answer", f"{path} does not hold an answer.", remedy)
    try:
        return reading.read_answer(data)
    except VilcoError as error:
        raise VilcoError(error.code, f"{path}: {error.message}", error.remedy) from None


def offline() -> None:
    """Nothing a command imports may reach the network or count its uses."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        os.environ.setdefault(name, "1")
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
