"""How good a ranking is: relevance and order, average precision, gains, curves, and reliability."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg import FloatArray
from solver.threads import row_blocks
from solver.validation import COUNT, InvalidInputError, InvalidParameterError

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
    return (np.exp2(grades.astype(np.float64)) - 1.0) @ _discounts(grades.shape[1])


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


_BLOCK_SCORES = 2**20
"""Scores computed at once: 8 MiB in float64, so that memory does not grow with the number of queries."""
_RECALL_ROUNDING = 1e-9  # far above the rounding of ``level * n_relevant`` in float64, far below one item


@dataclass(frozen=True, slots=True)
class DirectionalMap:
    """MAP of both query directions.

    Parameters
    ----------
    x_to_z : float
        Queries of the first modality against a gallery of the second; NaN when none has a relevant item.
    z_to_x : float
        Queries of the second modality against a gallery of the first.
    """

    x_to_z: float
    z_to_x: float

    @property
    def mean(self) -> float:
        """Average of both directions."""
        return (self.x_to_z + self.z_to_x) / 2.0


def average_precision(relevant: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Return AveP of one query over the full ranking.

    Parameters
    ----------
    relevant : array-like of bool, shape (n_gallery,)
        Which gallery items answer the query.
    scores : array-like of shape (n_gallery,)
        Higher is better.

    Returns
    -------
    float
        ``(1/T) sum_r P(r) rel(r)`` with T relevant items, P(r) the precision of the first r
        (Kang et al., CIKM 2015, section 4); NaN when nothing is relevant.

    Raises
    ------
    InvalidInputError
        If the two differ in shape, relevance is not 0 or 1, or a score is NaN.
    """
    hits = ranked_hits(relevant, scores, n_axes=1)
    return float(average_precisions_of_hits(hits[None, :])[0])


def average_precisions(relevant: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return AveP of each query, of shape (n_queries,); NaN where a query has nothing relevant.
    InvalidInputError if the shapes differ, relevance is not 0 or 1, or a score is NaN."""
    return average_precisions_of_hits(ranked_hits(relevant, scores, n_axes=2))


def mean_average_precision(
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
) -> float:
    """Return MAP of one direction: every query against the whole gallery.

    Parameters
    ----------
    query_projections, gallery_projections : array-like of shapes (n_queries, rank) and (n_gallery, rank)
        Both sides projected; the similarity is the inner product.
    query_labels, gallery_labels : array-like of shape (n,) or (n, n_classes)
        Classes of both: one each, or 0/1 indicators of several. An item is relevant when it shares a class.

    Returns
    -------
    float
        Mean over the queries that have something relevant; NaN when none has.

    Raises
    ------
    InvalidInputError
        If projections or labels do not fit each other, or are not finite.
    """
    return _mean_of_defined(
        [projected_average_precisions(query_projections, gallery_projections, query_labels, gallery_labels)]
    )


def bidirectional_map(
    x_projections: npt.ArrayLike,
    z_projections: npt.ArrayLike,
    x_labels: npt.ArrayLike,
    z_labels: npt.ArrayLike,
) -> DirectionalMap:
    """Return MAP of both directions: each modality's samples as queries against all of the other's.

    Parameters
    ----------
    x_projections, z_projections : array-like of shape (n_samples, rank)
        Projected samples of both modalities; the similarity is the inner product.
    x_labels, z_labels : array-like of shape (n_samples,) or (n_samples, n_classes)
        Their classes: one each, or 0/1 indicators of several.

    Raises
    ------
    InvalidInputError
        If projections or labels do not fit each other, or are not finite.
    """
    return DirectionalMap(
        mean_average_precision(x_projections, z_projections, x_labels, z_labels),
        mean_average_precision(z_projections, x_projections, z_labels, x_labels),
    )


def projected_average_precisions(
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
) -> FloatArray:
    """Return AveP of each query of one direction; NaN where a query has nothing relevant.
    Arguments and errors are those of `mean_average_precision`."""
    blocks = score_blocks(query_projections, gallery_projections, query_labels, gallery_labels)
    return np.concatenate(
        [np.zeros(0), *(average_precisions(relevant, scores) for relevant, scores in blocks)]
    )


def score_blocks(
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
) -> Iterator[tuple[BoolArray, FloatArray]]:
    """Yield relevance and scores of a block of queries against the whole gallery, in order.

    Parameters
    ----------
    query_projections, gallery_projections, query_labels, gallery_labels : array-like
        As `mean_average_precision` takes them; checked when the first block is asked for.

    Yields
    ------
    relevant : ndarray of bool, shape (n_block, n_gallery)
        Which gallery items share a class with which query.
    scores : ndarray of shape (n_block, n_gallery)
        Inner products.
    """
    queries = as_projections(query_projections, "query_projections")
    gallery = as_projections(gallery_projections, "gallery_projections")
    if queries.shape[1] != gallery.shape[1]:
        raise InvalidInputError(
            f"query_projections {queries.shape} and gallery_projections {gallery.shape} differ in rank"
        )
    relevance, n_queries, n_gallery = shared_classes(query_labels, gallery_labels)
    if (n_queries, n_gallery) != (len(queries), len(gallery)):
        raise InvalidInputError(
            f"{n_queries} query_labels and {n_gallery} gallery_labels for {len(queries)} queries "
            f"and a gallery of {len(gallery)}"
        )
    for part in query_blocks(n_queries, n_gallery):
        yield relevance(part), queries[part] @ gallery.T


def precision_recall_curve(
    relevant: npt.ArrayLike, scores: npt.ArrayLike, recall_levels: npt.ArrayLike | None = None
) -> tuple[FloatArray, FloatArray]:
    """Return precision and recall of each query, at every rank or at given recall levels.

    Parameters
    ----------
    relevant : array-like of bool, shape (..., n_gallery)
        Which gallery items answer the query.
    scores : array-like of shape (..., n_gallery)
        Higher is better.
    recall_levels : array-like of shape (n_levels,), in [0, 1], optional
        Interpolate: the precision at a level is the highest one at that recall or beyond it.

    Returns
    -------
    precision, recall : ndarray of shape (..., n_gallery) or (..., n_levels)
        Of the first r items, r = 1..n_gallery, or at the levels. NaN where a query has nothing relevant.

    Raises
    ------
    InvalidInputError
        If the two differ in shape, the gallery is empty, relevance is not 0 or 1, or a score is NaN.
    InvalidParameterError
        If a level lies outside [0, 1].
    """
    hits = ranked_hits(relevant, scores)
    n_gallery = hits.shape[-1]
    if n_gallery == 0:
        raise InvalidInputError("the gallery is empty: there is no curve")
    n_found = np.cumsum(hits, axis=-1, dtype=np.intp)
    n_relevant = np.where(n_found[..., -1:] > 0, n_found[..., -1:], np.nan)
    recall = n_found / n_relevant
    precision = np.where(np.isnan(n_relevant), np.nan, n_found / np.arange(1, n_gallery + 1))
    if recall_levels is None:
        return precision, recall
    levels = np.asarray(recall_levels)
    if levels.ndim != 1 or levels.dtype.kind not in "fiu" or not ((levels >= 0) & (levels <= 1)).all():
        raise InvalidParameterError("recall_levels", recall_levels, "a list of numbers in [0, 1]")
    return _interpolate(precision, n_found, levels), np.where(np.isnan(n_relevant), np.nan, levels)


def precision_at_scope(relevant: npt.ArrayLike, scores: npt.ArrayLike, scopes: npt.ArrayLike) -> FloatArray:
    """Return the precision of the first k items of each query, for several k.

    Parameters
    ----------
    relevant : array-like of bool, shape (..., n_gallery)
        Which gallery items answer the query.
    scores : array-like of shape (..., n_gallery)
        Higher is better.
    scopes : array-like of int, shape (n_scopes,), each in 1..n_gallery
        Numbers of items looked at.

    Returns
    -------
    ndarray of shape (..., n_scopes)
        The precision-scope curve; 0 where a query has nothing relevant.

    Raises
    ------
    InvalidInputError
        If the two differ in shape, relevance is not 0 or 1, or a score is NaN.
    InvalidParameterError
        If a scope is not an integer in 1..n_gallery.
    """
    hits = ranked_hits(relevant, scores)
    ks = np.asarray(scopes)
    if ks.ndim != 1 or ks.dtype.kind not in "iu" or not ((ks >= 1) & (ks <= hits.shape[-1])).all():
        raise InvalidParameterError("scopes", scopes, f"a list of integers in 1..{hits.shape[-1]}")
    n_found = np.cumsum(hits, axis=-1, dtype=np.intp)
    precision: FloatArray = n_found[..., ks - 1] / ks
    return precision


def chance_average_precision(query_labels: npt.ArrayLike, gallery_labels: npt.ArrayLike) -> float:
    """Return the MAP to expect of a random ranking: the mean share of relevant items.

    Parameters
    ----------
    query_labels : array-like of shape (n_queries,) or (n_queries, n_classes)
        Classes of the queries: one each, or 0/1 indicators of several.
    gallery_labels : array-like of shape (n_gallery,) or (n_gallery, n_classes)
        Classes of the gallery, in the same form.

    Returns
    -------
    float
        A close lower bound (random AveP exceeds the share of relevant items by O(log n / n));
        queries that have nothing relevant are left out.

    Raises
    ------
    InvalidInputError
        If the labels do not fit each other.
    """
    relevance, n_queries, n_gallery = shared_classes(query_labels, gallery_labels)
    shares = [relevance(part).sum(axis=1) / max(n_gallery, 1) for part in query_blocks(n_queries, n_gallery)]
    return _mean_of_defined([np.where(share > 0, share, np.nan) for share in shares])


def _interpolate(precision: FloatArray, n_found: npt.NDArray[np.intp], levels: FloatArray) -> FloatArray:
    """Return the highest precision from the rank on at which a level of recall is reached."""
    best_from_here = np.maximum.accumulate(precision[..., ::-1], axis=-1)[..., ::-1]
    # 0.1 * 3 exceeds 0.3 by a rounding error, which must not ask for one item more.
    n_wanted = np.ceil(levels * n_found[..., -1:] - _RECALL_ROUNDING)
    first = np.empty(n_wanted.shape, dtype=np.intp)
    for query in np.ndindex(first.shape[:-1]):
        first[query] = np.searchsorted(n_found[query], n_wanted[query])
    return np.take_along_axis(best_from_here, first, axis=-1)


def average_precisions_of_hits(hits: BoolArray) -> FloatArray:
    """Return AveP of each query from the (n_queries, n_gallery) relevance in the order of its ranking."""
    n_queries = len(hits)
    queries, ranks = np.divmod(np.flatnonzero(hits), max(hits.shape[1], 1))
    n_relevant = np.bincount(queries, minlength=n_queries)
    n_before = np.repeat(np.cumsum(n_relevant) - n_relevant, n_relevant)
    precision = (np.arange(1, len(queries) + 1) - n_before) / (ranks + 1)
    total = np.bincount(queries, weights=precision, minlength=n_queries)
    return np.where(n_relevant > 0, total / np.maximum(n_relevant, 1), np.nan)


def _mean_of_defined(parts: list[FloatArray]) -> float:
    values = np.concatenate(parts) if parts else np.zeros(0)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else float("nan")


def query_blocks(n_queries: int, n_gallery: int) -> Iterator[slice]:
    """Return the queries in blocks whose scores of the whole gallery fit into a bounded memory."""
    return row_blocks(n_queries, max(1, _BLOCK_SCORES // max(n_gallery, 1)))


def as_projections(projections: npt.ArrayLike, name: str) -> FloatArray:
    """Return projections as a matrix of finite numbers; the name is for the error."""
    array = np.asarray(projections)
    if array.dtype.kind not in "fiub" or array.ndim != 2:
        raise InvalidInputError(f"{name} must be a numeric matrix, got {array.dtype} {array.shape}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")
    return array


_N_LEVELS = 21  # levels of recall: every twentieth, and zero
_N_SCOPES = 40  # points of a precision-scope curve: enough for a smooth line


@dataclass(frozen=True, slots=True, eq=False)
class RetrievalCurves:
    """Precision-recall and precision-scope curves of one direction: means over its queries.

    Parameters
    ----------
    recall : ndarray of shape (n_levels,)
    precision_at_recall : ndarray of shape (n_levels,)
        Interpolated precision at these levels.
    scopes : ndarray of int, shape (n_scopes,)
        Numbers of results looked at, ascending.
    precision_at_scope : ndarray of shape (n_scopes,)
        Precision of that many first results.
    """

    recall: FloatArray
    precision_at_recall: FloatArray
    scopes: npt.NDArray[np.intp]
    precision_at_scope: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """How often pairs match, by the probability that a model gave them.

    Parameters
    ----------
    probabilities : ndarray of shape (n_bins,)
        Mean probability of the pairs of each bin, ascending.
    shares : ndarray of shape (n_bins,)
        Share of them that match.
    counts : ndarray of int, shape (n_bins,)
        Number of them; bins without any are left out.
    """

    probabilities: FloatArray
    shares: FloatArray
    counts: npt.NDArray[np.intp]


def retrieval_curves(
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
) -> RetrievalCurves:
    """Return the mean curves of the queries that have something relevant.

    Parameters
    ----------
    query_projections, gallery_projections, query_labels, gallery_labels : array-like
        As `mean_average_precision` takes them.

    Raises
    ------
    InvalidInputError
        If projections or labels do not fit each other, or no query has anything relevant.

    Examples
    --------
    >>> curves = retrieval_curves([[1.0, 0.0]], [[2.0, 0.0], [1.0, 0.0]], ["a"], ["b", "a"])
    >>> curves.scopes.tolist(), curves.precision_at_scope.tolist()
    ([1, 2], [0.0, 0.5])
    """
    levels = np.linspace(0.0, 1.0, _N_LEVELS)
    n_gallery = len(np.asarray(gallery_projections))
    scopes = np.unique(np.linspace(1, n_gallery, min(_N_SCOPES, n_gallery)).astype(np.intp))
    at_recall, at_scope = [np.zeros((0, len(levels)))], [np.zeros((0, len(scopes)))]
    for relevant, scores in score_blocks(
        query_projections, gallery_projections, query_labels, gallery_labels
    ):
        has_any = relevant.any(axis=1)
        if has_any.any():
            at_recall.append(precision_recall_curve(relevant[has_any], scores[has_any], levels)[0])
            at_scope.append(precision_at_scope(relevant[has_any], scores[has_any], scopes))
    precision, scope_precision = np.concatenate(at_recall), np.concatenate(at_scope)
    if not len(precision):
        raise InvalidInputError("no query has anything relevant: there are no curves")
    return RetrievalCurves(levels, precision.mean(axis=0), scopes, scope_precision.mean(axis=0))


def measure_reliability(
    probabilities: npt.ArrayLike, matches: npt.ArrayLike, *, balanced: bool = False, n_bins: int = 10
) -> Reliability:
    """Return how often pairs match, in bins of equal width of the probability they were given.

    Parameters
    ----------
    probabilities : array-like, in [0, 1]
        Given to each pair.
    matches : array-like of bool, of the same shape
        Which of them match.
    balanced : bool
        Whether pairs are weighted so that matches are half of all, which probabilities of the loss "logistic"
        take for granted. The counts stay those of pairs.
    n_bins : int, >= 1
        Bins between 0 and 1.

    Raises
    ------
    InvalidInputError
        If the two differ in shape, or a probability is outside [0, 1].
    InvalidParameterError
        If `n_bins` is not positive.

    Examples
    --------
    >>> found = measure_reliability([0.1, 0.1, 0.9], [False, True, True], n_bins=2)
    >>> found.shares.tolist(), found.counts.tolist()
    ([0.5, 1.0], [2, 1])
    """
    return measure_reliability_of_blocks([(probabilities, matches)], balanced=balanced, n_bins=n_bins)


def measure_reliability_of_blocks(
    blocks: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], *, balanced: bool = False, n_bins: int = 10
) -> Reliability:
    """Return what `measure_reliability` does, of pairs that come in blocks, with one in memory at a time.

    Parameters
    ----------
    blocks : iterable of (probabilities, matches)
        Parts of what `measure_reliability` takes; all others are its own, and so are the errors.
    """
    COUNT.check("n_bins", n_bins)
    counts = np.zeros((2, n_bins), np.intp)  # of pairs that do not match, and of those that do
    sums = np.zeros((2, n_bins))
    for probabilities, matches in blocks:
        estimates = np.asarray(probabilities, np.float64).ravel()
        is_match = np.asarray(matches, np.bool).ravel()
        if estimates.shape != is_match.shape:
            raise InvalidInputError(
                f"{len(estimates)} probabilities and {len(is_match)} matches must be as many"
            )
        if not ((estimates >= 0.0) & (estimates <= 1.0)).all():
            raise InvalidInputError("probabilities must be in [0, 1]")
        bins = np.minimum((estimates * n_bins).astype(np.intp), n_bins - 1)
        for kind, of_kind in enumerate((~is_match, is_match)):
            counts[kind] += np.bincount(bins[of_kind], minlength=n_bins)
            sums[kind] += np.bincount(bins[of_kind], estimates[of_kind], n_bins)
    weights = np.ones(2)
    n_pairs = counts.sum(axis=1)
    if balanced and n_pairs.all():
        weights[1] = n_pairs[0] / n_pairs[1]
    is_used = counts.any(axis=0)
    of_pairs = (weights @ counts)[is_used]
    of_matches = (weights[1] * counts[1])[is_used]
    return Reliability(
        (weights @ sums)[is_used] / of_pairs, of_matches / of_pairs, counts.sum(axis=0)[is_used]
    )
