"""Which pairs of samples are similar: the supervision of a bilinear similarity.

A supervision object answers three questions of the loss: how many similar and dissimilar pairs
there are (they set the weights w = 1/|S| and 1/|D| of the paper), in which order the samples should
be visited so that similar pairs stand together, and which rectangles of a block of rows are similar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from solver.errors import SupervisionError


class Supervision(Protocol):
    """What a loss needs to know about the pairs.

    Rows and columns are counted in visiting order: row r is sample ``x_order[r]``.
    """

    @property
    def x_order(self) -> npt.NDArray[np.intp]:
        """Visiting order of the first modality's samples."""
        ...

    @property
    def z_order(self) -> npt.NDArray[np.intp]:
        """Visiting order of the second modality's samples."""
        ...

    @property
    def n_similar(self) -> int:
        """Size of S, the set of similar pairs."""
        ...

    @property
    def n_dissimilar(self) -> int:
        """Size of D, the set of dissimilar pairs."""
        ...

    def similar_rectangles(self, start: int, stop: int) -> list[tuple[slice, slice]]:
        """Return the similar pairs of rows start..stop as (rows, columns), rows relative to `start`."""
        ...


@dataclass(frozen=True, slots=True)
class _ClassRuns:
    """Sorted samples of one modality: where each class begins and ends."""

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    stops: npt.NDArray[np.intp]

    @classmethod
    def of(cls, codes: npt.NDArray[np.intp], n_classes: int) -> _ClassRuns:
        counts = np.bincount(codes, minlength=n_classes)
        stops = np.cumsum(counts).astype(np.intp)
        return cls(np.argsort(codes, kind="stable"), stops - counts, stops)


class Labels:
    """One class per sample; a pair is similar when both samples carry the same class.

    Parameters
    ----------
    x_labels : array-like of shape (n_samples_x,)
        Classes of the first modality: integers or strings.
    z_labels : array-like of shape (n_samples_z,), optional
        Classes of the second modality; the first's when left out (paired rows).
        The two may differ in length, and a class may occur on one side only.

    Raises
    ------
    SupervisionError
        If the labels are not one-dimensional, are not comparable, or leave no similar or no
        dissimilar pair.

    Examples
    --------
    >>> supervision = Labels(["cat", "dog", "dog"], ["dog", "cat"])
    >>> supervision.n_similar, supervision.n_dissimilar
    (3, 3)
    """

    def __init__(self, x_labels: npt.ArrayLike, z_labels: npt.ArrayLike | None = None) -> None:
        x = _one_dimensional(x_labels, "x_labels")
        z = x if z_labels is None else _one_dimensional(z_labels, "z_labels")
        if (x.dtype.kind in "US") != (z.dtype.kind in "US"):
            raise SupervisionError(f"x_labels ({x.dtype}) and z_labels ({z.dtype}) are not of one kind")
        classes, codes = np.unique(np.concatenate([x, z]), return_inverse=True)
        self.classes: npt.NDArray[Any] = classes
        self._x = _ClassRuns.of(codes[: len(x)], len(classes))
        self._z = _ClassRuns.of(codes[len(x) :], len(classes))
        self._n_similar = int(np.sum((self._x.stops - self._x.starts) * (self._z.stops - self._z.starts)))
        if self.n_similar == 0:
            raise SupervisionError("no similar pair: x_labels and z_labels have no class in common")
        if self.n_dissimilar == 0:
            raise SupervisionError(f"no dissimilar pair: every sample has the label {classes[0]!r}")

    @property
    def x_order(self) -> npt.NDArray[np.intp]:
        """Samples of the first modality, class by class."""
        return self._x.order

    @property
    def z_order(self) -> npt.NDArray[np.intp]:
        """Samples of the second modality, class by class."""
        return self._z.order

    @property
    def n_similar(self) -> int:
        """Number of pairs with the same class."""
        return self._n_similar

    @property
    def n_dissimilar(self) -> int:
        """Number of pairs with different classes."""
        return len(self._x.order) * len(self._z.order) - self._n_similar

    def similar_rectangles(self, start: int, stop: int) -> list[tuple[slice, slice]]:
        """Return one rectangle per class that has rows in start..stop and any columns."""
        rectangles = []
        first = int(np.searchsorted(self._x.stops, start, side="right"))
        for code in range(first, len(self.classes)):
            if self._x.starts[code] >= stop:
                break
            rows = slice(
                int(max(self._x.starts[code], start)) - start, int(min(self._x.stops[code], stop)) - start
            )
            columns = slice(int(self._z.starts[code]), int(self._z.stops[code]))
            if rows.start < rows.stop and columns.start < columns.stop:
                rectangles.append((rows, columns))
        return rectangles


def _one_dimensional(labels: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    array = np.asarray(labels)
    if array.dtype.kind == "O" and array.ndim == 1:
        array = np.asarray([str(label) for label in array])
    if array.ndim != 1 or len(array) == 0:
        raise SupervisionError(f"{name} must be a non-empty list of one label per sample, got {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SupervisionError(f"{name} contains NaN or infinity")
    return array
