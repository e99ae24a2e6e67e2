"""Answers for requests whose route fails: unexpected errors, and a server that stops."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import service_problem, unexpected_problem
from app.domain.errors import StoppingError


class FailureMiddleware:
    """ASGI middleware that turns an error into a complete answer and keeps the connection usable.

    Starlette answers such an error, too, but raises it again, and the server then resets the connection.

    Parameters
    ----------
    app : callable
        The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            # Only a stopping server cancels a request that is being answered.
            if has_started:
                raise
            answer = service_problem(Request(scope), StoppingError())
        except Exception as error:
            if has_started:
                raise  # the end of the connection shows the client that the answer is incomplete
            answer = unexpected_problem(Request(scope), error)
        else:
            return
        await answer(scope, receive, send)
