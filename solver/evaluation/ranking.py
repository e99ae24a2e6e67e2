"""Which items are relevant to a query, in which order a gallery is ranked for it, and what that order gains.

Ties are broken by gallery index: of two items with equal scores the one that comes first in the gallery
ranks first. A gallery whose order carries its classes must therefore be shuffled before a method with
many equal scores is evaluated on it. `metrics` computes its figures from the rankings made here.

The gain of a grade is ``2^grade - 1`` [1]_, discounted by ``log2(rank + 1)`` [2]_.

References
----------
.. [1] C. Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.
.. [2] K. Järvelin, J. Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20(4), 2002.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray
from solver.validation.errors import InvalidInputError

BoolArray = npt.NDArray[np.bool]
_LARGEST_COORDINATE = 1e15
"""Bound on the entries of a projection: the inner product of any two is then finite in single precision."""


def can_be_ranked(projected: npt.NDArray[Any]) -> BoolArray:
    """Return which rows of (n, rank) projections have finite inner products with all others."""
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(projected) <= _LARGEST_COORDINATE).all(axis=1), dtype=np.bool)


def rank_gallery(scores: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return gallery indices by descending score, equal scores by index.

    Parameters
    ----------
    scores : array-like of shape (..., n_gallery)
        Higher is better.

    Raises
    ------
    InvalidInputError
        If the scores are not real numbers or contain NaN.
    """
    array = np.asarray(scores)
    if array.dtype.kind not in "fiub" or array.ndim == 0:
        raise InvalidInputError(f"scores must be an array of numbers, got {array.dtype} {array.shape}")
    if np.isnan(array).any():
        raise InvalidInputError("scores contain NaN: they cannot be ranked")
    rows = array.reshape(math.prod(array.shape[:-1]), array.shape[-1])
    order = _order_of_float32(rows) if array.dtype == np.float32 else _order(rows)
    return order.reshape(array.shape)


def ranked_hits(relevant: npt.ArrayLike, scores: npt.ArrayLike, n_axes: int | None = None) -> BoolArray:
    """Return relevance in the order of the ranking, over the last axis, higher scores first.
    InvalidInputError if the shapes differ, relevance is not 0 or 1, or a score is NaN."""
    array = _as_bool(relevant, "relevant")
    order = rank_gallery(scores)
    if array.shape != order.shape or (n_axes is not None and array.ndim != n_axes):
        expected = "equal shapes" if n_axes is None else f"equal {n_axes}-d shapes"
        raise InvalidInputError(
            f"relevant and scores must have {expected}, got {array.shape} and {order.shape}"
        )
    return np.take_along_axis(array, order, axis=-1)


def shared_classes(
    query_labels: npt.ArrayLike, gallery_labels: npt.ArrayLike
) -> tuple[Callable[[slice], BoolArray], int, int]:
    """Return which pairs share a class, by slice of queries, and the numbers of queries and gallery items.
    InvalidInputError unless both labels are one class each or 0/1 indicators, without NaN."""
    queries, gallery = _classes(query_labels, "query_labels"), _classes(gallery_labels, "gallery_labels")
    if queries.shape[1:] != gallery.shape[1:]:
        raise InvalidInputError(
            f"query_labels {queries.shape} and gallery_labels {gallery.shape} are not of one form"
        )
    if queries.ndim == 2:
        return (lambda part: queries[part] @ gallery.T > 0), len(queries), len(gallery)
    queries, gallery = _comparable(queries, gallery)
    return (lambda part: queries[part, None] == gallery[None, :]), len(queries), len(gallery)


def _order(rows: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Rank rows of scores; the fast sort is unstable, so rows with equal scores are sorted again."""
    order = _descending(rows, "quicksort")
    ranked = np.take_along_axis(rows, order, axis=1)
    is_tied = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    order[is_tied] = _descending(rows[is_tied], "stable")
    return order


def _descending(rows: npt.NDArray[Any], kind: Any) -> npt.NDArray[np.intp]:
    # Read backwards instead of negated: -(-128) does not exist in int8, and -False not at all.
    backwards = np.argsort(rows[:, ::-1], axis=1, kind=kind)[:, ::-1]
    order: npt.NDArray[np.intp] = rows.shape[1] - 1 - backwards
    return order


def _order_of_float32(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.intp]:
    """Rank rows of scores by sorting one integer each: the score's bits above, the index below."""
    bits = (rows + np.float32(0.0)).view(np.int32)  # -0.0 becomes 0.0, its equal
    ascending = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
    keys = np.bitwise_not(ascending).astype(np.int64)
    keys <<= 32
    keys |= np.arange(rows.shape[1])
    keys.sort(axis=1)
    keys &= 0xFFFFFFFF
    order: npt.NDArray[np.intp] = keys.astype(np.intp, copy=False)
    return order


def _classes(labels: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return one class per sample, or float32 indicators whose products count shared classes."""
    array = np.asarray(labels)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(np.str_)
    if array.dtype.kind not in "fiubUS" or array.ndim not in (1, 2):
        raise InvalidInputError(
            f"{name} must be numbers or strings, one per sample, or 0/1 indicators of shape "
            f"(n_samples, n_classes), got {array.dtype} {array.shape}"
        )
    if array.ndim == 2:
        return _as_bool(array, name).astype(np.float32)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise InvalidInputError(f"{name} contains NaN")
    return array


def _comparable(
    queries: npt.NDArray[Any], gallery: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Reject strings against numbers, which are never equal; encode strings as integers, for speed."""
    kinds = {array.dtype.kind if array.dtype.kind in "US" else "number" for array in (queries, gallery)}
    if len(kinds) > 1 and len(queries) and len(gallery):
        raise InvalidInputError(
            f"query_labels ({queries.dtype}) and gallery_labels ({gallery.dtype}) are not of one kind"
        )
    if queries.dtype.kind == gallery.dtype.kind and queries.dtype.kind in "US":
        codes = np.unique(np.concatenate([queries, gallery]), return_inverse=True)[1]
        return codes[: len(queries)], codes[len(queries) :]
    return queries, gallery


def _as_bool(values: npt.ArrayLike, name: str) -> BoolArray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" or not ((array == 0) | (array == 1)).all():
        raise InvalidInputError(f"{name} must hold only 0 and 1 (or booleans), got dtype {array.dtype}")
    return array.astype(np.bool, copy=False)


FIRST_PAGE = 10  # items that a person sees before turning the page


def discounted_gains(grades: npt.NDArray[Any]) -> FloatArray:
    """Return the gain of each query's ranking, from its (n_queries, n_shown) grades in order."""
    gains: FloatArray = (np.exp2(grades.astype(np.float64)) - 1.0) @ _discounts(grades.shape[1])
    return gains


def ideal_gains(grades: npt.NDArray[Any], n_shown: int, top_grade: int) -> FloatArray:
    """Return the gain of the best ranking of the whole gallery, for each query, by grades in any order.
    `n_shown` is at most the size of the gallery; no grade exceeds `top_grade`."""
    # 2^g - 1 is the sum of 2^(h - 1) over the grades h from 1 to g, so it takes no sorting.
    ideal, sums = np.zeros(len(grades)), np.concatenate([[0.0], np.cumsum(_discounts(n_shown))])
    for grade in range(1, top_grade + 1):
        n_better = np.count_nonzero(grades >= grade, axis=1)
        ideal += 2.0 ** (grade - 1) * sums[np.minimum(n_better, n_shown)]
    return ideal


def _discounts(n_shown: int) -> FloatArray:
    return 1.0 / np.log2(np.arange(2, n_shown + 2))
