"""The shortest way: light searches whose requests are complete are answered before all other middleware.

Passing the middleware, the route and a thread takes several times as long as such a search. Whatever is not
plain goes the long way, which also says what is wrong with a request.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security.utils import get_authorization_scheme_param
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.bodies import INLINE_BYTES
from app.api.deps import ADMITTED_KEY, address_of, caller_of, least_revision_of
from app.api.header_names import REQUEST_ID
from app.api.middleware.admission import ConcurrencyLimits
from app.api.middleware.request_log import RequestLog
from app.api.middleware.response_backpressure import PIECE, close_stalled
from app.api.middleware.security_headers import RAW_SECURITY_HEADERS
from app.api.problems import service_problem, unexpected_problem
from app.api.request_scope import CURRENT_REQUEST_ID, WHOLE_BODY
from app.api.routes import searches
from app.api.routes.short_way import KNOWN_ANSWER
from app.api.search_batches import LightSearches
from app.api.state import ApiState
from app.domain.cores import usable_cores
from app.domain.entities import ApiKey
from app.domain.entities import Scope as KeyScope
from app.domain.errors import ServiceError
from app.services.serving.search import SingleSearch

_JSON = (b"content-type", b"application/json")
_ID_HEADER = REQUEST_ID.lower().encode()
_Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A light search whose call was counted."""

    collection: str
    direction: tuple[str, str]
    search: SingleSearch


class LightSearchMiddleware:
    """ASGI middleware that answers light searches, and passes on everything else.

    Parameters
    ----------
    app : callable
        The wrapped application.
    state : ApiState
        Of the same application.
    concurrency : ConcurrencyLimits
        Learns which collections exist.
    log : RequestLog
        Where answered requests are noted.
    pause_seconds : float
        Waiting time of a reader.
    """

    def __init__(
        self,
        app: ASGIApp,
        state: ApiState,
        concurrency: ConcurrencyLimits,
        log: RequestLog,
        pause_seconds: float,
    ) -> None:
        self._app = app
        self._state = state
        self._concurrency = concurrency
        self._log = log
        self._pause_seconds = pause_seconds
        routes = (route for route in searches.router.routes if isinstance(route, APIRoute))
        self._route = next(route for route in routes if route.endpoint is searches.search)
        # One core is left for the event loop.
        self._light_searches = LightSearches(max(usable_cores() - 1, 1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        began = time.perf_counter()
        admitted = self._admit(scope)
        if admitted is None:
            await self._app(scope, receive, send)
            return
        collection, direction = admitted.collection, admitted.direction
        answer = await self._light_searches.answer(
            (collection, *direction, admitted.search.item_filter.fingerprint),
            admitted.search,
            partial(searches.begin_light, self._state.search, collection, direction),
        )
        if answer is None or (isinstance(answer, bytes) and len(answer) > PIECE):
            scope["state"][KNOWN_ANSWER] = answer
            await self._app(scope, receive, send)
            return
        await self._send(scope, send, answer, began)

    def _admit(self, scope: Scope) -> _Admitted | None:
        """Return the search of a request that may be answered at once; None where another way is needed."""
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        match = self._route.path_regex.match(scope["path"])
        whole_body = scope.get("extensions", {}).get(WHOLE_BODY)
        if match is None or whole_body is None:
            return None
        collection, source, target = match["collection"], match["source"], match["target"]
        if not self._state.search.may_begin_now(collection, source, target):
            return None
        headers = dict(reversed(scope["headers"]))  # of several with one name the first counts
        body: bytes | None = whole_body["read"]()
        is_form = headers.get(b"content-type", b"").lower().startswith(b"multipart/")
        if body is None or len(body) > INLINE_BYTES or is_form or b"origin" in headers:
            return None
        address = address_of(scope.get("client"))
        key = None if self._state.open_search else self._key_of(headers, collection)
        if key is None and not self._state.open_search:
            return None
        try:
            query, options = searches.parse_search(self._state.limits, body)
            if not searches.is_short(query, options):
                return None
            if key is None:
                self._state.access.count_without_key(address)
            else:
                self._state.access.admit(key, KeyScope.SEARCH)
        except (RequestValidationError, ServiceError):
            return None  # the long way raises it again, and says what is wrong
        own = {ADMITTED_KEY: key} if key is None else {ADMITTED_KEY: key, "key_id": key.id}
        scope.setdefault("state", {}).update(own)
        least_revision = least_revision_of(self._state, caller_of(key, address), collection)
        search = searches.single_search(query, options, least_revision)
        return _Admitted(collection, (source, target), search)

    def _key_of(self, headers: dict[bytes, bytes], collection: str) -> ApiKey | None:
        """Return the key of a request if it is known, and allows the collection."""
        scheme, secret = get_authorization_scheme_param(headers.get(b"authorization", b"").decode("latin-1"))
        if not secret or scheme.lower() != "bearer":
            return None
        key = self._state.access.remember(secret)
        return key if key is not None and key.bounds.allow(collection) else None

    async def _send(self, scope: Scope, send: Send, answer: bytes | Exception, began: float) -> None:
        request_id = self._log.begin(scope)
        scope["route"] = self._route
        token = CURRENT_REQUEST_ID.set(request_id)
        status, has_started = 500, False
        try:
            status, headers, body = _as_response(scope, answer)
            headers += [*RAW_SECURITY_HEADERS, (_ID_HEADER, request_id.encode("latin-1"))]
            self._concurrency.learn(scope, status)
            async with asyncio.timeout(self._pause_seconds):
                await send({"type": "http.response.start", "status": status, "headers": headers})
                has_started = True
                await send({"type": "http.response.body", "body": body})
        except TimeoutError:
            await close_stalled(scope, has_started)
        finally:
            self._log.end(scope, status, time.perf_counter() - began)
            CURRENT_REQUEST_ID.reset(token)


def _as_response(scope: Scope, answer: bytes | Exception) -> tuple[int, _Headers, bytes]:
    """Return status, headers and body."""
    if isinstance(answer, bytes):
        return 200, [(b"content-length", b"%d" % len(answer)), _JSON], answer
    request = Request(scope)
    problem = (
        service_problem(request, answer)
        if isinstance(answer, ServiceError)
        else unexpected_problem(request, answer)
    )
    return problem.status_code, list(problem.raw_headers), bytes(problem.body)
