"""Content-addressed files on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from app.domain.ports import BlobStore
from app.storage.folders import make_folder, sync_folder
from app.storage.sweeping import sweep_leftovers
from app.storage.trash import Trash, Used, is_older

_NEW = ".new-"


class FileBlobStore(BlobStore):
    """Stores each content once, under its SHA-256.

    Parameters
    ----------
    root : Path
        Folder of the store; made when missing.
    trash_seconds : float
        How long content that was discarded can come back.
    """

    def __init__(self, root: Path, trash_seconds: float = 0.0) -> None:
        self._root = root
        self._trash = Trash(root, trash_seconds)

    @override
    def put(self, content: bytes) -> str:
        """Store content durably (synced before it gets its name) and return its SHA-256."""
        content_hash = hashlib.sha256(content).hexdigest()
        path = self._path(content_hash)
        with contextlib.suppress(FileNotFoundError):
            self.touch(content_hash)
            return content_hash
        make_folder(path.parent)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=_NEW)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(descriptor)
            os.replace(aside, path)
        except OSError:
            Path(aside).unlink()  # on a full disk it would take the room that is left
            raise
        sync_folder(path.parent)
        return content_hash

    @override
    def get(self, content_hash: str) -> bytes:
        """Return content, also what was discarded a moment ago; raises FileNotFoundError."""
        path = self._path(content_hash)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if not self._trash.give_back(path):
                raise
        return path.read_bytes()

    @override
    def touch(self, content_hash: str) -> None:
        """Refresh the timestamp: no sweep removes the content before the row that needs it is written."""
        path = self._path(content_hash)
        try:
            os.utime(path)
        except FileNotFoundError:
            if not self._trash.give_back(path):
                raise
            os.utime(path)

    @override
    def names(self) -> Iterator[str]:
        """Yield the hash of all content."""
        return (path.name for path in self._contents())

    @override
    def stale(self, before: float) -> Iterator[str]:
        """Yield the hash of what was last put before a time, in seconds since the epoch."""
        return (path.name for path in self._contents() if is_older(path, before))

    @override
    def discard(self, content_hashes: Sequence[str], before: float) -> int:
        """Move content to the trash; return how much was there.

        Parameters
        ----------
        content_hashes : sequence of str
            Content that no row refers to.
        before : float
            Where the trash keeps nothing, only what was last put before this time is removed at once.
        """
        return self._trash.put([self._path(content_hash) for content_hash in content_hashes], before)

    @override
    def tidy(self, before: float, used: Used) -> int:
        """Remove what interrupted writes left, and bring the trash up to date; return how many leftovers.

        Parameters
        ----------
        before : float
            Younger files are left alone, in seconds since the epoch.
        used : callable
            Says which hashes are used: these come back from the trash.
        """
        self._trash.tidy(self._path, before, used)
        return sum(sweep_leftovers(folder, [_NEW], before) for folder in self._folders())

    def _folders(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        return [path for path in self._root.iterdir() if path.name[0] != "." and path.is_dir()]

    def _contents(self) -> Iterator[Path]:
        return (path for folder in self._folders() for path in folder.iterdir() if path.name[0] != ".")

    def _path(self, content_hash: str) -> Path:
        return self._root / content_hash[:2] / content_hash
