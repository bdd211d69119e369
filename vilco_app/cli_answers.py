"""Commands about answers already given: correct, corrections, history, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vilco_app import cli_support as support
from vilco_app.cli_support import Home, Json, Output

GivenAnswer = Annotated[Path, typer.Argument(help="An answer saved with --json ('-' for stdin), or 'last'.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the main one."""
    for command in (correct, corrections, history, export):
        app.command(rich_help_panel="Ask")(command)


def correct(
    answer: GivenAnswer,
    rank: Annotated[
        int | None, typer.Option("--rank", min=1, help="Which moment this is about; else the first.")
    ] = None,
    start: Annotated[str | None, typer.Option("--start", help="Where it really starts, in that recording.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Where it really ends, in that recording.")] = None,
    absent: Annotated[bool, typer.Option("--absent", help="It is not in there at all.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say what is right; the same question answers so from then on.

    It is of the recording that moment is in. For another recording, ask again with --video and correct that answer.
    """
    from vilco_app.words import clock

    memory, given = support.memory(home), support.given_answer(answer, home)
    correction = memory.correct(given, rank, start, end, absent)
    spans = ", ".join(f"{clock(a, 1)} to {clock(b, 1)}" for a, b in correction.windows) or "not in there"
    where = "" if absent else f" of {Path(memory.resolve(correction.video).path).name}"
    text = f"Noted for '{correction.query}': {spans}{where}."
    support.emit(json, {"correction": correction.to_json()}, lambda: text)


def export(
    answer: GivenAnswer,
    output: Output,
    to: Annotated[str, typer.Option("--to", help="csv, srt, vtt, edl, otio or clips.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Write an answer as a table, subtitles, an edit list or clips."""
    paths = support.memory(home).export(support.given_answer(answer, home), to, output)
    data = {"path": str(paths[0]), "paths": [str(p) for p in paths]}
    support.emit(json, data, lambda: "\n".join(str(p) for p in paths))


def corrections(
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove", metavar="ID", help="Take this correction back (an id or its first digits); repeatable."
        ),
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List what you corrected, or take a correction back."""
    from vilco_app.cli_print import corrections_text

    memory = support.memory(home)
    if remove:
        gone = [memory.take_back(one) for one in remove]
        text = "\n".join(f"Taken back: what you said of '{c.query}'." for c in gone)
        support.emit(json, {"removed": [c.to_json() for c in gone]}, lambda: text)
        return
    found = memory.corrections()
    paths = {v.id: v.path for v in memory.videos()}
    support.emit(json, {"corrections": [c.to_json() for c in found]}, lambda: corrections_text(found, paths))


def history(
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many.")] = 20,
    clear: Annotated[bool, typer.Option("--clear", help="Forget which questions were asked.")] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the questions asked last, or forget them."""
    from vilco_app.cli_print import history_text

    memory = support.memory(home)
    if clear:
        count = memory.clear_history()
        support.emit(json, {"removed": count}, lambda: f"Forgot {count} question{'' if count == 1 else 's'}.")
        return
    found = memory.history(limit)
    support.emit(json, {"history": [p.to_json() for p in found]}, lambda: history_text(found))
