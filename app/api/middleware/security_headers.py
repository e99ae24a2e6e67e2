"""Security headers on every answer, pages and problems alike."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.header_names import SECURITY_HEADERS

RAW_SECURITY_HEADERS = [
    (name.lower().encode("ascii"), value.encode("ascii")) for name, value in SECURITY_HEADERS.items()
]


class SecurityHeadersMiddleware:
    """ASGI middleware that adds each of `SECURITY_HEADERS` that an answer does not set itself.

    Parameters
    ----------
    app : callable
        The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name.lower() for name, _ in own}
                message = {
                    **message,
                    "headers": own + [entry for entry in RAW_SECURITY_HEADERS if entry[0] not in names],
                }
            await send(message)

        await self._app(scope, receive, send_with_headers)
