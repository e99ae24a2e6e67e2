"""Search of a gallery."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from app.domain.entities import Matrix, Vector


class GalleryIndex(Protocol):
    """Maximum-inner-product search over the rows of a matrix; immutable once built."""

    @property
    def is_exact(self) -> bool:
        """Whether every search returns the true best rows, so that its recall need not be measured."""
        ...

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    @property
    def vectors(self) -> Matrix:
        """The (size, rank) rows themselves."""
        ...

    def search(
        self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None
    ) -> tuple[npt.NDArray[np.intp], Vector]:
        """Return row numbers and scores of the `k` best rows, best first.

        Parameters
        ----------
        query : ndarray of shape (rank,)
            A projected query.
        k : int
            Fewer rows are returned only if fewer are alive; more if some tie with the last one, so that the
            caller can order equal scores by a rule of its own.
        alive : ndarray of bool, shape (size,), or None
            Which rows may be returned; None for all.
        """
        ...
