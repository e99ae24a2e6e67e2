"""Serve the pages (search, a collection, its models, one of them), the API reference, and their files.

Everything on the page comes from the public API, so nothing here depends on collections or models. The
content security policy (`app.api.middleware.security_headers`) forbids inline scripts, inline styles and
other hosts: a text or a label from a gallery cannot run as code even if the page failed to escape it. Swagger
UI comes from an installed package, since the service has to work without a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.staticfiles import StaticFiles

__all__ = ["mount_pages"]

_STATIC = Path(__file__).parent / "static"
_SWAGGER_UI = ("fastapi_offline", "static")
_REVALIDATED = {"Cache-Control": "no-cache"}
"""A browser may cache such an answer but has to revalidate it."""


class _Files(StaticFiles):
    """Static files that browsers revalidate each time, so that modules of two releases are never mixed."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return the file, to be revalidated."""
        response = super().file_response(*args, **options)
        response.headers.update(_REVALIDATED)
        return response


def mount_pages(application: FastAPI) -> None:
    """Add the pages and their files to an application.

    Parameters
    ----------
    application : FastAPI
        Gains the routes ``/``, ``/collection``, ``/models``, ``/model`` and ``/docs``, and the mounts
        ``/static`` and ``/docs/assets``.
    """

    @application.get("/", include_in_schema=False)
    def show_search_page() -> FileResponse:
        return FileResponse(_STATIC / "index.html", media_type="text/html", headers=_REVALIDATED)

    @application.get("/collection", include_in_schema=False)
    def show_collection_page() -> FileResponse:
        return FileResponse(_STATIC / "collection.html", media_type="text/html", headers=_REVALIDATED)

    @application.get("/models", include_in_schema=False)
    def show_models_page() -> FileResponse:
        return FileResponse(_STATIC / "models.html", media_type="text/html", headers=_REVALIDATED)

    @application.get("/model", include_in_schema=False)
    def show_model_page() -> FileResponse:
        return FileResponse(_STATIC / "version.html", media_type="text/html", headers=_REVALIDATED)

    @application.get("/docs", include_in_schema=False)
    def show_reference() -> FileResponse:
        return FileResponse(_STATIC / "docs.html", media_type="text/html", headers=_REVALIDATED)

    application.mount("/docs/assets", _Files(packages=[_SWAGGER_UI]), name="docs-assets")
    application.mount("/static", _Files(directory=_STATIC), name="static")
