"""Logging configuration: destination, format and levels."""

from __future__ import annotations

import logging

from pythonjsonlogger.json import JsonFormatter

from app.api.request_scope import CURRENT_REQUEST_ID


def log_to_stderr(log_format: str = "text") -> None:
    """Send the log of the service and of its HTTP server to standard error, one line per entry.

    Parameters
    ----------
    log_format : str
        ``text`` for people; ``json`` for machines, which includes a line for every request.
    """
    handler = logging.StreamHandler()
    handler.addFilter(_add_request_id)
    if log_format == "json":
        handler.setFormatter(
            JsonFormatter(
                ["timestamp", "levelname", "name", "message", "request_id"],
                rename_fields={"levelname": "level", "name": "logger"},
                timestamp=True,
            )
        )
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    for name, level in (("app", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
    for name in ("app.api.middleware.request_log", "app.wire.protocol"):
        logging.getLogger(name).setLevel(logging.INFO if log_format == "json" else logging.WARNING)


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = CURRENT_REQUEST_ID.get()
    return True
