"""What commands work on: a running service over HTTP, or the database here. What makes either is imported
when a command runs: its help, and the shell that completes its options, need none of it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from app.imports import import_for_good

if TYPE_CHECKING:
    from app.bootstrap import Services
    from app.cli.local_backend import LocalBackend
    from app.client import Client
    from app.settings import Settings

    Backend = Client | LocalBackend

URL_VARIABLE = "LRBS_URL"
KEY_VARIABLE = "LRBS_API_KEY"
_PATIENCE_SECONDS = 2.0
"""For a service that is busy for a moment; who waits at a terminal rather reads that it does not answer."""
_SHOWN_NAMES = 5  # of collections that there are, where none has a name like the one asked for
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


def read_settings(**values: Any) -> Settings:
    """Return the settings of the environment, or these; what is none of them is named on standard error."""
    from app.settings import Settings

    for fault in Settings.faults_in(os.environ).values():
        typer.echo(f"warning: {fault}", err=True)
    return Settings(**values)


def local_services(may_create: bool, is_checked: bool = True, **settings: Any) -> Services:
    """Return services with the settings of the environment, or these, over a schema that is current if it
    `is_checked`. Unless a database may be created, raises FileNotFoundError where there is none."""
    from app.bootstrap import build, build_on_existing

    services = (build if may_create else build_on_existing)(read_settings(**settings))
    if is_checked:
        (services.schema.set_up if may_create else services.schema.require_current)()
    return services


def ready_services(may_create: bool = True, is_checked: bool = True, **settings: Any) -> Services:
    """Return the same for a command that does not work over HTTP; raises BadParameter if it is to."""
    refuse_url()
    return local_services(may_create, is_checked, **settings)


def refuse_url() -> None:
    """Raise BadParameter where the environment names a service to work on over HTTP."""
    if os.environ.get(URL_VARIABLE):
        raise typer.BadParameter(
            "this command works on the database here, never over HTTP: unset the variable",
            param_hint=URL_VARIABLE,
        )


@contextmanager
def open_backend(url: str | None, key: str | None, may_create: bool = False) -> Iterator[Backend]:
    """Yield what a command works on, the service of a URL or the database here, and close it in the end."""
    # Both have the words of REST, which are those of `app.client.Client`. Neither is imported before a
    # command runs; that over HTTP brings none of the libraries of the other. Raises BadParameter for an
    # address or key that cannot be used; FileNotFoundError if there may be no database here.
    if not url:
        local: type[LocalBackend] = import_for_good("app.cli.local_backend").LocalBackend
        yield local(local_services(may_create))
        return
    if not _is_address(url):
        raise typer.BadParameter(
            f"expected an address such as http://127.0.0.1:8000, got {url!r}", param_hint="--url"
        )
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise typer.BadParameter("expected a secret of letters, digits, _ and -", param_hint="--key")
    from app.client import Client, LrbsError, NotFoundError

    with Client(url, key or None, patience=_PATIENCE_SECONDS) as client:
        try:
            yield client
        except NotFoundError as error:
            if error.type == "collection-not-found":
                with suppress(LrbsError):  # a key may be bounded to other calls
                    names = [collection.name for collection in client.list_collections().collections]
                    error.problem["detail"] = suggest_name(error.detail, names)
            raise


def suggest_name(message: str, names: Sequence[str]) -> str:
    """Return a message that quotes a name, and which of these may be meant, or which there are."""
    near = difflib.get_close_matches(message.partition("'")[2].partition("'")[0], names, n=1)
    if near:
        return f"{message}; did you mean {near[0]!r}?"
    rest = ", ..." if len(names) > _SHOWN_NAMES else ""
    there = f"are: {', '.join(names[:_SHOWN_NAMES])}{rest}" if names else "is none"
    return f"{message}; there {there}"


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
