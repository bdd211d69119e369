"""Starting the page: one local server, no analytics, no share link, nothing fetched from outside."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vilco_app.memory import EpisodicMemory
from vilco_app.values import SCHEMA, VilcoError

if TYPE_CHECKING:
    from vilco_app.ui.acts import Acts

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    home: Path | None, host: str, port: int, auth_file: Path | None, demo: bool, profile: str, as_json: bool = False
) -> None:
    """Serve the page of this home until Ctrl-C. Prints its address on stdout once it answers.

    auth_file: NAME:PASSWORD lines; needed to listen on anything but this machine, for whoever reaches the page can open
    every video file this account can read. Raises VilcoError for a bad auth file or a port in use.
    """
    accounts = read_accounts(auth_file)
    if host not in LOOPBACK and not accounts:
        raise VilcoError(
            "open-to-all", f"listening on {host} without --auth-file would let everyone on the network in.",
            "Give --auth-file FILE with NAME:PASSWORD lines, or listen on 127.0.0.1.",
        )  # fmt: skip
    listener = _listen(host, port)
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    address = f"http://{name}:{listener.getsockname()[1]}"
    memory = EpisodicMemory(home, profile=profile)
    print("starting", file=sys.stderr, flush=True)
    # uploads land in the home, so that keeping one is a rename, not a copy
    os.environ["GRADIO_TEMP_DIR"] = str(memory.home / "indexes" / "uploads")

    import uvicorn

    from vilco_app.ui.acts import Acts
    from vilco_app.ui.demo import QUESTIONS, demo_paths
    from vilco_app.ui.page import build
    from vilco_app.ui.worker import Indexer

    indexer = Indexer(memory)
    if demo:
        indexer.add(demo_paths())
    acts = Acts(memory, indexer)
    page = build(memory, indexer, acts, QUESTIONS if demo else ())
    server = make_server(page, memory, host, accounts, acts)
    if as_json:
        print(json.dumps({"schema": SCHEMA, "address": address}), flush=True)
    else:
        print(f"vilco is at {address}   (Ctrl-C stops it)", flush=True)
    indexer.start()
    config = uvicorn.Config(server, log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    # open pages hold a connection each; that these are cut when a person stops us is no error to tell
    logging.getLogger("uvicorn.error").addFilter(lambda record: not running.should_exit)
    running.run(sockets=[listener])


def make_server(
    page: Any, memory: EpisodicMemory, host: str, accounts: dict[str, str], acts: Acts | None = None
) -> Any:
    """The ASGI server: media and act routes, the page at /, and the guards around them."""
    from fastapi import FastAPI
    from gradio import mount_gradio_app
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    from vilco_app.ui import acts as acting
    from vilco_app.ui.guards import BasicAuth, SameOrigin
    from vilco_app.ui.media import Media, add_routes
    from vilco_app.ui.page import head, style, theme

    server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    add_routes(server, Media(memory))
    if acts is not None:
        acting.add_routes(server, acts)
    mount_gradio_app(
        server, page, path="/", allowed_paths=[], show_error=True, ssr_mode=False, enable_monitoring=False, pwa=False,
        mcp_server=False, footer_links=[], css=style(), head=head(), theme=theme(), max_file_size="64gb",
    )  # fmt: skip
    if accounts:
        server.add_middleware(BasicAuth, accounts=accounts)  # type: ignore[arg-type]
    server.add_middleware(SameOrigin)  # type: ignore[arg-type]
    if host in ("127.0.0.1", "localhost"):  # a page elsewhere that makes its name point here must not reach us
        server.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    return server


def read_accounts(path: Path | None) -> dict[str, str]:
    """NAME:PASSWORD lines; '#' starts a comment line. Raises VilcoError naming the file and line."""
    if path is None:
        return {}
    remedy = "Write one NAME:PASSWORD per line."
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise VilcoError("bad-auth-file", f"--auth-file {path}: {getattr(error, 'strerror', error)}.", remedy) from None
    accounts = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, mark, password = line.partition(":")
        if not mark or not name or not password:
            raise VilcoError("bad-auth-file", f"--auth-file {path}, line {number} is not NAME:PASSWORD.", remedy)
        accounts[name] = password
    if not accounts:
        raise VilcoError("bad-auth-file", f"--auth-file {path} names nobody.", remedy)
    return accounts


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise VilcoError(
            "port-in-use", f"cannot listen on {host}:{port} ({error.strerror or error}).",
            "Choose another with --port, or --port 0 for a free one.",
        ) from None  # fmt: skip
    return listener


def quiet_gradio() -> None:
    """Set before gradio is imported: no analytics, no version check, no hub."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(name, "1")
