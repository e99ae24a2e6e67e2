"""Logging configuration: destination, format and levels."""

from __future__ import annotations

import copy
import logging
import re
import time
from dataclasses import dataclass

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter
from typing_extensions import override

from app.api.request_scope import CURRENT_KEY_ID, CURRENT_REQUEST_ID

_INTERVAL_SECONDS = 60.0  # between two lines about one cause: often enough for one who watches the log
_TEXT, _TIME = "%(asctime)s [%(process)d] %(levelname)s %(message)s%(by)s", "%Y-%m-%d %H:%M:%S%z"
_OF_REQUESTS = ("app.api.gate", "app.wire.protocol")
"""Loggers with a line for each request in JSON; in text only of those that failed."""
_NUMBERS = re.compile(r"\d+")
"""Of what changes from one line to the next though the cause does not: ports, counts, times."""


@dataclass(slots=True)
class _Cause:
    """What was logged of one cause: when first, how often since, and the last record that was held back."""

    logged_at: float
    count: int = 0
    last: logging.LogRecord | None = None


class CollapsingHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes one line a minute about each cause of warnings and errors, with the number of those left out.
    Warnings of the same words have the same cause; a record may name its own, as ``extra={"cause": ...}``."""

    def __init__(self) -> None:
        super().__init__()
        self._causes: dict[object, _Cause] = {}

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, and how often those were repeated whose minute is over."""
        now, key = time.monotonic(), _cause_of(record)
        over = [name for name, seen in self._causes.items() if now - seen.logged_at >= _INTERVAL_SECONDS]
        for name in over:
            seen = self._causes.pop(name)
            if seen.last is not None:
                if name == key:
                    record = _with_count(record, seen.count)
                else:
                    super().emit(_with_count(seen.last, seen.count))
        if key in self._causes:
            self._causes[key].count += 1
            self._causes[key].last = record
            return
        if key is not None:
            self._causes[key] = _Cause(now)
        super().emit(record)


def log_to_stderr(log_format: str = "text") -> None:
    """Send the log of the service and of its HTTP server to standard error, one line per entry: ``text`` for
    people, or ``json`` for machines, which includes a line for every request."""
    is_json = log_format == "json"
    collapsing, whole = CollapsingHandler(), logging.StreamHandler()
    for handler in (collapsing, whole):
        handler.addFilter(_add_request)
        handler.setFormatter(_json() if is_json else logging.Formatter(_TEXT, _TIME, defaults={"by": ""}))
    for name, level in (("app", logging.INFO), ("uvicorn", logging.WARNING)):
        _send_to(name, collapsing, level)
    for name in _OF_REQUESTS:
        _send_to(name, whole if is_json else collapsing, logging.INFO if is_json else logging.WARNING)


def _send_to(name: str, handler: logging.Handler, level: int) -> None:
    logger = logging.getLogger(name)
    logger.handlers = [handler]
    logger.setLevel(level)
    logger.propagate = False


def _json() -> logging.Formatter:
    return JsonFormatter(
        ["timestamp", "process", "levelname", "name", "message", "request_id", "key_id"],
        rename_fields={"levelname": "level", "name": "logger"},
        reserved_attrs=[*RESERVED_ATTRS, "cause", "by"],
        timestamp=True,
    )


def _add_request(record: logging.LogRecord) -> bool:
    """Add the request that a record is about, and the key that asked for it."""
    record.request_id, key_id = CURRENT_REQUEST_ID.get(), CURRENT_KEY_ID.get()
    if not hasattr(record, "key_id"):
        record.key_id = key_id
    if key_id is not None:
        record.by = f" (key {key_id})"
    return True


def _cause_of(record: logging.LogRecord) -> object:
    """Return what is equal for records that say the same; None for those that are always written."""
    cause = getattr(record, "cause", None)
    if cause is None and record.levelno < logging.WARNING:
        return None
    kind = record.exc_info[0] if record.exc_info else None
    words = record.getMessage() if cause is None else cause
    return record.name, _NUMBERS.sub("0", words) if isinstance(words, str) else words, kind


def _with_count(record: logging.LogRecord, count: int) -> logging.LogRecord:
    counted = copy.copy(record)
    counted.msg, counted.args = f"{record.getMessage()} ({count} more in the minute before)", None
    return counted
