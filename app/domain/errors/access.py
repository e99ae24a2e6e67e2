"""Errors of keys and what they may do."""

from __future__ import annotations

from app.domain.errors.base import AccessDeniedError, NotFoundError, ServiceError


class UnauthenticatedError(ServiceError):
    """The call needs a key."""

    code = "unauthenticated"
    title = "Key needed"


class KeyMissingError(UnauthenticatedError):
    """The call needs a key and came without one."""

    def __init__(self) -> None:
        super().__init__("this call needs a key")


class ForbiddenError(AccessDeniedError):
    """The key is valid but lacks the scope."""

    title = "Key lacks a scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"the key lacks the scope {scope!r}")


class KeyIsBoundError(AccessDeniedError):
    """The key is bound to collections, and the call is not about one of them."""

    title = "Key is bound to collections"

    def __init__(self) -> None:
        super().__init__("the key is bound to some collections, and this call is not about one of them")


class KeyNotFoundError(NotFoundError):
    """No key of that id."""

    code = "key-not-found"
    title = "Key not found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"there is no key {key_id!r}")


class RateLimitedError(ServiceError):
    """More requests than the key is allowed."""

    code = "rate-limited"
    title = "Too many requests"

    def __init__(self, requests_per_minute: int, retry_after_seconds: int) -> None:
        super().__init__(
            f"more than {requests_per_minute} requests in a minute: try again in {retry_after_seconds} s"
        )
        self.retry_after_seconds = retry_after_seconds
