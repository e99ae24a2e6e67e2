"""The services as most commands need them."""

from __future__ import annotations

from app.bootstrap import Services, build
from app.settings import Settings


def ready_services() -> Services:
    """Return services with the settings of the environment, over a schema that is current."""
    services = build(Settings())
    services.schema.set_up()
    return services
