"""What keys allow."""

from __future__ import annotations

import enum


class Scope(enum.StrEnum):
    """What a key allows; `admin` includes the others, `write` includes `search`."""

    SEARCH = "search"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, required: Scope) -> bool:
        """Return whether this scope covers `required`."""
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(required)
