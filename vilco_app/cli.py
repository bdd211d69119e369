"""The command line. Results on stdout, progress and warnings on stderr; `--json` prints one object, errors included.

Exit codes: 0 done (also when nothing was found), 1 failed, 2 usage, 3 partly done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from vilco_app import __version__
from vilco_app import cli_support as support
from vilco_app.cli_answers import register as register_answers
from vilco_app.cli_bench import bench
from vilco_app.cli_library import register as register_library
from vilco_app.cli_models import register as register_models
from vilco_app.cli_models import register_reserved
from vilco_app.cli_support import Before, CurveFlag, Home, Json, ProfileName, Top, Videos
from vilco_app.values import VilcoError

# typer carries click's classes under changing names; every usage error has this base
USAGE_ERRORS: tuple[type[BaseException], ...] = (typer.BadParameter.__mro__[1],)

INTERRUPTED = 130  # what typer makes of Ctrl-C

app = typer.Typer(
    name="vilco", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
    help="Ask your own first-person video: in words, by moment or with a picture. Offline, on your own machine.",
    epilog="Start: [bold]vilco add ~/Videos[/]  then  [bold]vilco ask \"where did I put the scissors?\"[/]",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        print(f"vilco {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    support.offline()


@app.command(rich_help_panel="Ask")
def ask(
    text: Annotated[str, typer.Argument(help="A question or description, in words.")],
    video: Videos = None,
    top: Top = 5,
    before: Before = None,
    curve: CurveFlag = False,
    profile: ProfileName = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Ask in words: where did I put the scissors?"""
    from vilco_app.cli_print import answer_text

    with support.progress() as progress:
        answer = support.memory(home, profile).ask(
            text, video=video, top=top, before=before, curve=curve, progress=progress
        )
    support.emit(json, answer.to_json(), lambda: answer_text(answer))


@app.command(rich_help_panel="Ask")
def moments(
    category: Annotated[list[str], typer.Argument(help="One or more activities, each in quotes.")],
    video: Videos = None,
    top: Top = 5,
    before: Before = None,
    curve: CurveFlag = False,
    profile: ProfileName = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Find every time something was done: "wash dishes" "use phone"."""
    from vilco_app.cli_print import answer_text

    with support.progress() as progress:
        answer = support.memory(home, profile).moments(
            category, video=video, top=top, before=before, curve=curve, progress=progress
        )
    support.emit(json, answer.to_json(), lambda: answer_text(answer))


@app.command(rich_help_panel="Ask")
def find(
    image: Annotated[str, typer.Argument(help="A picture of the thing, or VIDEO@TIME for a frame of a video.")],
    box: Annotated[
        str | None, typer.Option("--box", metavar="x1,y1,x2,y2", help="Where it is in the picture, as fractions.")
    ] = None,
    video: Videos = None,
    top: Top = 5,
    before: Before = None,
    curve: CurveFlag = False,
    profile: ProfileName = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Find where something in a picture was last seen."""
    from vilco_app.cli_print import answer_text

    corners = _box(box)
    with support.progress() as progress:
        answer = support.memory(home, profile).find(
            image, box=corners, video=video, top=top, before=before, curve=curve, progress=progress
        )
    support.emit(json, answer.to_json(), lambda: answer_text(answer))


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        x1, y1, x2, y2 = (float(v) for v in text.split(","))
    except ValueError:
        raise VilcoError(
            "bad-box", f"--box: '{text}' is not x1,y1,x2,y2.", "Give four fractions, such as 0.1,0.2,0.5,0.6."
        ) from None
    return x1, y1, x2, y2


register_answers(app)
register_library(app)
register_models(app)


@app.command("app", rich_help_panel="More")
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 7860,
    auth_file: Annotated[
        Path | None,
        typer.Option("--auth-file", help="File of NAME:PASSWORD lines that may log in.", show_default=False),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Add the demo videos to the library first.")] = False,
    profile: ProfileName = "auto",
    home: Home = None,
    json: Json = False,
) -> None:
    """Serve the page of your library; open the address it prints in a browser."""
    from vilco_app.ui.serve import serve as run

    run(home, host, port, auth_file, demo, profile, as_json=json)


app.add_typer(bench, name="bench", rich_help_panel="More")
register_reserved(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; leaves by SystemExit with the documented code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="vilco", standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else support.DONE)
    except VilcoError as error:
        support.fail(as_json, error)
        sys.exit(support.FAILED)
    except USAGE_ERRORS as error:
        sys.exit(_usage(as_json, error))
    except (KeyboardInterrupt, typer.Abort):
        stopped = VilcoError("stopped", "Stopped.", "Nothing is lost: run the same command again to go on from here.")
        support.fail(as_json, stopped)
        sys.exit(support.PARTLY)
    except BrokenPipeError:  # the reader of our output left, as `| head` does
        sys.stderr.close()
        sys.exit(support.DONE)
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        support.fail(as_json, VilcoError("system", f"{name}{error.strerror or error}.", "See: vilco doctor"))
        sys.exit(support.FAILED)
    except Exception as error:
        if os.environ.get("VILCO_DEBUG"):
            raise
        remedy = "This is a fault of vilco: please report it with what VILCO_DEBUG=1 prints."
        support.fail(as_json, VilcoError("internal", f"{type(error).__name__}: {error}.", remedy))
        sys.exit(support.FAILED)


def _usage(as_json: bool, error: BaseException) -> int:
    message = str(getattr(error, "format_message", lambda: error)())
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return support.USAGE
    context = getattr(error, "ctx", None)
    remedy = f"See: {context.command_path if context else 'vilco'} --help"
    support.fail(as_json, VilcoError("usage", message, remedy))
    return support.USAGE


if __name__ == "__main__":
    main()
