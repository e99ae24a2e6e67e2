"""The short way for a search: what its route does, in the same order, without resolving dependencies.

Most requests are searches, and finding a route and its dependencies takes longer than answering one. This
route comes before all others; that of `app.api.routes.searches` describes it.
"""

from __future__ import annotations

from functools import partial

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from app.api.bodies import INLINE_BYTES
from app.api.deps import bearer, may_search, own_revision_of
from app.api.middleware.admission import defer_place, give_back_place, take_place
from app.api.middleware.request_body_limits import body_of
from app.api.routes import searches
from app.api.schemas.searches import SearchOptions
from app.api.state import state_of
from app.services.serving.search import Query

KNOWN_ANSWER = "known_answer"
"""In the state of a request: its answer, if that was found already."""


class ShortSearchRoute(BaseRoute):
    """Answers `POST /v1/collections/{collection}/search/{source}-to-{target}`."""

    def __init__(self) -> None:
        routes = (route for route in searches.router.routes if isinstance(route, APIRoute))
        self._route = next(route for route in routes if route.endpoint is searches.search)
        self._read = searches.READ_SEARCH.dependency

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] != "POST":
            return Match.NONE, {}
        match = self._route.path_regex.match(scope["path"])
        if match is None:
            return Match.NONE, {}
        # The log, the metrics and the reading of the body know the route that describes this one.
        return Match.FULL, {
            "route": self._route,
            "endpoint": self._route.endpoint,
            "path_params": match.groupdict(),
        }

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        await may_search(request, await bearer(request))
        if 0 < body_of(request).announced <= INLINE_BYTES:
            defer_place(scope)
        query, options = await self._read(request)
        answer = await self._answer(request, query, options)
        await Response(answer, media_type="application/json")(scope, receive, send)

    async def _answer(self, request: Request, query: Query, options: SearchOptions) -> bytes:
        """Return the answer to a search, which is looked for together with others if it is quick."""
        answer: bytes | Exception | None = request.scope["state"].get(KNOWN_ANSWER)
        if isinstance(answer, bytes):
            return answer
        path, state = request.path_params, state_of(request)
        collection, direction = path["collection"], (path["source"], path["target"])
        least_revision = own_revision_of(request, collection)
        if searches.is_quick(query, options):
            ride = await take_place(request.scope, (collection, *direction))
            answer = await state.batches.answer(
                ride,
                searches.single_search(query, options, least_revision),
                partial(searches.run_together, state.search, collection, direction),
                partial(give_back_place, request.scope),
            )
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        await take_place(request.scope)
        (answer,) = await run_in_threadpool(
            searches.run, state.search, collection, direction, [query], options, least_revision
        )
        return answer
