"""The request log: who asked for what, how long it took, and the id by which the log refers to it."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.header_names import REQUEST_ID
from app.api.request_scope import CURRENT_REQUEST_ID

_VALID_ID = re.compile(r"[A-Za-z0-9._-]{8,64}")
_ID_HEADER = REQUEST_ID.lower().encode()
_UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_logger = logging.getLogger(__name__)

OnAnswer = Callable[[str, str, int, float], None]
"""Takes method, route template, status and seconds of an answered request."""


class RequestLog:
    """Gives each request an id, a log line and a place in the metrics.

    The line holds the path without its query, and nothing of headers and bodies: no key, no picture.

    Parameters
    ----------
    on_answer : callable
        Called for every answered request.
    on_change : callable
        Gets 1 when a request arrives and -1 when it is answered.
    """

    def __init__(self, on_answer: OnAnswer, on_change: Callable[[int], None]) -> None:
        self._on_answer = on_answer
        self._on_change = on_change

    def begin(self, scope: Scope) -> str:
        """Return the id of a request, the client's own if it sent a valid one."""
        client_id = next((value for name, value in scope["headers"] if name == _ID_HEADER), b"").decode(
            "latin-1"
        )
        request_id = client_id if _VALID_ID.fullmatch(client_id) else secrets.token_hex(8)
        scope.setdefault("state", {})["request_id"] = request_id
        self._on_change(1)
        return request_id

    def end(self, scope: Scope, status: int, seconds: float) -> None:
        """Log and count an answered request."""
        self._on_change(-1)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._on_answer(method, _template(scope), status, seconds)
        _log(scope, status, seconds)


class RequestLogMiddleware:
    """ASGI middleware: logs each request, and returns its id to the client.

    Parameters
    ----------
    app : callable
        The wrapped application.
    log : RequestLog
        Gets the requests.
    """

    def __init__(self, app: ASGIApp, log: RequestLog) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._log.begin(scope)
        status, started_at = 500, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        token = CURRENT_REQUEST_ID.set(request_id)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            self._log.end(scope, status, time.perf_counter() - started_at)
            CURRENT_REQUEST_ID.reset(token)


def _template(scope: Scope) -> str:
    """Return the path with the names of its parameters, since a client's choice must not become a label."""
    path: str = getattr(scope.get("route"), "path", _UNMATCHED)
    return path


def _log(scope: Scope, status: int, seconds: float) -> None:
    level = logging.WARNING if status >= 500 else logging.INFO
    if scope["path"] in _PROBES and level == logging.INFO:
        level = logging.DEBUG
    if not _logger.isEnabledFor(level):
        return
    fields = {
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "milliseconds": round(seconds * 1000, 1),
        "key_id": scope["state"].get("key_id"),
    }
    _logger.log(level, "%(method)s %(path)s %(status)d %(milliseconds).1f ms", fields, extra=fields)
