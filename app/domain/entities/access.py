"""Keys, what they allow, and the calls of late."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.domain.scopes import Scope


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Restrictions of a key other than its scope."""

    # the only ones it can see; None: all. A name, not an identity: the key keeps working when the collection
    # is deleted and created again
    collections: tuple[str, ...] | None = None
    expires_at: datetime | None = None  # UTC
    requests_per_minute: int | None = None  # its own rate limit; the service's when None

    def allow(self, collection: str) -> bool:
        """Return whether a key of these bounds can see a collection."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: never the secret itself."""

    id: str
    scope: Scope
    created_at: datetime
    name: str | None = None
    bounds: KeyBounds = KeyBounds()
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CallCount:
    """How often a caller called within the last minute, and how long ago the first of these calls was."""

    calls: int
    age_seconds: float
