"""A transport that sends small writes of one step of the event loop together."""
# A server writes the head of an answer and its body one after the other. Sent one by one, each costs a system
# call and wakes the client, which takes longer than preparing the answer to a search.

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_JOINED_BYTES = 1 << 14
"""Larger writes are passed on at once: copying them would take longer, and their flow is controlled."""


class JoiningTransport:
    """Passes everything on to a transport, small writes at the end of the event loop's step."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._n_held = 0

    def __getattr__(self, name: str) -> Any:
        """Return what the transport has; `write` and what ends the writing are defined here."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data, after what was written before."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._n_held += len(data)
        if self._n_held > _JOINED_BYTES:
            self._flush()

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Send several pieces."""
        self.write(b"".join(pieces))

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._n_held + self._transport.get_write_buffer_size()

    def write_eof(self) -> None:
        """Close the writing end after what was written before."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close after what was written before."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            self._transport.write(b"".join(self._held))
        self._held.clear()
        self._n_held = 0
