"""Search of a gallery."""

from __future__ import annotations

from typing import Any, Protocol

from app.domain.entities import Matrix, Vector


class GalleryIndex(Protocol):
    """Maximum-inner-product search over the rows of a matrix; never changed after it was built."""

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    @property
    def vectors(self) -> Matrix:
        """The (size, rank) rows themselves."""
        ...

    def search(self, queries: Matrix, k: int, allowed: Any | None) -> list[tuple[Any, Vector]]:
        """Return for each query row numbers and scores of the k best among `allowed` (a bool per row)."""
        ...
