"""The services as commands need them.

What makes them is imported here when a command runs: its help, and the shell that completes its options,
need none of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from app.bootstrap import Services

URL_VARIABLE = "LRBS_URL"


def local_services(**settings: Any) -> Services:
    """Return services with the settings of the environment, or these, over a schema that is current."""
    from app.bootstrap import build
    from app.settings import Settings

    services = build(Settings(**settings))
    services.schema.set_up()
    return services


def ready_services(**settings: Any) -> Services:
    """Return the same for a command that does not work over HTTP; raises BadParameter if it is to."""
    refuse_url()
    return local_services(**settings)


def new_services() -> Services:
    """Return services as `ready_services` does, whatever the schema."""
    from app.bootstrap import build
    from app.settings import Settings

    refuse_url()
    return build(Settings())


def existing_services() -> Services:
    """Return services on a database that is there; raises FileNotFoundError without one."""
    from app.bootstrap import build_on_existing
    from app.settings import Settings

    refuse_url()
    return build_on_existing(Settings())


def refuse_url() -> None:
    """Raise BadParameter where the environment names a service to work on over HTTP."""
    if os.environ.get(URL_VARIABLE):
        raise typer.BadParameter(
            "this command works on the database here, never over HTTP: unset the variable",
            param_hint=URL_VARIABLE,
        )
