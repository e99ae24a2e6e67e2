"""What server, middleware and log share about a request; imports no framework, since the worker logs, too."""

from __future__ import annotations

from contextvars import ContextVar

ABORT = "lrbs.abort"
"""Extension of the ASGI scope: closes the connection immediately, whatever is still to be sent."""
CURRENT_REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the current request, in its thread too; None outside of any request."""
CURRENT_KEY_ID: ContextVar[str | None] = ContextVar("key_id", default=None)
"""Id of the key of the current request, in its thread too; None where there is none."""


# No Strict-Transport-Security: that is for the proxy that terminates TLS in front of this service.
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Scripts and styles come from the service's own files only, so that no text of a gallery becomes code."""

REQUEST_ID = "X-Request-ID"
