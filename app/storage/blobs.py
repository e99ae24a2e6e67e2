"""Content-addressed files on disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.storage.sweeping import Used, sweep_leftovers, sweep_paths

_NEW = ".new-"


class FileBlobStore:
    """Stores each content once, under its SHA-256.

    Parameters
    ----------
    root : Path
        Folder of the store; made when missing.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, content: bytes) -> str:
        """Store content durably (synced before it gets its name) and return its SHA-256."""
        content_hash = hashlib.sha256(content).hexdigest()
        path = self._path(content_hash)
        with contextlib.suppress(FileNotFoundError):
            self.touch(content_hash)
            return content_hash
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_NEW, delete=False) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(stream.name, path)
        sync_folder(path.parent)
        return content_hash

    def get(self, content_hash: str) -> bytes:
        """Return content; raises FileNotFoundError."""
        return self._path(content_hash).read_bytes()

    def touch(self, content_hash: str) -> None:
        """Make content young again: no sweep takes it before the row is written that needs it."""
        os.utime(self._path(content_hash))

    def sweep(self, before: float, used: Used, only: Sequence[str] | None = None) -> int:
        """Remove content last put before a time that is not `used`; return how much.

        Parameters
        ----------
        before : float
            Seconds since the epoch.
        used : callable
            Says which hashes are used.
        only : sequence of str, optional
            Hashes to look at; everything, and what interrupted writes left, when None.
        """
        if only is not None:
            return sweep_paths([self._path(content_hash) for content_hash in only], before, used)
        folders = [path for path in self._root.iterdir() if path.is_dir()] if self._root.is_dir() else []
        left = sum(sweep_leftovers(folder, [_NEW], before) for folder in folders)
        contents = (path for folder in folders for path in folder.iterdir() if path.name[0] != ".")
        return left + sweep_paths(contents, before, used)

    def _path(self, content_hash: str) -> Path:
        return self._root / content_hash[:2] / content_hash


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
