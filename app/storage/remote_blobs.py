"""Content-addressed files in an object store, with copies on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from typing_extensions import override

from app.domain.ports import BlobStore
from app.storage.blobs import require_sum
from app.storage.local_cache import LocalCache
from app.storage.remote_folder import Entry, RemoteFolder
from app.storage.remote_trash import RemoteTrash
from app.storage.trash import Used


class RemoteBlobStore(BlobStore):
    """Stores each content once, under its SHA-256; an object appears whole or not at all.
    The cache has what was read or written here; what was discarded can be restored for a while."""

    def __init__(self, folder: RemoteFolder, cache: LocalCache, trash_seconds: float = 0.0) -> None:
        self._folder = folder
        self._cache = cache
        self._trash = RemoteTrash(folder, trash_seconds, _place, self._files_at)

    @override
    def put(self, content: bytes) -> str:
        """Store content and return its SHA-256; what is there already is written again, and so young."""
        content_hash = hashlib.sha256(content).hexdigest()
        self._folder.write(_place(content_hash), content)
        self._cache.write(content_hash, content)
        return content_hash

    @override
    def get(self, content_hash: str) -> bytes:
        copy = self._cache.read(content_hash)
        if copy is not None and hashlib.sha256(copy).hexdigest() == content_hash:
            return copy
        content = self._read(content_hash)
        self._cache.write(content_hash, content)
        return content

    def _read(self, content_hash: str) -> bytes:
        try:
            content = self._folder.read(_place(content_hash))
        except FileNotFoundError:
            if not self._trash.give_back(content_hash):
                raise
            content = self._folder.read(_place(content_hash))
        require_sum(content, content_hash)
        return content

    @override
    def touch(self, content_hash: str) -> None:
        self._folder.write(_place(content_hash), self._read(content_hash))

    @override
    def names(self) -> Iterator[str]:
        return (entry.name for entry in self._contents())

    @override
    def times(self) -> Iterator[tuple[str, float]]:
        return ((entry.name, entry.modified) for entry in self._contents())

    @override
    def discard(self, content_hashes: Sequence[str], before: float) -> int:
        return self._trash.put(content_hashes)

    @override
    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash; yield 0 after each step, since a write leaves all or nothing."""
        return (0 for _ in self._trash.tidy(before, used))

    def _contents(self) -> Iterator[Entry]:
        """Yield what is stored: a folder is listed once those before it were seen, since all may be many."""
        for folder in self._folder.entries():
            if folder.is_folder and not folder.name.startswith("."):
                contents = (entry for entry in self._folder.entries(folder.name) if not entry.is_folder)
                # A sweep could not remove what lies elsewhere than its name says.
                yield from (entry for entry in contents if entry.name[:2] == folder.name)

    def _files_at(self, place: str) -> Sequence[str]:
        return [""] if self._folder.find(place) is not None else []


def _place(content_hash: str) -> str:
    return f"{content_hash[:2]}/{content_hash}"
