"""The HTTP application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from app.api import admin, collections, health, imports, items, openapi, problems, searches
from app.bootstrap import Services
from app.domain.errors import ServiceError
from app.web.pages import mount_pages

_DESCRIPTION = "Learns a similarity between two kinds of data, and searches one with the other."


def create_app(services: Services) -> FastAPI:
    """Return the application over a set of services.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    """
    # FastAPI's own pages of documentation load their scripts from other hosts; `mount_pages` adds one.
    application = FastAPI(
        title="LRBS",
        version="0.1.0",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=openapi.operation_id,
    )
    state = application.state
    state.settings, state.open_search = services.settings, services.settings.open_search
    state.catalogue, state.search = services.catalogue, services.search
    state.imports = services.imports
    state.training, state.access = services.training, services.access
    state.what_is_missing = lambda: what_is_missing(services)
    problems.install(application)
    for module in (collections, items, imports, searches, admin, health):
        application.include_router(module.router)
    openapi.describe(application)
    mount_pages(application)
    limit = services.settings.max_body_bytes

    @application.middleware("http")
    async def refuse_large_bodies(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if imports.is_import(request):
            return await call_next(request)
        length = request.headers.get("content-length", "")
        chunked = request.method in ("POST", "PUT", "PATCH") and "transfer-encoding" in request.headers
        if chunked or (length.isdigit() and int(length) > limit):
            detail = f"body: at most {limit} bytes allowed, with a Content-Length header"
            status = 411 if chunked else 413
            return problems.problem(
                request, status, "content-too-large", "Body refused", detail, {"field": "body"}
            )
        return await call_next(request)

    return application


def what_is_missing(services: Services) -> str | None:
    """Return why the service is not ready, loading every active model on the way; None when it is.

    Parameters
    ----------
    services : Services
        What is asked.
    """
    try:
        if not services.schema_is_current():
            return "the database schema is not current: run lrbs db upgrade"
        for collection in services.catalogue.collections():
            if collection.active_version is not None:
                services.snapshots.current(collection.name)
    except SQLAlchemyError:
        return "the database does not answer"
    except ServiceError as error:
        return str(error)
    return None
