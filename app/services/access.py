"""Keys: made once, stored as hashes, checked on every call that needs one."""

from __future__ import annotations

import hashlib
import secrets

from app.domain.entities import ApiKey, Scope
from app.domain.errors import ForbiddenError, InvalidFieldError, UnauthenticatedError
from app.domain.names import check_storable
from app.domain.ports import Database

_PREFIX = "lrbs_"
_MAX_NAME = 64


class AccessService:
    """Creates and checks API keys.

    Parameters
    ----------
    database : Database
        Holds the hashes.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, scope: Scope, name: str | None = None, replace: bool = False) -> tuple[ApiKey, str]:
        """Return a new key and its secret (256 random bits), which is shown this once.

        Parameters
        ----------
        scope : Scope
            What it allows.
        name : str, optional
            What people call it; need not be unique.
        replace : bool
            Whether the keys of that name are revoked.

        Raises
        ------
        InvalidFieldError
            If the name is empty, too long or cannot be stored.
        """
        if name is not None:
            if not 1 <= len(name) <= _MAX_NAME or not name.isprintable():
                raise InvalidFieldError("name", f"expected 1 to {_MAX_NAME} printable characters")
            check_storable("name", name)
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.write() as work:
            for key in work.keys.list() if replace else ():
                if key.name == name:
                    work.keys.delete(key.id)
            return work.keys.add(_hash(secret), scope, name), secret

    def list_keys(self) -> list[ApiKey]:
        """Return all keys."""
        with self._database.read() as work:
            return work.keys.list()

    def revoke(self, key_id: str) -> None:
        """Delete a key; raises KeyNotFoundError."""
        with self._database.write() as work:
            work.keys.delete(key_id)

    def require(self, secret: str | None, scope: Scope) -> ApiKey:
        """Let a call pass that carries a key of at least this scope; return the key.

        Raises
        ------
        UnauthenticatedError
            If there is no key, or it is unknown.
        ForbiddenError
            If its scope is too small.
        """
        if not secret:
            raise UnauthenticatedError("this call needs a key: Authorization: Bearer <key>")
        # Looked up by hash: timing reveals nothing of a secret of 256 random bits.
        with self._database.read() as work:
            key = work.keys.find(_hash(secret))
        if key is None:
            raise UnauthenticatedError("the key is unknown or was revoked")
        if not key.scope.allows(scope):
            raise ForbiddenError(scope.value)
        return key


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
