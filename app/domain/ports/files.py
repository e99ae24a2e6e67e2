"""Files beside the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from app.domain.entities import Item, Mark, Matrix
from app.domain.ports.index import GalleryIndex


class StoredFiles(Protocol):
    """Files, or folders of files, that are named by rows of the database and can be found unused."""

    def names(self) -> Iterator[str]:
        """Yield the name of everything that is stored."""
        ...

    def times(self) -> Iterator[tuple[str, float]]:
        """Yield each name, and when it was last written or touched, in seconds since the epoch."""
        ...

    def discard(self, names: Sequence[str], before: float) -> int:
        """Take away what is unused; return how much was there.

        It can come back for a while: by itself, when it is asked for, or when it turns out to be used.
        Where nothing is kept, what was touched before that time is gone for good, immediately or when the
        store is tidied.
        """
        ...

    def tidy(self, before: float, used: Callable[[Sequence[str]], set[str]]) -> Iterator[int]:
        """Remove what interrupted writes left, and bring back what was taken but is used.

        It is done in steps, while the result is iterated over: the number removed in each.
        """
        ...


class BlobStore(StoredFiles, Protocol):
    """Content-addressed files."""

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256."""
        ...

    def get(self, content_hash: str) -> bytes:
        """Return content, whose sum was checked; raises FileNotFoundError where it is lost or damaged."""
        ...

    def touch(self, content_hash: str) -> None:
        """Make content as young as if it were put now; raises FileNotFoundError."""
        ...


class FolderMark(Protocol):
    """What a data folder remembers of its database."""

    def read(self) -> Mark | None:
        """Return it; None when the folder was never marked."""
        ...

    def names_this_database(self) -> bool:
        """Return whether a mark of an older form names the place of the database at hand."""
        ...

    def write(self, mark: Mark, replace: bool) -> None:
        """Write it durably; one that is there stays unless it is to be replaced."""
        ...


class Spool(Protocol):
    """Checked items of an import on their way to the database: kept on disk, gone when closed."""

    @property
    def size(self) -> int:
        """Number of items."""
        ...

    def add(self, entries: Sequence[tuple[int, Item]]) -> tuple[int, int] | None:
        """Append items, each with its line.

        Returns the place among `entries` of the first whose id was there before, and the line it stands
        on; None when each is new.
        """
        ...

    def batches(self, size: int, max_bytes: int | None = None) -> Iterator[list[tuple[int, Item]]]:
        """Yield everything added, in order, at most `size` items at a time.

        A batch ends with the item that brings it to `max_bytes`, when these are given.
        """
        ...

    def ids(self) -> Iterator[str]:
        """Yield the id of everything added, in order."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...


class BundleFiles(StoredFiles, Protocol):
    """Folders that are published whole and checked when they are opened."""

    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; returns its folder name and the hash of its manifest.

        Raises StorageFullError or StorageReadOnlyError where the disk does not take it.
        """
        ...

    def open(
        self, folder: str, manifest_hash: str, without: Sequence[str] = ()
    ) -> AbstractContextManager[Path]:
        """Return a context with the files on this machine, which stay there until its end.

        They are checked but for parts that are not read: entering the context raises DamagedBundleError.
        """
        ...

    def check(self, folder: str, manifest_hash: str) -> None:
        """Look for damage in what is stored, whatever copies of it there are; raises DamagedBundleError."""
        ...


class IndexFiles(Protocol):
    """Reads and writes index files."""

    def save(self, vectors: Matrix, path: Path) -> None:
        """Write an index over the rows."""
        ...

    def load(self, path: Path, rank: int) -> GalleryIndex:
        """Read an index; raises DamagedBundleError."""
        ...
