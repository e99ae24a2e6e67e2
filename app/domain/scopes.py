"""What keys allow."""

from __future__ import annotations

import enum


class Scope(enum.StrEnum):
    """What a key allows; `admin` includes the others, `write` includes `search`, `metrics` only itself."""

    SEARCH = "search"
    WRITE = "write"
    ADMIN = "admin"
    METRICS = "metrics"

    def allows(self, required: Scope) -> bool:
        """Return whether this scope covers `required`."""
        return required in _COVERED[self]


_COVERED = {
    Scope.SEARCH: {Scope.SEARCH},
    Scope.WRITE: {Scope.SEARCH, Scope.WRITE},
    Scope.ADMIN: set(Scope),
    Scope.METRICS: {Scope.METRICS},
}
