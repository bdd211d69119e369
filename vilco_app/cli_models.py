"""Commands about what the model has learnt: learn, models, use, evaluate; and the reserved world and pretrain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vilco_app import cli_support as support
from vilco_app.cli_support import Home, Json
from vilco_app.values import VilcoError

Stages = Annotated[
    list[Path] | None, typer.Argument(metavar="STAGE...", help="Stage files (JSON; README.md shows one).")
]


def register(app: typer.Typer) -> None:
    """Add these commands to the main one."""
    panel = "Learn"
    app.command(rich_help_panel=panel)(learn)
    app.command(rich_help_panel=panel)(models)
    app.command(rich_help_panel=panel)(use)
    app.command(rich_help_panel=panel)(evaluate)


def register_reserved(app: typer.Typer) -> None:
    """Add the commands that have a name only, so far; they stand last in the help."""
    app.command(rich_help_panel="More")(world)
    app.command(rich_help_panel="More")(pretrain)


def learn(
    stage: Stages = None,
    corrections: Annotated[bool, typer.Option("--corrections", help="Learn from what you corrected.")] = False,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="How not to forget; default: the best measured.", show_default=False),
    ] = None,
    preset: Annotated[
        str, typer.Option("--preset", help="auto (quick up to 64 examples), quick, full, or the paper's: paper.")
    ] = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Learn stages one after the other, online, keeping what was learnt before."""
    from vilco_app.cli_print import learnt_text, matrix_text

    if bool(stage) == corrections:
        raise typer.BadParameter("give stage files, or --corrections")
    memory = support.memory(home)
    last: dict[str, Any] = {}
    chosen: list[Path | None] = [*stage] if stage else [None]
    for one in chosen:
        with support.progress() as progress:
            report = memory.learn(one, strategy=strategy, corrections=corrections, progress=progress, preset=preset)
        for warning in report.warnings:
            support.warn(warning)
        last = report.to_json()
        if not json:  # each as it is done: a later stage may fail
            print(learnt_text(last), flush=True)
    support.emit(json, last, lambda: matrix_text(last["matrix"]))


def models(
    remove: Annotated[
        str | None, typer.Option("--remove", metavar="ID", help="Delete this snapshot for good.", show_default=False)
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the snapshots, or delete one."""
    from vilco_app.cli_print import models_text

    memory = support.memory(home)
    if remove is not None:
        gone = memory.remove_snapshot(remove)
        support.emit(json, {"removed": gone}, lambda: f"Deleted snapshot {gone}.")
        return
    data = memory.models().to_json()
    support.emit(json, data, lambda: models_text(data))


def use(
    snapshot: Annotated[str, typer.Argument(help="A snapshot id of `vilco models`.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Answer with this snapshot from now on (roll back, or forward)."""
    active = support.memory(home).use(snapshot)
    support.emit(json, {"active": active}, lambda: f"Answering with {active}.")


def evaluate(
    stage: Annotated[list[Path], typer.Argument(metavar="STAGE...", help="Stage files (JSON; README.md shows one).")],
    export: Annotated[
        str | None, typer.Option("--export", help="ego4d-nlq, ego4d-mq, ego4d-vq or qvhighlights.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for --export.", show_default=False)
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Score the active snapshot on stages."""
    if (export is None) != (output is None):
        raise typer.BadParameter("--export and -o go together")
    with support.progress() as progress:
        data = support.memory(home).evaluate(stage, export=export, output=output, progress=progress).to_json()

    def human() -> str:
        from vilco_app.cli_print import matrix_text, table

        rows = [
            (s["name"], s["family"], str(s["n"]), "  ".join(f"{k} {v:.3f}" for k, v in s["metrics"].items()))
            for s in data["stages"]
        ]
        scores = table([("stage", "family", "n", "scores"), *rows])
        return f"Snapshot {data['snapshot']}\n{scores}\n\n{matrix_text(data['matrix'])}".rstrip()

    support.emit(json, data, human)


def world(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    size: Annotated[str, typer.Option("--size", help="tiny, small or full.")] = "small",
    seed: Annotated[int, typer.Option("--seed")] = 0,
    json: Json = False,
) -> None:
    """Render a labelled first-person world (not built yet)."""
    raise _reserved("world")


def pretrain(json: Json = False) -> None:
    """Train the base snapshot (not built yet)."""
    raise _reserved("pretrain")


def _reserved(name: str) -> VilcoError:
    return VilcoError(
        "not-built", f"'vilco {name}' is reserved and not built yet.", "See CHANGELOG.md for what is there."
    )
