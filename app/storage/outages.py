"""Why an object store fails, in words that name the setting, and who may try it again meanwhile."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.domain.errors import storage_error, storage_unavailable

_PAUSE_SECONDS = 1.0
"""After a failure calls are refused for this time: not each of many waits for a store that is away."""
_PROBE_SECONDS = 60.0
"""One call at a time tries a store that failed; this long after it another one may, whatever became of it."""
_EXISTS = "PreconditionFailed"
"""The code of an answer. Nothing is written under another condition; the library wants its name, too."""
_REFUSED = "it refuses access"
_REASONS = {
    "NoSuchBucket": "there is no such bucket",
    "InvalidAccessKeyId": "it does not know the key of AWS_ACCESS_KEY_ID",
    "InvalidClientTokenId": "it does not know the key of AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY is not the secret of the key in AWS_ACCESS_KEY_ID",
    "AccessDenied": "the key of AWS_ACCESS_KEY_ID has no access to the bucket, or there is no such bucket",
    "ExpiredToken": "the key of AWS_ACCESS_KEY_ID has expired",
    "RequestTimeTooSkewed": "its clock and that of this host differ too much",
    "403": _REFUSED,
}
"""By the code of an answer."""
_KINDS = (
    (
        r"Credentials|ProfileNotFound",
        "its keys are missing or incomplete (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a file that "
        "AWS_SHARED_CREDENTIALS_FILE names)",
    ),
    (r"Connect|Timeout|ConnectionClosed", "it does not answer (AWS_ENDPOINT_URL)"),
    (r"InvalidEndpoint|Invalid endpoint", "AWS_ENDPOINT_URL is not an address"),
)
"""By the kind of an error that is no answer; the libraries have no class in common."""
_logger = logging.getLogger(__name__)


class Outage:
    """When a store failed last, and why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._next_try = 0.0

    @property
    def reason(self) -> str | None:
        """Why the store fails; None if it does not, as far as is known."""
        return self._reason

    def require_over(self) -> None:
        """Raise UnavailableError after a failure, but for one caller, who is to try again."""
        if self._reason is None:
            return
        with self._lock:
            reason, now = self._reason, time.monotonic()
            if reason is None:
                return
            if now < self._next_try:
                raise storage_unavailable(reason)
            self._next_try = now + _PROBE_SECONDS

    def record(self, reason: str | None) -> None:
        """Note a failure, or with None that the store answers."""
        if reason is None and self._reason is None:
            return
        with self._lock:
            self._reason, self._next_try = reason, time.monotonic() + _PAUSE_SECONDS

    @contextmanager
    def translate_errors(self, find_refusal: Callable[[], None]) -> Iterator[None]:
        """Turn whatever a file system raises for a store that is away into UnavailableError. Where
        access is refused without a reason, `find_refusal` asks for something by which the store says it."""
        try:
            yield
        except (FileNotFoundError, FileExistsError) as error:
            if _code_of(error) != "NoSuchBucket":
                self.record(None)
                raise
            self._fail(_REASONS["NoSuchBucket"], error)
        except (TypeError, AttributeError, NameError, AssertionError):
            raise
        except Exception as error:
            if _code_of(error) == _EXISTS:
                self.record(None)
                raise FileExistsError(str(error)) from error
            fault = storage_error(error) if isinstance(error, OSError) else None
            if fault is not None:
                raise fault from error
            reason = _explain(error)
            self._fail(_explain_refusal(find_refusal) if reason == _REFUSED else reason, error)
        self.record(None)

    def _fail(self, reason: str, error: Exception) -> None:
        self.record(reason)
        raise storage_unavailable(reason) from error


def _explain_refusal(find_refusal: Callable[[], None]) -> str:
    try:
        find_refusal()
    except Exception as error:
        return _explain(error)
    return _REASONS["AccessDenied"]


def _explain(error: Exception) -> str:
    code, kind = _code_of(error), f"{type(error).__name__}: {error}"
    if code in _REASONS:
        return _REASONS[code]
    if isinstance(error, PermissionError):
        return _REFUSED
    for pattern, reason in _KINDS:
        if re.search(pattern, kind):
            return reason
    _logger.warning("the storage failed: %s", re.sub(r"//[^/@\s]*@", "//", kind))
    return "it does not answer as it should (the log has more)"


def _code_of(error: BaseException | None) -> str | None:
    """Return the code of the answer that an error stands for."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code: str | None = response.get("Error", {}).get("Code")
            return code
        error = error.__cause__
    return None
