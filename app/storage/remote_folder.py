"""A folder of an object store, reached by fsspec."""

from __future__ import annotations

import errno
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from app.domain.errors import storage_unavailable
from app.storage.folders import PART_BYTES, Entry
from app.storage.outages import Outage

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
    """A folder of an object store, made by `open_remote`; what is stored is as in a `LocalFolder`. Raises
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
        """Return the content of a file; raises FileNotFoundError."""
        try:
            content: bytes = self._call(self._filesystem.cat_file, self._at(key))
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "it is not there", key) from error
        return content

    def read_parts(self, key: str) -> Iterator[bytes]:
        """Yield the content of a file of any size; raises FileNotFoundError."""
        entry = self.find(key)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        for start in range(0, entry.size, PART_BYTES):
            end = min(start + PART_BYTES, entry.size)
            yield self._call(self._filesystem.cat_file, self._at(key), start=start, end=end)

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
        prefix = f"{self._filesystem._strip_protocol(path)}/"
        # Some file systems list the folder itself, too, as one that was emptied.
        below = [(facts["name"].rstrip("/"), facts) for facts in listed]
        children = [
            _entry(name.rpartition("/")[2], facts) for name, facts in below if name.startswith(prefix)
        ]
        return sorted(children, key=lambda entry: entry.name)

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

    def keys(self, key: str = "") -> list[str]:
        """Return the keys of all files, or of those below a folder."""
        return [_join(key, entry.name) for entry in self.walk(key)]

    def newest(self, key: str = "") -> dict[str, float]:
        """Return when what stands in a folder was last written, by name."""
        # By the files: some stores list a folder after its last one has gone.
        newest: dict[str, float] = {}
        for entry in self.walk(key):
            name = entry.name.partition("/")[0]
            newest[name] = max(newest.get(name, 0.0), entry.modified)
        return newest

    def has(self, key: str, last: str | None) -> bool:
        """Return whether something is stored."""
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

    def bring_back_all(self, pairs: Sequence[tuple[str, str]], last: str | None) -> None:
        """Bring several back."""
        run_together(lambda pair: self.bring_back(*pair, last), pairs)

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
        with self._outage.translate_errors(self._find_refusal):
            return function(*arguments, **options)

    def _find_refusal(self) -> None:
        """Ask for a listing: unlike the answer to a look at one file, a refusal of it says why."""
        self._filesystem.ls(self._path, detail=False)


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
