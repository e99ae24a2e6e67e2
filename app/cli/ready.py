"""The services as commands need them.

What makes them is imported here when a command runs: its help, and the shell that completes its options,
need none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.bootstrap import Services


def ready_services() -> Services:
    """Return services with the settings of the environment, over a schema that is current."""
    services = new_services()
    services.schema.set_up()
    return services


def new_services() -> Services:
    """Return services with the settings of the environment, whatever the schema."""
    from app.bootstrap import build
    from app.settings import Settings

    return build(Settings())


def existing_services() -> Services:
    """Return services on a database that is there; raises FileNotFoundError without one."""
    from app.bootstrap import build_on_existing
    from app.settings import Settings

    return build_on_existing(Settings())
