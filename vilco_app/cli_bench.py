"""`vilco bench`: every number we claim, printed by a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vilco_app import cli_support as support
from vilco_app.cli_support import Home, Json
from vilco_app.values import VilcoError

bench = typer.Typer(no_args_is_help=True, help="Measure this build on this machine.", rich_markup_mode="rich")

OutFolder = Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the tables.", show_default=False)]


@bench.command()
def answers(
    cases: Annotated[Path, typer.Option("--cases", help="Folder of NAME.mp4 + NAME.json.")],
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Lists to run; default all.")] = None,
    haystack: Annotated[float | None, typer.Option("--haystack", help="Hide the cases in this many hours.")] = None,
    distractors: Annotated[
        Path | None, typer.Option("--distractors", help="Folder of other videos to hide the cases in as well.")
    ] = None,
    output: OutFolder = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Answer quality on labelled clips, beside three baselines."""
    from vilco_app.benchmarks import answers as module

    with support.progress() as progress:
        result = module.answers(
            cases, names=name, home=home, haystack_hours=haystack, progress=progress, distractors=distractors
        )
    _finish(json, output, "answers", result, lambda: module.format_table(result))


@bench.command()
def speed(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only rows of this group; a wrong name lists them. Repeatable.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=0, help="Threads; 0: as many as there are cores.")] = 0,
    output: OutFolder = None,
    json: Json = False,
) -> None:
    """Every speed and memory number, beside this machine's own decode rate and matmul peak."""
    from vilco_app.benchmarks import speed as module
    from vilco_app.cli_print import bench_text

    with support.progress() as progress:
        rows = module.speed(only=only, threads=threads, progress=progress)
    _finish(json, output, "speed", {"rows": rows}, lambda: bench_text(rows))


@bench.command()
def learn(
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only rows of this group; a wrong name lists them. Repeatable.")
    ] = None,
    cases: Annotated[Path | None, typer.Option("--cases", help="For transfer: folder of NAME.mp4 + NAME.json.")] = None,
    output: OutFolder = None,
    json: Json = False,
) -> None:
    """Learning without forgetting on the synthetic feature benchmark, and its times."""
    from vilco_app.cli_print import bench_text

    try:
        from vilco_app.benchmarks import learn as module  # type: ignore[attr-defined]
    except ImportError:
        raise _missing("learn") from None
    with support.progress() as progress:
        rows = module.learn(only=only, progress=progress, cases=cases)
    _finish(json, output, "learn", {"rows": rows}, lambda: bench_text(rows))


@bench.command()
def vilco(json: Json = False) -> None:
    """The paper's benchmark (not built yet)."""
    raise _missing("vilco")


@bench.command("continual-world")
def continual_world(json: Json = False) -> None:
    """The robot benchmark of the same strategies (not built yet)."""
    raise _missing("continual-world")


def _missing(name: str) -> VilcoError:
    return VilcoError("not-built", f"'vilco bench {name}' is not built yet.", "See CHANGELOG.md for what is there.")


def _finish(as_json: bool, output: Path | None, name: str, data: dict[str, Any], human: Any) -> None:
    if output is not None:
        import json as jsonlib

        from vilco_app.exports.files import write_text

        write_text(output / f"{name}.json", jsonlib.dumps({"schema": 1, **data}, indent=1))
        write_text(output / f"{name}.txt", human() + "\n")
    support.emit(as_json, data, human)
