"""The services as commands need them. What makes them is imported here when a command runs: its help, and the
shell that completes its options, need none of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from app.bootstrap import Services
    from app.settings import Settings

URL_VARIABLE = "LRBS_URL"


def read_settings(**values: Any) -> Settings:
    """Return the settings of the environment, or these; what is none of them is named on standard error."""
    from app.settings import Settings

    for fault in Settings.faults_in(os.environ).values():
        typer.echo(f"warning: {fault}", err=True)
    return Settings(**values)


def local_services(may_create: bool, **settings: Any) -> Services:
    """Return services with the settings of the environment, or these, over a schema that is current.
    Unless a database may be created, raises FileNotFoundError where there is none."""
    from app.bootstrap import build, build_on_existing

    if may_create:
        services = build(read_settings(**settings))
        services.schema.set_up()
    else:
        services = build_on_existing(read_settings(**settings))
        services.schema.require_current()
    return services


def ready_services(may_create: bool = True, **settings: Any) -> Services:
    """Return the same for a command that does not work over HTTP; raises BadParameter if it is to."""
    refuse_url()
    return local_services(may_create, **settings)


def new_services() -> Services:
    """Return services as `ready_services` does, whatever the schema."""
    from app.bootstrap import build

    refuse_url()
    return build(read_settings())


def existing_services() -> Services:
    """Return services on a database that is there; raises FileNotFoundError without one."""
    from app.bootstrap import build_on_existing

    refuse_url()
    return build_on_existing(read_settings())


def refuse_url() -> None:
    """Raise BadParameter where the environment names a service to work on over HTTP."""
    if os.environ.get(URL_VARIABLE):
        raise typer.BadParameter(
            "this command works on the database here, never over HTTP: unset the variable",
            param_hint=URL_VARIABLE,
        )
