"""Access: keys, made once and checked on every call that needs one, and rates of calls."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import heapq
import logging
import math
import os
import re
import secrets
import struct
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import numpy as np

from app.db.session import Database
from app.domain.entities import ApiKey, CallCount, KeyBounds
from app.domain.errors import DatabaseUnavailableError, InvalidFieldError, ServiceError
from app.domain.names import MAX_KEY_COLLECTIONS, MAX_NAME, Scope, check_storable

# The file has places for a bounded number of callers, each with a number for every second. A process that
# counts holds the file's lock (`flock`) for some microseconds; the system releases that of one that dies.


WINDOW = 60
"""Seconds: limits are those of a minute."""
_SECONDS = WINDOW + 1  # the present one, and those before it in which a call may be less than a minute old
_NAME = 64  # bytes of a caller's name; a longer one is hashed
_PLACE = struct.Struct(f"={_NAME}sq{_SECONDS}I{_SECONDS}H")
"""A caller: name, second of the last call, and by second the number of calls and the ms of the last one."""
_ROWS = np.dtype(
    [("name", f"S{_NAME}"), ("last", "=i8"), ("calls", "=u4", _SECONDS), ("ms", "=u2", _SECONDS)]
)
_TOKEN = 32  # bytes at the beginning that identify the file
_PER_SET = 8
_SETS = 1024
_SET_BYTES = _PER_SET * _PLACE.size
"""A caller has a place in one set: the one used longest ago, if all are taken."""
_LOOK_SECONDS = 5.0
"""Between two openings of the file, which somebody may have removed or emptied."""
_PAUSE_SECONDS = 0.00005
_LONGEST_WAIT_SECONDS = 0.1
"""For a process that holds the lock and stands still; then a call is counted without it."""
_logger = logging.getLogger(__name__)


class CallFile:
    """Counts the calls of the last minute by who made them, exactly over all who open the file, which the
    first call makes. Without a file, or where it cannot be made, this process counts alone."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._alone: int | None = None
        self._close: Callable[[], object] = lambda: None
        self._look_at = 0.0
        self._threads = threading.Lock()

    def add(self, caller: str, allowed: int) -> float | None:
        """Count a call and return None; one too many in a minute is not counted, and waits these seconds."""
        name = caller.encode(errors="replace")
        if len(name) > _NAME:
            name = blake2b(name).hexdigest()[:_NAME].encode()
        name = name.ljust(_NAME, b"\0")
        with self._threads:
            try:
                return self._add(self._get_descriptor(), name, allowed)
            except OSError as error:
                # Such as a full disk: what was counted so far is forgotten, rather than the call refused.
                return self._add(self._count_alone(error), name, allowed)

    def counts(self) -> tuple[str, dict[str, CallCount]]:
        """Return what identifies the file, and what was counted in it of late, by caller."""
        with self._threads:
            if self._descriptor is None:
                return "", {}
            stored = os.pread(self._get_descriptor(), _TOKEN + _SETS * _SET_BYTES, 0)
        rows = np.frombuffer(stored, _ROWS, (len(stored) - _TOKEN) // _ROWS.itemsize, _TOKEN)
        now = time.time()
        rows = rows[(rows["last"] > now - _SECONDS) & (rows["last"] <= now)]
        last = rows["last"][:, None]
        ages = now - (last - (last - np.arange(_SECONDS)) % _SECONDS) - rows["ms"] / 1000
        calls = np.where(ages < WINDOW, rows["calls"], 0)
        oldest = np.where(calls > 0, ages, 0.0).max(axis=1, initial=0.0)
        entries = zip(rows["name"].tolist(), calls.sum(axis=1).tolist(), oldest.tolist(), strict=True)
        counts = {
            name.decode(errors="replace"): CallCount(count, age) for name, count, age in entries if count
        }
        return stored[:_TOKEN].decode("ascii"), counts

    def _add(self, descriptor: int, name: bytes, allowed: int) -> float | None:
        start = _TOKEN + zlib.crc32(name) % _SETS * _SET_BYTES
        with _lock(descriptor):
            stored = os.pread(descriptor, _SET_BYTES, start).ljust(_SET_BYTES, b"\0")
            moment = time.time()  # which the machine's next start does not set back
            now, ms = int(moment), int(moment % 1 * 1000)
            number, last, calls, of_last = _find(stored, name, now)
            for second in range(last + 1, now + 1):
                calls[second % _SECONDS] = 0
            oldest = (now + 1) % _SECONDS
            if of_last[oldest] <= ms:
                calls[oldest] = 0
            if sum(calls) >= allowed:
                past = (now - age for age in range(WINDOW, -1, -1) if calls[(now - age) % _SECONDS])
                began = next(past, now)
                return began + of_last[began % _SECONDS] / 1000 + WINDOW - moment
            calls[now % _SECONDS] += 1
            of_last[now % _SECONDS] = ms
            place = _PLACE.pack(name, now, *calls, *of_last)
            os.pwrite(descriptor, place, start + number * _PLACE.size)
        return None

    def _get_descriptor(self) -> int:
        if self._file is not None and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            try:
                descriptor = _open(self._file)
            except OSError as error:
                return self._count_alone(error)
            self._close()
            self._descriptor, self._close = descriptor, weakref.finalize(self, os.close, descriptor)
        return self._count_alone() if self._descriptor is None else self._descriptor

    def _count_alone(self, error: OSError | None = None) -> int:
        """Count in memory of this process, which says why where a file was wanted."""
        if error is not None:
            _logger.warning("this process counts calls without the others of its host: %s", error)
        if self._alone is None:
            self._alone = _prepare(os.memfd_create("lrbs-calls"))
            weakref.finalize(self, os.close, self._alone)
        self._close()
        self._descriptor, self._close = self._alone, lambda: None
        return self._alone


def _open(file: Path) -> int:
    """Open the file of all processes; raises OSError, also where another user may have put it there."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_uid not in (os.geteuid(), file.parent.stat().st_uid):
            raise PermissionError(errno.EACCES, "another user's file", str(file))
        return _prepare(descriptor)
    except OSError:
        os.close(descriptor)
        raise


def _prepare(descriptor: int) -> int:
    """Return a file that has a token; all else is removed of one without it."""
    with _lock(descriptor):
        if not re.fullmatch(rb"[0-9a-f]{%d}" % _TOKEN, os.pread(descriptor, _TOKEN, 0)):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, secrets.token_hex(_TOKEN // 2).encode("ascii"), 0)
    return descriptor


@contextmanager
def _lock(descriptor: int) -> Iterator[None]:
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(_PAUSE_SECONDS)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _find(stored: bytes, name: bytes, now: int) -> tuple[int, int, list[int], list[int]]:
    """Return the number of a caller's place in a set, the second of its last call, and what it holds."""
    oldest, called_at = 0, now + 1
    for number in range(_PER_SET):
        stored_name, last, *seconds = _PLACE.unpack_from(stored, number * _PLACE.size)
        is_recent = now - _SECONDS < last <= now  # nor ahead: the clock was set back
        if stored_name == name and is_recent:
            return number, last, seconds[:_SECONDS], seconds[_SECONDS:]
        if (last if is_recent else 0) < called_at:
            oldest, called_at = number, last if is_recent else 0
    return oldest, now, [0] * _SECONDS, [0] * _SECONDS


_MOST_SHARED = 1000  # callers whose counts are shared with other hosts, the busiest: bounds what is written
_STALE_SECONDS = 5.0
"""What others counted is used for this time: after a pause, or without the database, it is too old."""
_NONE = CallCount(0, 0.0)


class RateLimits:
    """Counts the calls of the last minute by who made them, in one file for all processes of a host; without,
    alone. 0 requests a minute are no limit."""

    # What other hosts counted is known from the last exchange: each of them may allow a caller too many calls
    # until the next one, and no more. Within a host no burst passes more calls than the limit.

    def __init__(self, requests_per_minute: int, file: Path | None = None) -> None:
        self._default = requests_per_minute
        self._calls = CallFile(file)
        self._has_shared = False
        self._elsewhere: tuple[float, Mapping[str, CallCount]] = (-math.inf, {})
        """When others were asked, by the monotonic clock, and what they counted."""

    def count(self, caller: str, requests_per_minute: int | None) -> None:
        """Count one call; raises ServiceError, and counts nothing, when it is one too many by its own or
        the default limit."""
        allowed = self._default if requests_per_minute is None else requests_per_minute
        if allowed == 0:
            return
        asked_at, counts = self._elsewhere
        is_fresh = time.monotonic() - asked_at < _STALE_SECONDS
        elsewhere = counts.get(caller, _NONE) if is_fresh else _NONE
        seconds = self._calls.add(caller, max(allowed - elsewhere.calls, 0))
        if seconds is not None:
            if elsewhere.calls:
                seconds = min(seconds, WINDOW - elsewhere.age_seconds)
            wait = max(math.ceil(seconds), 1)
            message = f"more than {allowed} requests in a minute: try again in {wait} s"
            raise ServiceError("rate-limited", message, wait=wait)

    def exchange(self, database: Database) -> None:
        """Exchange counts with other hosts, where there is anything to share."""
        host, counts = self._calls.counts()
        if not counts and not self._has_shared:
            return
        most = heapq.nlargest(_MOST_SHARED, counts.items(), key=lambda entry: entry[1].calls)
        with database.write() as work:
            others = work.keys.exchange_calls(host, dict(most), WINDOW)
        self._has_shared = bool(counts)
        self._elsewhere = time.monotonic(), _sums(others)


def _sums(others: Iterable[Mapping[str, CallCount]]) -> Mapping[str, CallCount]:
    """Return the calls of each caller to all other hosts together."""
    sums: dict[str, CallCount] = {}
    for counts in others:
        for caller, entry in counts.items():
            before = sums.get(caller, _NONE)
            sums[caller] = CallCount(before.calls + entry.calls, max(before.age_seconds, entry.age_seconds))
    return sums


_PREFIX = "lrbs_"
_SECRET = re.compile(_PREFIX + r"[A-Za-z0-9_-]{43}")
_MOST_SEEN = 10_000
"""Valid keys that are remembered, by the hashes of their secrets; of more, the one used least recently is
dropped."""
_UNBOUND = KeyBounds()
_LATEST = datetime(9999, 12, 31, tzinfo=UTC)
"""A day before the calendar ends: the time has to remain a date in every time zone."""


@dataclass(eq=False)
class AccessService:
    """Creates and checks API keys."""

    _database: Database
    _rates: RateLimits
    _used_at: dict[str, float] = field(default_factory=dict, init=False)  # by the monotonic clock
    # keys with the mark of the database from before they were looked up
    _seen: dict[str, tuple[Hashable | None, ApiKey]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def create(
        self, scope: Scope, name: str | None = None, replace: bool = False, bounds: KeyBounds = _UNBOUND
    ) -> tuple[ApiKey, str]:
        """Return a new key and its secret (256 random bits), which is shown this once; `replace` revokes all
        of that name. Raises InvalidFieldError for a bad name or bound, and CollectionNotFoundError."""
        if name is not None:
            if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
                raise InvalidFieldError("name", f"expected 1 to {MAX_NAME} printable characters")
            check_storable("name", name)
        _check_bounds(bounds)
        secret = _PREFIX + secrets.token_urlsafe(32)
        with self._database.write() as work:
            if bounds.expires_at is not None and bounds.expires_at <= work.now():
                raise InvalidFieldError("expires_at", "is in the past")
            for collection in bounds.collections or ():
                work.collections.get(collection)
            replaced = [key.id for key in work.keys.list() if replace and key.name == name]
            for key_id in replaced:
                work.keys.delete(key_id)
            key = work.keys.add(_hash(secret), scope, name, bounds)
        for key_id in replaced:
            _logger.info("key %s was revoked", key_id)
        _logger.info("key %s of scope %s was created", key.id, scope.value)
        return key, secret

    def list_keys(self) -> list[ApiKey]:
        """Return all keys."""
        with self._database.read() as work:
            return work.keys.list()

    def revoke(self, key_id: str) -> None:
        """Delete a key; raises NotFoundError."""
        with self._database.write() as work:
            work.keys.delete(key_id)
        _logger.info("key %s was revoked", key_id)

    def require(self, secret: str | None, scope: Scope) -> ApiKey:
        """Return the key of a call, if it has at least this scope; counts the call. Raises
        ServiceError without a valid key or for its scope, and for too many calls."""
        if not secret:
            raise ServiceError("key-missing")
        hashed = _hash(secret)
        key, mark, now = None, self._database.change_mark(), None
        if _SECRET.fullmatch(secret):
            with self._database.read() as work:
                key = work.keys.find(hashed)
                if key is not None and key.bounds.expires_at is not None:
                    now = work.now()
        self._note(hashed, mark, key)
        if key is None:
            raise ServiceError("unauthenticated", "the key is unknown or was revoked")
        return self.admit(key, scope, now)

    def recall(self, secret: str | None, scope: Scope) -> ApiKey | None:
        """Do what `require` does, without a transaction; None, and nothing is counted, where it needs one.
        It does not where nothing was committed to the database since the key was looked up."""
        hashed = _hash(secret or "")
        mark, key = self._seen.get(hashed, (None, None))
        if key is None or mark is None or mark != self._database.change_mark():
            return None
        self._note(hashed, mark, key)
        return self.admit(key, scope)

    def admit(self, key: ApiKey, scope: Scope, now: datetime | None = None) -> ApiKey:
        """Return a key that exists if it may make a call, which is counted; raises as `require` does."""
        # `now` is the database's; it may be left out for a remembered key: the database is a file then, on
        # this host's clock.
        if key.bounds.expires_at is not None and key.bounds.expires_at <= (now or datetime.now(UTC)):
            raise ServiceError("unauthenticated", "the key has expired")
        self._rates.count(f"key {key.id}", key.bounds.requests_per_minute)
        with self._lock:
            self._used_at[key.id] = time.monotonic()
        if not key.scope.allows(scope):
            raise ServiceError("forbidden", f"the key lacks the scope {scope.value!r}")
        return key

    def has_seen(self, secret: str) -> bool:
        """Return whether a secret was valid when this process last looked it up."""
        return _hash(secret) in self._seen

    def _note(self, hashed: str, mark: Hashable | None, key: ApiKey | None) -> None:
        with self._lock:
            self._seen.pop(hashed, None)
            if key is not None:
                self._seen[hashed] = mark, key
            if len(self._seen) > _MOST_SEEN:
                del self._seen[next(iter(self._seen))]

    def count_without_key(self, address: str) -> None:
        """Count a call that needs no key, by where it comes from; raises ServiceError."""
        self._rates.count(f"address {address}", None)

    def share_counts(self) -> None:
        """Exchange with other processes how often callers called; called periodically."""
        self._rates.exchange(self._database)

    def record_use(self) -> None:
        """Store when keys were last used; called periodically, since no request should wait for it."""
        with self._lock:
            used_at, self._used_at = self._used_at, {}
        if not used_at:
            return
        try:
            with self._database.write() as work:
                now, ticks = work.now(), time.monotonic()
                moments = {key: now - timedelta(seconds=ticks - then) for key, then in used_at.items()}
                work.keys.note_use(moments)
        except DatabaseUnavailableError:
            with self._lock:
                self._used_at = used_at | self._used_at
            raise


def _check_bounds(bounds: KeyBounds) -> None:
    if bounds.collections is not None and not 1 <= len(bounds.collections) <= MAX_KEY_COLLECTIONS:
        raise InvalidFieldError("collections", f"expected 1 to {MAX_KEY_COLLECTIONS} collections")
    if bounds.expires_at is not None:
        if bounds.expires_at.tzinfo is None:
            raise InvalidFieldError("expires_at", "expected a time with its zone")
        if bounds.expires_at >= _LATEST:
            raise InvalidFieldError("expires_at", f"expected a time before {_LATEST:%Y-%m-%d}")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
