"""The base class of all errors of the service, and the large families below it."""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """Base class of every error that the service raises deliberately.

    Attributes
    ----------
    code : str
        Stable name of this kind of error; never changes once released.
    title : str
        Summary of this kind of error.
    """

    code: ClassVar[str]
    title: ClassVar[str]


class NotFoundError(ServiceError):
    """Something that the caller named does not exist."""


class ConflictError(ServiceError):
    """The call does not fit the state of what it is about."""


class InvalidRequestError(ServiceError):
    """A value that the caller sent is not allowed."""


class AccessDeniedError(ServiceError):
    """The key is valid, but not for this call."""

    code = "forbidden"


class UnavailableError(ServiceError):
    """The service cannot do its work at the moment."""
