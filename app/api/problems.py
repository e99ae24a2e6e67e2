"""Errors on the wire: RFC 9457 problems of the service's errors, and of those of HTTP."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from app.api.faults import field_path
from app.api.request_scope import REQUEST_ID, SECURITY_HEADERS
from app.domain import errors
from app.domain.names import plain_message

HTTP = "http"
"""Type of errors of HTTP itself; their status is their title."""
INVALID_REQUEST = (422, "invalid-request", "Invalid request")
INTERNAL = (500, "internal", "Internal error")
"""Status, type and title of problems without an error of a service behind them."""
_MEDIA_TYPE = "application/problem+json"
_MAX_ERRORS = 20  # faults of an invalid request that are listed; of a large body there may be very many
_ERRORS_IN_DETAIL = 5  # faults named in the sentence that people read
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_logger = logging.getLogger(__name__)

_PLACES = {
    "picture": " (image_base64 or a multipart file)",
    "sound": " (sound_base64 or a multipart file)",
    "text": ", under text",
    "vector": ", under vector",
}
"""Where each form of content stands in a request that has another one."""
_LOGGED = ("vector-engine-unavailable", "galleries-gone", "storage-unavailable")
"""What the log says, too: no other line of it says why requests are refused."""

_RETRY = {
    "Retry-After": {
        "description": "seconds to wait before trying again",
        "required": True,
        "schema": {"type": "integer", "minimum": 0},
    }
}
_CHALLENGE = {
    "WWW-Authenticate": {
        "description": "how to authenticate",
        "required": True,
        "schema": {"type": "string", "examples": ["Bearer"]},
    }
}
_HEADERS = {401: _CHALLENGE, 429: _RETRY, 503: _RETRY}  # headers of a problem, by its status

OF_BODIES = (400, 408, 413, 507)
"""Statuses that a route with a body can also answer with."""


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI entries of the problems a route can answer with, including those of any route."""
    content = {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": content,
            **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
        }
        for status in sorted({*statuses, 422, 429, 500, 503})
    }


def install(application: FastAPI) -> None:
    """Register handlers that answer every error of an application with a problem."""

    @application.exception_handler(errors.ServiceError)
    async def on_service_error(request: Request, error: errors.ServiceError) -> JSONResponse:
        return service_problem(request, error)

    @application.exception_handler(RequestValidationError)
    async def on_invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
        faults = [_entry(entry) for entry in error.errors()[:_MAX_ERRORS]]
        detail = "; ".join(f"{entry['field']}: {entry['message']}" for entry in faults[:_ERRORS_IN_DETAIL])
        extras = {"field": faults[0]["field"], "errors": faults}
        return problem(request, *INVALID_REQUEST, detail, extras)

    @application.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> JSONResponse:
        title = HTTPStatus(error.status_code).phrase
        answer = problem(request, error.status_code, HTTP, title, str(error.detail), {})
        answer.headers.update(error.headers or {})
        if error.status_code == 405:
            # Only mounted files are not among the routes, and they can be read only.
            answer.headers["Allow"] = ", ".join(_methods(application, request) or ("GET", "HEAD"))
        return answer

    @application.exception_handler(OSError)
    async def on_system_error(request: Request, error: OSError) -> JSONResponse:
        storage_error = errors.storage_error(error)
        if storage_error is None:
            raise error
        _logger.error("cannot write a file: %s", error)
        return service_problem(request, storage_error)

    @application.exception_handler(Exception)
    async def on_error_of_middleware(request: Request, error: Exception) -> JSONResponse:
        answer = unexpected_problem(request, error)
        # This answer is made outside all middleware, and the server closes the connection after it.
        own = {REQUEST_ID: request.state.request_id, "Connection": "close"}
        answer.headers.update({**SECURITY_HEADERS, **own})
        return answer


def unexpected_problem(request: Request, error: Exception) -> JSONResponse:
    """Log an unexpected error, and return the problem with its correlation id."""
    correlation: str = request.state.request_id
    _logger.error("unexpected error %s", correlation, exc_info=error)
    detail = f"an unexpected error, logged as {correlation}"
    return problem(request, *INTERNAL, detail, {"correlation_id": correlation})


def service_problem(request: Request, error: errors.ServiceError) -> JSONResponse:
    """Return the problem of an error of the service."""
    kind = errors.PROBLEMS[error.code]
    extras = {name: getattr(error, name) for name in ("field", "line") if getattr(error, name)}
    if error.code in _LOGGED:
        _logger.warning("%s", error, extra={"cause": error.code})
    answer = problem(request, kind.status, kind.type or error.code, kind.title, _detail(error), extras)
    wait = error.facts.get("wait", kind.wait)
    if wait is not None:
        answer.headers["Retry-After"] = str(wait)
    return answer


def _detail(error: errors.ServiceError) -> str:
    """Return what is wrong and, where HTTP has its own way to put it right, what to send."""
    match error.code:
        case "invalid-field" if "form" in error.facts and not str(error.field).endswith(error.facts["form"]):
            return f"{error}{_PLACES[error.facts['form']]}"
        case "item-exists":
            return f"{error}; PUT replaces one"
        case "content-missing":
            return f"{error}: PUT the item with it again"
        case "model-not-trained":
            route = f"POST /v1/admin/collections/{error.facts['collection']}/retrain"
            return route.join(error.facts["parts"])
        case "active-version-conflict":
            return f"{error.field}: {error}"
        case "key-missing":
            return f"{error}: Authorization: Bearer <key>"
        case _:
            return str(error)


def _methods(application: FastAPI, request: Request) -> list[str]:
    """Return all methods of a request's path; each route knows only its own."""
    scopes = {
        method: {**request.scope, "method": "GET" if method == "HEAD" else method} for method in _METHODS
    }
    return [
        method
        for method, scope in scopes.items()
        if any(route.matches(scope)[0] is Match.FULL for route in application.routes)
    ]


def _entry(error: Mapping[str, Any]) -> dict[str, str]:
    """Return the path of a field, as the client wrote it, and what is wrong with it."""
    loc = error["loc"]
    # FastAPI puts the kind of a parameter first; bodies are parsed here and have none.
    parts = loc[1:] if loc and loc[0] in ("path", "query", "header", "cookie") else loc
    return {"field": field_path(parts), "message": plain_message(error["msg"])}


def problem(
    request: Request, status: int, kind: str, title: str, detail: str, extras: dict[str, Any]
) -> JSONResponse:
    """Return one problem as a response."""
    body = {
        "type": f"/problems/{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        **extras,
    }
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}.get(status)
    return JSONResponse(jsonable_encoder(body), status, headers=headers, media_type=_MEDIA_TYPE)
