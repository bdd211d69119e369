"""Commands that keep the library: add, list, show, remove, forget, doctor, jobs, setup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vilco_app import cli_support as support
from vilco_app.cli_support import Home, Json, ProfileName

if TYPE_CHECKING:
    from vilco_app.jobs import Job

One = Annotated[str, typer.Argument(metavar="V", help="A path, an id or its first digits.")]


def register(app: typer.Typer) -> None:
    """Add these commands to the main one."""
    panel = "Library"
    app.command(rich_help_panel=panel)(add)
    app.command("list", rich_help_panel=panel)(list_videos)
    app.command(rich_help_panel=panel)(show)
    app.command(rich_help_panel=panel)(remove)
    app.command(rich_help_panel=panel)(forget)
    app.command(rich_help_panel=panel)(doctor)
    app.command(rich_help_panel=panel)(jobs)
    app.command(rich_help_panel=panel)(setup)


def add(
    path: Annotated[list[Path], typer.Argument(help="Files or folders.")],
    rate: Annotated[float, typer.Option("--rate", min=0.05, max=60, help="Samples per second.")] = 2.0,
    profile: ProfileName = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Index files or folders; goes on where it stopped, skips what is done."""
    with support.progress() as progress:
        report = support.memory(home, profile).add(path, rate=rate, progress=progress)
    for text in report.warnings:
        support.warn(text)

    def human() -> str:
        lines = [f"{len(report.added)} added, {len(report.unchanged)} unchanged, {len(report.refused)} refused"]
        lines += [f"  refused: {r.path}: {r.reason} {r.remedy}" for r in report.refused]
        return "\n".join(lines)

    support.emit(json, report.to_json(), human)
    if report.refused:
        raise typer.Exit(support.PARTLY if report.added or report.unchanged else support.FAILED)


def list_videos(home: Home = None, json: Json = False) -> None:
    """List the recordings of the library."""
    from vilco_app.cli_print import videos_text

    videos = support.memory(home).videos()
    support.emit(json, {"videos": [v.to_json() for v in videos]}, lambda: videos_text(videos))


def show(video: One, home: Home = None, json: Json = False) -> None:
    """Show what is known of one recording."""
    from vilco_app.cli_print import video_text

    found = support.memory(home).resolve(video)
    support.emit(json, found.to_json(), lambda: video_text(found))


def remove(video: One, home: Home = None, json: Json = False) -> None:
    """Take a recording out of the library; the file itself stays."""
    gone = support.memory(home).remove(video)
    support.emit(json, {"removed": gone}, lambda: f"Removed {gone} from the library. The file itself was not touched.")


def forget(
    video: One,
    start: Annotated[str, typer.Option("--from", metavar="T", help="Start of the span.")],
    end: Annotated[str, typer.Option("--to", metavar="T", help="End of the span.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Remove a span from everything that is stored of a recording, for good."""
    from vilco_app.words import clock

    first, last = support.memory(home).forget(video, start, end)
    support.emit(json, {"forgotten": [first, last]}, lambda: f"Forgotten: {clock(first)} to {clock(last)}.")


def doctor(
    path: Annotated[list[Path] | None, typer.Argument(help="Files to look at before adding them.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Say what may go wrong with files, or with this installation."""
    from vilco_app.doctor import examine_files, examine_installation

    files = examine_files(path or [])
    checks = [] if path else examine_installation(home)

    def human() -> str:
        lines = [f"{'ok     ' if c.ok else 'problem' if c.needed else 'absent '} {c.name}: {c.message}" for c in checks]
        for file in files:
            lines.append(f"{'ok     ' if file.ok else 'problem'} {file.path}")
            lines += [f"          {code}: {message.removeprefix(code + ': ')}" for code, message in file.problems]
        return "\n".join(lines)

    data = {"files": [f.to_json() for f in files], "checks": [c.to_json() for c in checks]}
    support.emit(json, data, human)


def jobs(
    action: Annotated[str | None, typer.Argument(metavar="[stop|resume]", help="stop or resume.")] = None,
    job: Annotated[int | None, typer.Argument(metavar="ID", help="The job.")] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List jobs; stop or resume one."""
    from vilco_app.cli_print import table

    if action not in (None, "stop", "resume") or (action is None) != (job is None):
        raise typer.BadParameter("use: vilco jobs, vilco jobs stop ID, or vilco jobs resume ID")
    memory = support.memory(home)
    if action == "stop" and job is not None:
        memory.jobs.stop(job)
    elif action == "resume" and job is not None:
        with support.progress() as progress:
            memory.resume(job, progress=progress)
    found = memory.jobs.list()

    def human() -> str:
        rows = [
            (str(j.id), j.kind, j.state, f"{j.done / j.total:.0%}" if j.total else "", j.label, _why(j)) for j in found
        ]
        return table([("id", "kind", "state", "done", "what", ""), *rows]) if rows else "No jobs."

    support.emit(json, {"jobs": [j.to_json() for j in found]}, human)


def _why(job: Job) -> str:
    return f"{job.error['message']} {job.error['remedy']}" if job.error else ""


def setup(
    profile: Annotated[str, typer.Argument(help="clip[:MODEL[:WEIGHTS]], dino or egovlp.")],
    home: Home = None,
    json: Json = False,
) -> None:
    """Fetch and prepare the weights of a profile (the only command that uses the network)."""
    import os

    from vilco_app.encoders import setup as prepare
    from vilco_app.home import resolve_home

    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ.pop(name, None)
    with support.progress() as progress:
        prepare(profile, resolve_home(home) / "models", progress)
    support.emit(json, {"profile": profile}, lambda: f"{profile} is ready.")
