"""What can go wrong with a call, as exceptions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import httpx
import msgspec


class LrbsError(Exception):
    """Base of everything that a client raises."""


class ConnectionFailedError(LrbsError):
    """The service could not be reached, or did not answer in time."""


class RejectedError(LrbsError):
    """The service answered with a problem (RFC 9457).

    Parameters
    ----------
    status : int
        Of HTTP.
    problem : mapping
        The body of the answer, or what stands for it where the answer is not of the service.
    retry_after : float or None
        Seconds after which the service asks to be called again.
    """

    def __init__(self, status: int, problem: dict[str, Any], retry_after: float | None = None) -> None:
        self.status = status
        self.problem = problem
        self.retry_after = retry_after
        place = f" ({self.field})" if self.field else ""
        super().__init__(f"{status} {self.title}: {self.detail}{place}")

    @property
    def type(self) -> str:
        """Kind of the problem, such as ``item-not-found``."""
        return str(self.problem.get("type", "")).rpartition("/")[2]

    @property
    def title(self) -> str:
        """Name of the kind."""
        return str(self.problem.get("title", ""))

    @property
    def detail(self) -> str:
        """What is wrong with this call."""
        return str(self.problem.get("detail", ""))

    @property
    def field(self) -> str | None:
        """What of the request it is about, such as ``items.3.vector``."""
        return self.problem.get("field")

    @property
    def correlation_id(self) -> str | None:
        """Id of the call in the log of the service."""
        return self.problem.get("correlation_id")


class InvalidRequestError(RejectedError):
    """The request is wrong, and will be however often it is sent."""


class NotAllowedError(RejectedError):
    """The key is missing, unknown, or does not permit this."""


class NotFoundError(RejectedError):
    """What the call names does not exist, or does no longer."""


class WasChangedError(RejectedError):
    """What exists already, or was changed by others, stands against the call."""


class UnavailableError(RejectedError):
    """The service cannot answer now, and may be able to later."""


_PROXIES_WORDS = {
    413: "takes no body of this size",
    502: "does not reach it",
    504: "did not wait for its answer",
}
_BY_STATUS = {
    401: NotAllowedError,
    403: NotAllowedError,
    404: NotFoundError,
    409: WasChangedError,
    410: NotFoundError,
    429: UnavailableError,
}


def problem_of(answer: httpx.Response) -> RejectedError:
    """Return the exception that an answer with an error status stands for; its body has been read."""
    status = answer.status_code
    try:
        problem = msgspec.json.decode(answer.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = _problem_of_proxy(status)
    kind = _BY_STATUS.get(status, UnavailableError if status >= 500 else InvalidRequestError)
    seconds: str = answer.headers.get("Retry-After", "")
    return kind(status, problem, float(seconds) if seconds.isdecimal() else None)


def _problem_of_proxy(status: int) -> dict[str, Any]:
    """Return what an answer means that is none of the service, but of something in front of it."""
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "no problem document"
    return {
        "title": title,
        "detail": f"a proxy in front of the service {_PROXIES_WORDS.get(status, 'answers')}",
    }
