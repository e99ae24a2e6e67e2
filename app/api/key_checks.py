"""Key checks: look up the keys of requests, so that invented keys do not delay callers with valid ones."""

from __future__ import annotations

import anyio
from anyio import to_thread

from app.api.middleware.queues import Asker, ConcurrencyLimiter
from app.domain.entities import ApiKey
from app.domain.names import Scope
from app.services.access.service import AccessService

_THREADS = 6
"""For keys that were valid before; they are looked up after each commit, since they may have been revoked."""


class KeyChecks:
    """Checks keys in threads of its own; look-ups of keys that this process never found valid are limited."""

    def __init__(self, access: AccessService, strangers: ConcurrencyLimiter) -> None:
        self._access = access
        self._strangers = strangers
        self._threads = anyio.CapacityLimiter(_THREADS)
        self._strangers_threads = anyio.CapacityLimiter(_THREADS)  # `strangers` admits fewer

    async def require(self, secret: str | None, scope: Scope, address: str) -> ApiKey:
        """Return the key of a call as `AccessService.require` does; raises UnavailableError for too many
        unknown keys. No address may block all others whose key is unknown."""
        if not secret:
            return self._access.require(None, scope)
        recalled = self._access.recall(secret, scope)
        if recalled is not None:
            return recalled
        if self._access.has_seen(secret):
            return await to_thread.run_sync(self._access.require, secret, scope, limiter=self._threads)
        asker = Asker(caller=address)
        await self._strangers.enter(asker)
        try:
            return await to_thread.run_sync(
                self._access.require, secret, scope, limiter=self._strangers_threads
            )
        finally:
            self._strangers.leave(asker)
