"""Content-addressed files on disk."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path


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
        if path.exists():
            return content_hash
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(stream.name, path)
        sync_folder(path.parent)
        return content_hash

    def get(self, content_hash: str) -> bytes:
        """Return content; raises FileNotFoundError."""
        return self._path(content_hash).read_bytes()

    def _path(self, content_hash: str) -> Path:
        return self._root / content_hash[:2] / content_hash


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
