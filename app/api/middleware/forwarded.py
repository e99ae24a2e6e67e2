"""What trusted proxies say of a request: who sent it, and the path under which they have put the service."""
# A path that is a setting holds for every request, whether the proxy strips it or passes it on. One of
# `X-Forwarded-Prefix` was stripped by the proxy that says so: a client that could make the service strip more
# would reach paths that the proxy keeps from it.

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.domain.hosts import path_prefix_of

_PREFIX = b"x-forwarded-prefix"
_logger = logging.getLogger(__name__)


class ForwardedMiddleware(ProxyHeadersMiddleware):
    """ASGI middleware: client, scheme and `root_path` of a request by the headers of `proxies` (networks)."""

    def __init__(self, app: ASGIApp, proxies: list[str], root_path: str) -> None:
        super().__init__(app, proxies)  # type: ignore[arg-type]
        self._root_path = root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Serve one request."""
        if scope["type"] == "http":
            self._place(scope)
        await super().__call__(scope, receive, send)  # type: ignore[arg-type]

    def _place(self, scope: Scope) -> None:
        """Complete path and root path, as ASGI has them: the one begins with the other."""
        root_path, path = self._root_path, scope["path"]
        is_whole = root_path != "" and (path == root_path or path.startswith(f"{root_path}/"))
        client = scope.get("client")
        if client is not None and client[0] in self.trusted_hosts:
            stripped = self._stripped_of(scope)
            if stripped is not None and stripped != root_path:
                root_path, is_whole = stripped, False
        scope["root_path"] = root_path
        if not is_whole:
            scope["path"] = root_path + path

    def _stripped_of(self, scope: Scope) -> str | None:
        """Return the path that the nearest proxy says it has stripped; None if it says none that is one."""
        values = [value for name, value in scope["headers"] if name == _PREFIX]
        if not values:
            return None
        value = values[-1].decode("latin-1").rpartition(",")[2].strip()
        try:
            return path_prefix_of(value)
        except ValueError as error:
            _logger.warning(
                "X-Forwarded-Prefix of a trusted proxy %s: it is ignored", error, extra={"cause": _PREFIX}
            )
            return None
