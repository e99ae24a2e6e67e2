"""Errors of a service that is overloaded, is stopping, or waits for a slow client."""

from __future__ import annotations

from app.domain.errors.base import ServiceError, UnavailableError


class OverloadedError(UnavailableError):
    """More work is waiting than will be begun soon."""

    code = "overloaded"
    title = "Service overloaded"

    retry_after_seconds = 1

    def __init__(self, reason: str = "too many requests are waiting already") -> None:
        super().__init__(f"{reason}: try again in a moment")


class StoppingError(UnavailableError):
    """The service ends before the work is done; whether a write was stored is not known."""

    code = "stopping"
    title = "Service stopping"

    retry_after_seconds = 5

    def __init__(self) -> None:
        super().__init__("the service is stopping before this is finished: send it again in a moment")


class BodyTimeoutError(ServiceError):
    """The rest of a body did not come in time."""

    code = "body-timeout"
    title = "Body incomplete"

    def __init__(self) -> None:
        super().__init__("body: the rest of it did not come in time")
        self.field = "body"
