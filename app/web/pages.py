"""Serve the pages (search, a collection, its models, one of them), the API reference, and their files."""
# Everything on the page comes from the public API, so nothing here depends on collections or models. The
# content security policy (`app.api.request_scope`) forbids inline scripts, inline styles and
# other hosts: a text or a label from a gallery cannot run as code even if the page failed to escape it.
# Swagger UI comes from an installed package, since the service has to work without a network. All links are
# relative, so that they hold under whatever path a proxy has put the service.

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles

__all__ = ["mount_pages"]

_STATIC = Path(__file__).parent / "static"
_SWAGGER_UI = ("fastapi_offline", "static")
_REVALIDATED = {"Cache-Control": "no-cache"}  # a browser may cache such an answer but has to revalidate it

_PAGES = {
    "/": "index.html",
    "/collection": "collection.html",
    "/models": "models.html",
    "/model": "version.html",
    "/docs": "docs.html",
}


class _Files(StaticFiles):
    """Static files that browsers revalidate each time, so that modules of two releases are never mixed."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return the file, to be revalidated."""
        response = super().file_response(*args, **options)
        response.headers.update(_REVALIDATED)
        return response


async def _show_page(request: Request) -> Response:
    file = _STATIC / _PAGES[request.scope["route"].path]
    return FileResponse(file, media_type="text/html", headers=_REVALIDATED)


async def _lead_to_page(request: Request) -> Response:
    """Lead from an address with a slash too many or too few to the page's own, where its links hold."""
    path = request.scope["path"]
    name = f"../{path.split('/')[-2]}" if path.endswith("/") else f"{path.rpartition('/')[2]}/"
    query = request.url.query
    return RedirectResponse(f"{name}?{query}" if query else name)


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> APIRoute:
    return APIRoute(path, endpoint, include_in_schema=False, response_model=None)


_ROUTES = [_route(path, _show_page) for path in _PAGES]
_ROUTES += [_route(path, _lead_to_page) for path in (*(f"{page}/" for page in _PAGES), "/")]
# Nothing is left of the address where it is the service's path alone.
_ROUTES[-1].path_regex = re.compile("^$")


def mount_pages(application: FastAPI) -> None:
    """Add the pages (``/``, ``/collection``, ``/models``, ``/model``, ``/docs``) and the mounts of their
    files (``/static``, ``/docs/assets``) to an application."""
    application.router.routes += _ROUTES
    application.mount("/docs/assets", _Files(packages=[_SWAGGER_UI]), name="docs-assets")
    application.mount("/static", _Files(directory=_STATIC), name="static")
