"""What becomes of a request that its route could not answer: an error nobody foresaw, a server that stops."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import service_problem, unexpected_problem
from app.domain.errors import StoppingError


class FailureMiddleware:
    """ASGI middleware that makes a whole answer of an error, after which the connection goes on as after any.

    Starlette answers such an error, too, but raises it again, and the server then resets the connection.

    Parameters
    ----------
    app : callable
        What it wraps.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            # Only a server that stops ends a request that is being answered.
            if has_begun:
                raise
            answer = service_problem(Request(scope), StoppingError())
        except Exception as error:
            if has_begun:
                raise  # an answer that breaks off is told by the end of the connection
            answer = unexpected_problem(Request(scope), error)
        else:
            return
        await answer(scope, receive, send)
