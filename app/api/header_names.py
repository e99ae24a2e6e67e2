"""Headers that every answer has."""

from __future__ import annotations

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
