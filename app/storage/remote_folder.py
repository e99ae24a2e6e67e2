"""A folder of an object store, reached by fsspec."""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.domain.errors import StorageUnavailableError, storage_error

_OPTIONS: dict[str, dict[str, Any]] = {
    # In seconds. A store that is away is noticed soon, one that is slow may take its time for an answer.
    "s3": {"config_kwargs": {"connect_timeout": 3.0, "read_timeout": 20.0, "retries": {"max_attempts": 1}}}
}
"""Options of a file system, by the scheme of the URL."""
_TRIES = 2
"""Of a call; the library's own five would keep those who wait for minutes."""
_PAUSE_SECONDS = 1.0
"""After a failure calls are refused for this time: not each of many waits for a store that is away."""
_TIMES = ("LastModified", "mtime", "last_modified", "updated", "created")
"""What file systems call the time of the last change."""
_MISSING_BUCKET = "NoSuchBucket"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands in a folder.

    Parameters
    ----------
    name : str
        Relative to the folder that was listed.
    modified : float
        When it was written, in seconds since the epoch by the store's clock; 0 for a folder.
    size : int
        Bytes.
    is_folder : bool
        Whether it is a folder.
    """

    name: str
    modified: float
    size: int
    is_folder: bool


class _Outage:
    """When a store failed last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failed: tuple[float, str] | None = None

    def require_over(self) -> None:
        """Raise StorageUnavailableError shortly after a failure."""
        with self._lock:
            failed = self._failed
        if failed is not None and time.monotonic() - failed[0] < _PAUSE_SECONDS:
            raise StorageUnavailableError(failed[1])

    def record(self, reason: str | None) -> None:
        """Note a failure, or with None that the store answers."""
        if reason is None and self._failed is None:
            return
        with self._lock:
            self._failed = None if reason is None else (time.monotonic(), reason)


class RemoteFolder:
    """A folder of an object store; made by `open_remote`.

    Every method raises StorageUnavailableError where the store does not answer or refuses, and
    StorageFullError where a local file cannot be written.

    Parameters
    ----------
    filesystem : fsspec.AbstractFileSystem
        The store.
    path : str
        The folder in it.
    outage : _Outage
        Of the store.
    """

    def __init__(self, filesystem: Any, path: str, outage: _Outage) -> None:
        self._filesystem = filesystem
        self._path = path.rstrip("/")
        self._outage = outage

    def child(self, name: str) -> RemoteFolder:
        """Return a folder in this one."""
        return RemoteFolder(self._filesystem, f"{self._path}/{name}", self._outage)

    def read(self, key: str) -> bytes:
        """Return the content of a file; raises FileNotFoundError."""
        content: bytes = self._call(self._filesystem.cat_file, self._at(key))
        return content

    def write(self, key: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        self._call(self._filesystem.pipe_file, self._at(key), content)

    def create(self, key: str, content: bytes) -> bool:
        """Write a file unless there is one; return whether it was written."""
        try:
            self._call(self._filesystem.pipe_file, self._at(key), content, mode="create")
        except FileExistsError:
            return False
        return True

    def upload(self, file: Path, key: str) -> None:
        """Write a file from a local one."""
        self._call(self._filesystem.put_file, str(file), self._at(key))

    def download(self, key: str, file: Path) -> None:
        """Write a local file from a stored one; raises FileNotFoundError."""
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
        """Return what stands in a folder, by name; nothing if there is none."""
        path = self._at(key) if key else self._path
        try:
            listed = self._call(self._filesystem.ls, path, detail=True)
        except FileNotFoundError:
            return []
        children = [_entry(facts["name"].rstrip("/").rpartition("/")[2], facts) for facts in listed]
        # Some file systems list the folder itself, too.
        return sorted((entry for entry in children if entry.name), key=lambda entry: entry.name)

    def walk(self, key: str = "") -> list[Entry]:
        """Return all files below a folder, named relative to it."""
        path = self._at(key) if key else self._path
        try:
            children = self._call(self._filesystem.find, path, detail=True)
        except FileNotFoundError:
            return []
        prefix = f"{self._filesystem._strip_protocol(path)}/"
        # Of a path that is a file, some file systems return that.
        below = [(name, facts) for name, facts in sorted(children.items()) if name.startswith(prefix)]
        return [_entry(name.removeprefix(prefix), facts) for name, facts in below]

    def _at(self, key: str) -> str:
        return f"{self._path}/{key}"

    def _call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self._outage.require_over()
        with _translate_errors(self._outage):
            return function(*arguments, **options)


@contextmanager
def _translate_errors(outage: _Outage) -> Iterator[None]:
    """Turn whatever a file system raises for a store that is away into StorageUnavailableError.

    File systems raise errors of the libraries they use, which have no class in common.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        if not _is_without_bucket(error):
            outage.record(None)
            raise
        reason = "there is no such bucket"
        outage.record(reason)
        raise StorageUnavailableError(reason) from error
    except (TypeError, AttributeError, NameError, AssertionError):
        raise
    except Exception as error:
        fault = storage_error(error) if isinstance(error, OSError) else None
        if fault is not None:
            raise fault from error
        _logger.warning("the storage failed: %s: %s", type(error).__name__, error)
        if "Credentials" in type(error).__name__:
            reason = "its keys are missing or incomplete"
        else:
            reason = "it refuses access" if isinstance(error, PermissionError) else "it does not answer"
        outage.record(reason)
        raise StorageUnavailableError(reason) from error
    outage.record(None)


def _is_without_bucket(error: BaseException | None) -> bool:
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict) and response.get("Error", {}).get("Code") == _MISSING_BUCKET:
            return True
        error = error.__cause__
    return False


def open_remote(url: str) -> RemoteFolder:
    """Return the folder that a URL names; nothing is asked of the store yet.

    Parameters
    ----------
    url : str
        Such as ``s3://bucket/prefix``; credentials and address come from where the library of the scheme
        looks for them.

    Raises
    ------
    StorageUnavailableError
        If a library is missing, or the scheme is unknown.
    """
    try:
        fsspec = importlib.import_module("fsspec")
        scheme = fsspec.utils.get_protocol(url)
        options = {"use_listings_cache": False, "skip_instance_cache": True, **_OPTIONS.get(scheme, {})}
        filesystem, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise StorageUnavailableError(
            "LRBS_STORAGE_URL needs a library that is not installed: pip install 'lrbs[s3]' for s3://"
        ) from error
    except ValueError as error:
        raise StorageUnavailableError(f"LRBS_STORAGE_URL is not understood: {error}") from error
    if hasattr(filesystem, "retries"):
        filesystem.retries = _TRIES
    return RemoteFolder(filesystem, path, _Outage())


def move(folder: RemoteFolder, keys: Sequence[tuple[str, str]]) -> int:
    """Copy files one after the other, then remove the originals, the last one first; return how many.

    A process that is killed in between leaves whole files at both places; the last one stands for all.

    Parameters
    ----------
    folder : RemoteFolder
        Of both places.
    keys : sequence of (str, str)
        From where to where.
    """
    for source, target in keys:
        folder.copy(source, target)
    for source, _ in reversed(keys):
        folder.remove(source)
    return len(keys)


def _entry(name: str, facts: dict[str, Any]) -> Entry:
    is_folder = facts["type"] == "directory"
    changed = next((facts[key] for key in _TIMES if facts.get(key) is not None), 0.0)
    modified = changed.timestamp() if isinstance(changed, datetime) else float(changed)
    return Entry(name, 0.0 if is_folder else modified, int(facts.get("size") or 0), is_folder)
