"""Files beside the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from app.domain.entities import Item, Matrix
from app.domain.ports.index import GalleryIndex


class BlobStore(Protocol):
    """Content-addressed files."""

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256."""
        ...

    def get(self, content_hash: str) -> bytes:
        """Return content; raises FileNotFoundError."""
        ...

    def touch(self, content_hash: str) -> None:
        """Make content as young as if it were put now; raises FileNotFoundError."""
        ...

    def sweep(
        self, before: float, used: Callable[[Sequence[str]], set[str]], only: Sequence[str] | None
    ) -> int:
        """Remove content last put before a time that is not `used`; return how much.

        Of all content, and of what interrupted writes left, when `only` is None.
        """
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

    def batches(self, size: int) -> Iterator[list[tuple[int, Item]]]:
        """Yield everything added, in order, at most `size` at a time."""
        ...

    def ids(self) -> Iterator[str]:
        """Yield the id of everything added, in order."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...


class BundleFiles(Protocol):
    """Folders that are published whole and checked when they are opened."""

    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; returns its folder name and the hash of its manifest."""
        ...

    def open(self, folder: str, manifest_hash: str) -> Path:
        """Return the checked folder; raises DamagedBundleError."""
        ...

    def sweep(
        self, before: float, used: Callable[[Sequence[str]], set[str]], only: Sequence[str] | None
    ) -> int:
        """Remove bundles written before a time that are not `used`; return how many.

        Of all bundles, and of what interrupted writes left, when `only` is None.
        """
        ...


class IndexFiles(Protocol):
    """Reads and writes index files."""

    def save(self, vectors: Matrix, path: Path) -> None:
        """Write an index over the rows."""
        ...

    def load(self, path: Path, rank: int) -> GalleryIndex:
        """Read an index; raises DamagedBundleError."""
        ...
