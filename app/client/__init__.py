"""A typed client of the service, for programs that use it over HTTP.

It knows nothing of the service but its REST interface, and needs httpx and msgspec alone.
"""

from app.client.clients import AsyncClient, Client
from app.client.problems import (
    ConnectionFailedError,
    InvalidRequestError,
    LrbsError,
    NotAllowedError,
    NotFoundError,
    RejectedError,
    UnavailableError,
    WasChangedError,
)

__all__ = [
    "AsyncClient",
    "Client",
    "ConnectionFailedError",
    "InvalidRequestError",
    "LrbsError",
    "NotAllowedError",
    "NotFoundError",
    "RejectedError",
    "UnavailableError",
    "WasChangedError",
]
