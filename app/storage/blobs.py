"""Content-addressed files on disk."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from app.domain.ports import BlobStore
from app.storage.folders import durable_file
from app.storage.sweeping import COPYING, sweep_leftovers
from app.storage.trash import Trash, Used

_NEW = ".new-"  # name prefix of unfinished writes
_logger = logging.getLogger(__name__)


class FileBlobStore(BlobStore):
    """Stores each content once, under its SHA-256; what was discarded can be restored for a while."""

    def __init__(self, root: Path, trash_seconds: float = 0.0) -> None:
        self._root = root
        self._trash = Trash(root, trash_seconds)

    @override
    def put(self, content: bytes) -> str:
        """Store content durably (synced before it gets its final name) and return its SHA-256."""
        content_hash = hashlib.sha256(content).hexdigest()
        path = self._path(content_hash)
        with contextlib.suppress(FileNotFoundError):
            self.touch(content_hash)
            if path.read_bytes() == content:
                return content_hash
        with durable_file(path.parent, _NEW, content) as aside:
            os.replace(aside, path)
        return content_hash

    @override
    def get(self, content_hash: str) -> bytes:
        """Return content, restored from the trash if need be.
        Raises FileNotFoundError where it is lost or damaged; storing it again gives it back."""
        path = self._path(content_hash)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if not self._trash.give_back(path):
                raise
            content = path.read_bytes()
        require_sum(content, content_hash)
        return content

    @override
    def touch(self, content_hash: str) -> None:
        path = self._path(content_hash)
        try:
            os.utime(path)
        except FileNotFoundError:
            if not self._trash.give_back(path):
                raise
            os.utime(path)

    @override
    def names(self) -> Iterator[str]:
        return (path.name for path in self._contents())

    @override
    def times(self) -> Iterator[tuple[str, float]]:
        for path in self._contents():
            with contextlib.suppress(FileNotFoundError):
                yield path.name, path.stat().st_mtime

    @override
    def discard(self, content_hashes: Sequence[str], before: float) -> int:
        """Move content that no row refers to, to the trash; return the number of files that existed."""
        # If the trash keeps nothing, only what was last put before this time (seconds since the epoch) goes,
        # at once.
        return self._trash.put([self._path(content_hash) for content_hash in content_hashes], before)

    @override
    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash, and remove what interrupted writes left before this time (seconds since the epoch);
        yield their number in each step. `used` returns the hashes in use, which are restored."""
        for _ in self._trash.tidy(self._path, before, used):
            yield 0
        for folder in [self._root, *self._folders()]:
            yield sweep_leftovers(folder, [_NEW, COPYING], before)

    def _folders(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        return [path for path in self._root.iterdir() if path.name[0] != "." and path.is_dir()]

    def _contents(self) -> Iterator[Path]:
        """Yield what lies where its name says; a sweep could not remove what lies elsewhere."""
        contents = (path for folder in self._folders() for path in folder.iterdir())
        return (path for path in contents if path == self._path(path.name))

    def _path(self, content_hash: str) -> Path:
        return self._root / content_hash[:2] / content_hash


def require_sum(content: bytes, content_hash: str) -> None:
    """Raise FileNotFoundError, and log it, for content that is not what its name says."""
    if hashlib.sha256(content).hexdigest() != content_hash:
        _logger.error("content %s is damaged: its sum is another one", content_hash)
        raise FileNotFoundError(errno.ENOENT, "the content is damaged", content_hash)
