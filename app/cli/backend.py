"""What short commands work on: a running service over HTTP, or the database here.

Both have the words of REST, which are those of `app.client.Client`. Neither is imported before a command
runs; that over HTTP brings none of the libraries of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from app.cli.ready import URL_VARIABLE

if TYPE_CHECKING:
    from app.cli.local_backend import LocalBackend
    from app.client import Client

    Backend = Client | LocalBackend

KEY_VARIABLE = "LRBS_API_KEY"
_PATIENCE_SECONDS = 2.0
"""For a service that is busy for a moment; who waits at a terminal rather reads that it does not answer."""

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar=URL_VARIABLE,
        help="work on the running service at this address, not the database here",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", envvar=KEY_VARIABLE, help="secret of an API key for --url")
]


@contextmanager
def open_backend(url: str | None, key: str | None) -> Iterator[Backend]:
    """Yield what a command works on, and close it in the end.

    Parameters
    ----------
    url : str or None
        Of a running service; None or an empty text for the database here.
    key : str or None
        Secret of an API key for the service.

    Raises
    ------
    BadParameter
        If the address is none of HTTP, or the key cannot be sent.
    """
    if not url:
        from app.cli.local_backend import LocalBackend
        from app.cli.ready import local_services

        yield LocalBackend(local_services())
        return
    if not _is_address(url):
        raise typer.BadParameter(
            f"expected an address such as http://127.0.0.1:8000, got {url!r}", param_hint="--url"
        )
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise typer.BadParameter("expected a secret of letters, digits, _ and -", param_hint="--key")
    from app.client import Client

    with Client(url, key or None, patience=_PATIENCE_SECONDS) as client:
        yield client


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
