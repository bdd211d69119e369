"""ASGI middleware around the page and its media: who may come in, and from where."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

App = Callable[..., Awaitable[None]]


async def _refuse(send: Any, status: int, text: bytes, *headers: tuple[bytes, bytes]) -> None:
    kind = (b"content-type", b"text/plain")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *headers]})
    await send({"type": "http.response.body", "body": text})


class SameOrigin:
    """Requests that a browser sends on behalf of another site are refused: it could add files to the library."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin", b"").decode("latin-1")
        foreign = origin and urlsplit(origin).netloc != headers.get(b"host", b"").decode("latin-1")
        if scope["type"] == "http" and foreign:
            await _refuse(send, 403, b"Only the page itself may ask this.")
            return
        await self._app(scope, receive, send)


class BasicAuth:
    """HTTP basic authentication on everything, media included."""

    def __init__(self, app: App, accounts: dict[str, str]) -> None:
        self._app, self._accounts = app, accounts

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._known(dict(scope["headers"]).get(b"authorization", b"")):
            realm = (b"www-authenticate", b'Basic realm="vilco", charset="UTF-8"')
            await _refuse(send, 401, b"Log in to see this library.", realm)
            return
        await self._app(scope, receive, send)

    def _known(self, header: bytes) -> bool:
        try:
            scheme, _, value = header.partition(b" ")
            name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except ValueError:
            return False
        expected = self._accounts.get(name, "")
        same = hmac.compare_digest(password.encode(), expected.encode())
        return scheme.lower() == b"basic" and bool(expected) and same
