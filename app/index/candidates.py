"""Candidates for the best rows of several queries, from one product of matrices."""
# A product of matrices reads the rows once for all queries, but rounds otherwise than a comparison of one
# query with one row. Either differs from the true inner product by at most ``gamma ||q|| ||v||`` with ``gamma
# = d u / (1 - d u)`` for d dimensions and a unit roundoff u, in whatever order it is summed (Higham, Accuracy
# and Stability of Numerical Algorithms, 2002, sections 3.1 and 3.5). So a row among the k best by the one has
# at least the k-th best score by the other less four times that bound.

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.domain.entities import Matrix, Vector

BLOCK = 64
"""Rows whose best score is kept: few enough that the best blocks hold few other rows."""
_ROWS_AT_ONCE = 1 << 15
"""Rows of one product, a multiple of `BLOCK`: its scores for eight queries take a megabyte."""
_COLUMNS = 4
"""Products are of a multiple of these many columns, 0 where there are fewer queries: BLAS and the search for
maxima take longer for five to seven columns than for eight."""
_UNIT_ROUNDOFF = 2.0**-24
_Maxima = npt.NDArray[np.float32]


def best_of_blocks(vectors: Matrix, queries: Matrix, alive: npt.NDArray[np.bool] | None) -> _Maxima:
    """Return the best score of each block of `BLOCK` rows, of shape (n_blocks, n_queries); None: all rows
    count. A block of (n_rows, rank) without any row that counts has the score -inf."""
    n_rows, n_columns = len(vectors), -(-len(queries) // _COLUMNS) * _COLUMNS
    transposed = np.zeros((queries.shape[1], n_columns), np.float32)
    transposed[:, : len(queries)] = queries.T
    maxima = np.empty((-(-n_rows // BLOCK), n_columns), np.float32)
    dead = None if alive is None else np.flatnonzero(~alive)
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, n_rows)
        n_blocks = -(-(end - start) // BLOCK)
        scores = np.empty((n_blocks * BLOCK, n_columns), np.float32)
        np.matmul(vectors[start:end], transposed, out=scores[: end - start])
        scores[end - start :] = -np.inf
        if dead is not None:
            first, last = np.searchsorted(dead, (start, end))
            scores[dead[first:last] - start] = -np.inf
        maxima[start // BLOCK : start // BLOCK + n_blocks] = _halve(scores.reshape(n_blocks, -1), n_columns)
    return maxima[:, : len(queries)]


def candidate_rows(maxima: Vector, k: int, n_rows: int, error: float) -> npt.NDArray[np.intp]:
    """Return rows among which are the k best of one query and all that tie with the last of these.
    `maxima` are the best scores of at least k blocks, `error` bounds that of a score (`score_errors`)."""
    # The best of k blocks are k rows: the k-th best row is no worse than the k-th best block.
    least = float(np.partition(maxima, len(maxima) - k)[len(maxima) - k])
    threshold = np.nextafter(np.float32(least - 4.0 * error), np.float32(-np.inf))
    blocks = np.flatnonzero(maxima >= threshold)
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return rows[rows < n_rows]


def score_errors(largest_norm: float, queries: Matrix) -> Sequence[float]:
    """Return for each query a bound on how far a score in single precision is from the true one, by the rows'
    largest norm."""
    rank = queries.shape[1]
    gamma = rank * _UNIT_ROUNDOFF / (1.0 - rank * _UNIT_ROUNDOFF)
    smallest = rank * float(np.finfo(np.float32).tiny)  # results below it round by an absolute amount
    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    return [gamma * norm * largest_norm + smallest for norm in norms.tolist()]


def _halve(scores: _Maxima, n_columns: int) -> _Maxima:
    """Return the largest score of each query in each row of `BLOCK` rows' scores, by halves: long loops."""
    while scores.shape[1] > n_columns:
        half = scores.shape[1] // 2
        scores = np.maximum(scores[:, :half], scores[:, half:])
    return scores
