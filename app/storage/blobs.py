"""Content-addressed files."""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Iterator, Sequence
from functools import partial

from app.storage.folders import Entry
from app.storage.local_cache import LocalCache
from app.storage.trash import Folder, Trash, Used

_logger = logging.getLogger(__name__)


class Blobs:
    """Stores each content once, under its SHA-256; what was discarded can be restored for a while.
    Of a folder that is far away a cache has what was read or written here."""

    def __init__(self, folder: Folder, cache: LocalCache | None = None, trash_seconds: float = 0.0) -> None:
        self._folder = folder
        self._cache = cache
        self._trash = Trash(folder, trash_seconds, _place, None)

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256; what is there already becomes young."""
        content_hash = hashlib.sha256(content).hexdigest()
        place = _place(content_hash)
        is_there = self._folder.renew(place, content)
        if not is_there and self._folder.is_moved_at_once and self._trash.give_back(content_hash):
            is_there = self._folder.renew(place, content)
        if not is_there:
            self._folder.write(place, content)
        if self._cache is not None:
            self._cache.write(content_hash, content)
        return content_hash

    def get(self, content_hash: str) -> bytes:
        """Return content, restored from the trash if need be.
        Raises FileNotFoundError where it is lost or damaged; storing it again gives it back."""
        copy = None if self._cache is None else self._cache.read(content_hash)
        if copy is not None and hashlib.sha256(copy).hexdigest() == content_hash:
            return copy
        content = self._read(content_hash)
        if self._cache is not None:
            self._cache.write(content_hash, content)
        return content

    def touch(self, content_hash: str) -> None:
        """Make content as young as if it were put now, so that no sweep removes it before its row is written.
        Raises FileNotFoundError where it is not there."""
        check = partial(_require_sum, content_hash)
        try:
            self._folder.touch(_place(content_hash), check)
        except FileNotFoundError:
            if not self._trash.give_back(content_hash):
                raise
            self._folder.touch(_place(content_hash), check)

    def names(self) -> Iterator[str]:
        """Yield the name of everything that is stored."""
        return (entry.name for entry in self._contents())

    def times(self) -> Iterator[tuple[str, float]]:
        """Yield each name, and when it was last written or touched, in seconds since the epoch."""
        return ((entry.name, entry.modified) for entry in self._contents())

    def discard(self, content_hashes: Sequence[str], before: float) -> int:
        """Move content that no row refers to, to the trash; return the number of files that existed."""
        # Where the trash keeps nothing, what was put before this time (seconds since the epoch) is gone for
        # good, at once or when it is tidied.
        return self._trash.put(content_hashes, before)

    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash, and remove what interrupted writes left before this time (seconds since the epoch);
        yield their number in each step. `used` returns the hashes in use, which are restored."""
        yield from self._trash.tidy(before, used)
        yield from self._folder.sweep_leftovers(before, None)

    def _read(self, content_hash: str) -> bytes:
        try:
            content = self._folder.read(_place(content_hash))
        except FileNotFoundError:
            if not self._trash.give_back(content_hash):
                raise
            content = self._folder.read(_place(content_hash))
        _require_sum(content_hash, content)
        return content

    def _contents(self) -> Iterator[Entry]:
        """Yield what is stored: a folder is listed once those before it were seen, since all may be many."""
        for folder in self._folder.entries():
            if folder.is_folder and not folder.name.startswith("."):
                contents = (entry for entry in self._folder.entries(folder.name) if not entry.is_folder)
                # A sweep could not remove what lies elsewhere than its name says.
                yield from (entry for entry in contents if entry.name[:2] == folder.name)


def _place(content_hash: str) -> str:
    return f"{content_hash[:2]}/{content_hash}"


def _require_sum(content_hash: str, content: bytes) -> None:
    """Raise FileNotFoundError, and log it, for content that is not what its name says."""
    if hashlib.sha256(content).hexdigest() != content_hash:
        _logger.error("content %s is damaged: its sum is another one", content_hash)
        raise FileNotFoundError(errno.ENOENT, "the content is damaged", content_hash)
