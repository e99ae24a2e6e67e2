"""Supervision by a list of signed pairs."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse, to_dense
from solver.supervision.base import Indices, Supervision
from solver.validation.errors import SupervisionError


class SignedPairs:
    """Pairs known to be similar (+1) or dissimilar (-1); absent ones are unknown and not counted.

    Parameters
    ----------
    signs : sparse array of shape (n_samples_x, n_samples_z)
        +1 and -1 at the known pairs.
    weights : sparse array of shape (n_samples_x, n_samples_z), optional
        Positive weight of each known pair, stored at the same places; they are scaled so that the
        similar and the dissimilar pairs weigh 1 in all. Equal weights when left out, which are the
        paper's 1/|S| and 1/|D|.

    Attributes
    ----------
    rows, columns : ndarray of int
        Where each pair is; `signs` and `weights` are parallel to them.
    x_order, z_order : ndarray of int
        The samples as they are.
    n_similar, n_dissimilar : int
        Numbers of pairs marked +1, and marked -1.

    Raises
    ------
    SupervisionError
        If `signs` holds anything else, `weights` does not fit it, or no similar or no dissimilar pair
        is left.

    Examples
    --------
    >>> import scipy.sparse
    >>> supervision = SignedPairs(scipy.sparse.coo_array(([1, -1], ([0, 1], [2, 0])), shape=(2, 3)))
    >>> supervision.n_similar, supervision.n_dissimilar
    (1, 1)
    """

    def __init__(self, signs: Any, weights: Any | None = None) -> None:
        table = _csr(signs, "signs")
        if not np.isin(table.data, (-1, 1)).all():
            raise SupervisionError("signs must hold +1 and -1 only, where a pair is known")
        self.shape: tuple[int, int] = table.shape
        self.indptr: Indices = table.indptr.astype(np.intp)
        self.columns: Indices = table.indices.astype(np.intp)
        self.signs: npt.NDArray[np.float64] = table.data.astype(np.float64)
        self.rows: Indices = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        self.x_order, self.z_order = (np.arange(size) for size in self.shape)
        self.n_similar = int(np.count_nonzero(self.signs > 0))
        self.n_dissimilar = len(self.signs) - self.n_similar
        if self.n_similar == 0 or self.n_dissimilar == 0:
            kind = "similar (+1)" if self.n_similar == 0 else "dissimilar (-1)"
            raise SupervisionError(f"no {kind} pair in signs")
        self.weights = self._balance(None if weights is None else _csr(weights, "weights"))

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs marked +1, in float64."""
        similar = scipy.sparse.csr_array(
            ((self.signs > 0).astype(np.float64), self.columns, self.indptr), shape=self.shape
        )
        total: Any = X.T @ (similar @ Z)
        return to_dense(total)

    def subset(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the pairs among some samples of each modality."""
        table = scipy.sparse.csr_array((self.signs, self.columns, self.indptr), shape=self.shape)
        weights = scipy.sparse.csr_array((self.weights, self.columns, self.indptr), shape=self.shape)
        return type(self)(table[x_rows][:, z_rows], weights[x_rows][:, z_rows])

    def _balance(self, table: Any | None) -> npt.NDArray[np.float64]:
        weights = np.ones(len(self.signs))
        if table is not None:
            if table.shape != self.shape or not (
                np.array_equal(table.indptr, self.indptr) and np.array_equal(table.indices, self.columns)
            ):
                raise SupervisionError("weights must be stored at the same pairs as signs")
            weights = table.data.astype(np.float64)
            if not (np.isfinite(weights).all() and (weights > 0).all()):
                raise SupervisionError("weights must be finite and > 0")
        for sign in (1.0, -1.0):
            has_sign = self.signs == sign
            weights[has_sign] /= weights[has_sign].sum()
        return weights


def _csr(table: Any, name: str) -> Any:
    if not is_sparse(table):
        raise SupervisionError(f"{name} must be a scipy sparse array of shape (n_samples_x, n_samples_z)")
    if table.ndim != 2 or 0 in table.shape:
        raise SupervisionError(f"{name} must be non-empty and two-dimensional, got shape {table.shape}")
    converted = scipy.sparse.csr_array(table, copy=True)
    converted.sum_duplicates()
    converted.sort_indices()
    return converted


AnySupervision = Supervision | SignedPairs  # all pairs of samples, or a list of them
