"""What server, middleware and log share about a request; imports no framework, since the worker logs, too."""

from __future__ import annotations

from contextvars import ContextVar

ABORT = "lrbs.abort"
"""Extension of the ASGI scope: closes the connection immediately, whatever is still to be sent."""
CURRENT_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the current request, in its thread too; None outside of any request."""
CURRENT_KEY_ID: ContextVar[str | None] = ContextVar("key_id", default=None)
"""Id of the key of the current request, in its thread too; None where there is none."""
