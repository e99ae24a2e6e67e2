"""A folder of an object store, reached by fsspec; why the store fails, and who may try it again meanwhile."""

from __future__ import annotations

import errno
import functools
import importlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app.domain.errors import storage_error, storage_unavailable
from app.storage.folders import PART_BYTES, Entry

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
# Else each session reads the descriptions of all services, for a tenth of a second.
_loader = functools.cache(lambda path: importlib.import_module("botocore.loaders").create_loader(path))


class Outage:
    """When a store failed last, and why."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reason: str | None = None
        """Why the store fails; None if it does not, as far as is known."""
        self._next_try = 0.0

    def require_over(self) -> None:
        """Raise UnavailableError after a failure, but for one caller, who is to try again."""
        if self.reason is None:
            return
        with self._lock:
            reason, now = self.reason, time.monotonic()
            if reason is None:
                return
            if now < self._next_try:
                raise storage_unavailable(reason)
            self._next_try = now + _PROBE_SECONDS

    def record(self, reason: str | None) -> None:
        """Note a failure, or with None that the store answers."""
        if reason is None and self.reason is None:
            return
        with self._lock:
            self.reason, self._next_try = reason, time.monotonic() + _PAUSE_SECONDS

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


_TRIES = 2  # of a call; the library's own five would keep those who wait for minutes
_AT_A_TIME = 16  # requests of one caller: most of a request is waiting for the answer
_CONNECTIONS = 2 * _AT_A_TIME  # so that who reads a picture does not wait for connections while much is moved
_OPTIONS: dict[str, dict[str, Any]] = {
    # In seconds. A store that is away is noticed soon, one that is slow may take its time for an answer.
    "s3": {
        "config_kwargs": {
            "connect_timeout": 3.0,
            "read_timeout": 20.0,
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": _CONNECTIONS,
        }
    }
}
"""Options of a file system, by the scheme of the URL."""
_TIMES = ("LastModified", "mtime", "last_modified", "updated", "created")
"""What file systems call the time of the last change."""


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class RemoteFolder:
    """A folder of an object store, made by `open_remote`, with the methods of a `LocalFolder`. They raise
    UnavailableError where the store does not answer or refuses, or a local file cannot be written."""

    is_moved_at_once = False

    def __init__(self, filesystem: Any, path: str, outage: Outage) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self._outage = outage

    def find_fault(self) -> str | None:
        """Return why the store failed when it was last asked; None if it did not."""
        reason = self._outage.reason
        return None if reason is None else str(storage_unavailable(reason))

    def child(self, name: str) -> RemoteFolder:
        """Return a folder in this one."""
        return RemoteFolder(self._filesystem, f"{self._path}/{name}", self._outage)

    def read(self, key: str) -> bytes:
        try:
            content: bytes = self._call(self._filesystem.cat_file, self._at(key))
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "it is not there", key) from error
        return content

    def read_parts(self, key: str) -> Iterator[bytes]:
        entry = self.find(key)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        for start in range(0, entry.size, PART_BYTES):
            end = min(start + PART_BYTES, entry.size)
            yield self._call(self._filesystem.cat_file, self._at(key), start=start, end=end)

    def write(self, key: str, content: bytes) -> None:
        self._call(self._filesystem.pipe_file, self._at(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Write a file unless there is one; return whether it was written."""
        try:
            self._call(self._filesystem.pipe_file, self._at(key), content, mode="create")
        except FileExistsError:
            return False
        return True

    def renew(self, key: str, content: bytes) -> bool:
        """Return False: a file becomes young by being written again."""
        return False

    def touch(self, key: str, check: Callable[[bytes], None]) -> None:
        """Write a file as it is, once its content was checked; raises FileNotFoundError."""
        content = self.read(key)
        check(content)
        self.write(key, content)

    def upload(self, file: Path, key: str) -> None:
        """Write a file from a local one."""
        self._call(self._filesystem.put_file, str(file), self._at(key))

    def publish(self, aside: Path, key: str, files: Sequence[str]) -> None:
        """Write the files of a folder from a local one, the last after the others."""
        for file in files:
            self.upload(aside / file, f"{key}/{file}")

    def take(self, file: Path, key: str) -> None:
        """Write a file from a local one, which is gone then."""
        self.upload(file, key)
        file.unlink()

    def download(self, key: str, file: Path) -> None:
        self._call(self._filesystem.get_file, self._at(key), str(file))

    def copy(self, source: str, target: str) -> None:
        """Copy a file; raises FileNotFoundError."""
        self._call(self._filesystem.cp_file, self._at(source), self._at(target))

    def remove(self, key: str) -> None:
        """Remove a file if it is there."""
        try:
            self._call(self._filesystem.rm_file, self._at(key))
        except FileNotFoundError:
            return

    def find(self, key: str) -> Entry | None:
        """Return what is known of a file; None if there is none."""
        try:
            facts = self._call(self._filesystem.info, self._at(key))
        except FileNotFoundError:
            return None
        return None if facts["type"] == "directory" else _entry(key, facts)

    def entries(self, key: str = "") -> list[Entry]:
        return self._list(self._filesystem.ls, key)

    def walk(self, key: str = "") -> list[Entry]:
        """Return all files below a folder, named relative to it."""
        return self._list(lambda path, detail: self._filesystem.find(path, detail=detail).values(), key)

    def _list(self, find: Callable[..., Iterable[dict[str, Any]]], key: str) -> list[Entry]:
        path = _join(self._path, key)
        try:
            listed = self._call(find, path, detail=True)
        except FileNotFoundError:
            return []
        prefix = f"{self._filesystem._strip_protocol(path)}/"
        # Some file systems list the folder itself, too, as one that was emptied, or the file that a path is.
        below = ((facts["name"].rstrip("/"), facts) for facts in listed)
        entries = (
            _entry(name.removeprefix(prefix), facts) for name, facts in below if name.startswith(prefix)
        )
        return sorted(entries, key=lambda entry: entry.name)

    def keys(self, key: str = "") -> list[str]:
        return [_join(key, entry.name) for entry in self.walk(key)]

    def newest(self, key: str = "") -> dict[str, float]:
        # By the files: some stores list a folder after its last one has gone.
        newest: dict[str, float] = {}
        for entry in self.walk(key):
            name = entry.name.partition("/")[0]
            newest[name] = max(newest.get(name, 0.0), entry.modified)
        return newest

    def has(self, key: str, last: str | None) -> bool:
        return bool(self._files_at(key, last))

    def move_all(self, pairs: Sequence[tuple[str, str]], last: str | None) -> list[str]:
        """Move what is stored: copy it, and remove it then; return the new keys of what was there."""
        files = run_together(lambda pair: self._files_at(pair[0], last), pairs)
        moves = [
            [(_join(source, file), _join(target, file)) for file in parts]
            for (source, target), parts in zip(pairs, files, strict=True)
        ]
        # Several files at a time of what has several, and several of those that are one.
        moved = run_together(self._move, moves) if last is None else list(map(self._move, moves))
        return [target for (_, target), was_there in zip(pairs, moved, strict=True) if was_there]

    def bring_back(self, source: str, target: str, last: str | None) -> bool:
        """Copy what is missing at its place there; return whether it was."""
        # The original stays: another host may be moving the same name at this moment, and of a copy removed
        # here and one removed there nothing would be left.
        files = self._files_at(source, last)
        if not files or self.find(_join(target, files[-1])) is not None:
            return False
        try:
            for file in files:
                self.copy(_join(source, file), _join(target, file))
        except FileNotFoundError:  # its time was over
            return False
        return True

    def remove_all(self, keys: Sequence[str], before: float) -> None:
        """Remove what is stored for good; it was listed as older than `before`."""
        run_together(self._remove, keys)

    def remove_if_empty(self, key: str) -> None:
        """Do nothing: a folder without files is none."""

    def sweep_leftovers(self, before: float, last: str | None) -> Iterator[int]:
        """Yield nothing: a file is written whole or not at all, and a folder without its last is unused."""
        return iter(())

    def _files_at(self, key: str, last: str | None) -> list[str]:
        """Return the files of what is stored, relative to it, the last one last; [""] for a single file."""
        if last is None:
            return [""] if self.find(key) is not None else []
        return sorted((entry.name for entry in self.walk(key)), key=lambda name: (name == last, name))

    def _move(self, keys: Sequence[tuple[str, str]]) -> bool:
        """Copy files, the last one after the others, then remove the originals, that one first.
        Return whether there were any."""
        # A process that is killed in between leaves whole files at both places; the last one stands for all.
        others, last = keys[:-1], keys[-1:]
        try:
            for part in (others, last):
                run_together(lambda key: self.copy(*key), part)
            for part in (last, others):
                run_together(lambda key: self.remove(key[0]), part)
        except FileNotFoundError:  # another process was faster
            return False
        return bool(keys)

    def _remove(self, key: str) -> None:
        for below in self.keys(key) or [key]:
            self.remove(below)

    def _at(self, key: str) -> str:
        return f"{self._path}/{key}"

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._outage.require_over()
        # Unlike the answer to a look at one file, a refusal of a listing says why.
        with self._outage.translate_errors(lambda: self._filesystem.ls(self._path, detail=False)):
            return function(*arguments, **options)


def open_remote(url: str) -> RemoteFolder:
    """Return the folder that a URL such as ``s3://bucket/prefix`` names; nothing is asked of the store yet.
    Raises UnavailableError if a library is missing, or the scheme is unknown."""
    # Credentials and address come from where the library of the scheme looks for them.
    try:
        fsspec = importlib.import_module("fsspec")
        scheme = fsspec.utils.get_protocol(url)
        options = {"use_listings_cache": False, "skip_instance_cache": True, **_OPTIONS.get(scheme, {})}
        if scheme == "s3":
            options["session"] = _make_session()
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise storage_unavailable(
            "LRBS_STORAGE_URL needs a library that is not installed: pip install 'lrbs[s3]' for s3://"
        ) from error
    except ValueError as error:
        raise storage_unavailable(f"LRBS_STORAGE_URL is not understood: {error}") from error
    if hasattr(filesystem, "retries"):
        filesystem.retries = _TRIES
    return RemoteFolder(filesystem, path, Outage())


def _make_session() -> Any:
    """Return a session of the library of S3 whose uploads do not wait to be asked for.
    That wait knows no timeout: a store that takes connections and does not answer would hold it forever."""
    session = importlib.import_module("aiobotocore.session").get_session()
    session.lazy_register_component("data_loader", lambda: _loader(session.get_config_variable("data_path")))
    session.unregister("before-call.s3", importlib.import_module("botocore.handlers").add_expect_header)
    return session


def run_together(act: Callable[[_Argument], _Result], arguments: Sequence[_Argument]) -> list[_Result]:
    """Return what a function of the store returns for each argument, several at a time.
    Once one of them raises, no further one is begun."""
    if len(arguments) < 2:  # most are; they need no threads
        return [act(argument) for argument in arguments]
    with ThreadPoolExecutor(min(_AT_A_TIME, len(arguments))) as threads:
        return list(threads.map(act, arguments))


def _entry(name: str, facts: dict[str, Any]) -> Entry:
    is_folder = facts["type"] == "directory"
    changed = next((facts[key] for key in _TIMES if facts.get(key) is not None), 0.0)
    modified = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    return Entry(name, 0.0 if is_folder else modified, int(facts.get("size") or 0), is_folder)


def _join(place: str, file: str) -> str:
    return f"{place}/{file}" if place and file else place or file
