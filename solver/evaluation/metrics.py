"""How good a ranking is: average precision, precision-recall and precision-scope curves.

Ties are broken by gallery index, before scoring (see `ranking`).
`average_precisions` and the two curves take scores; `mean_average_precision` and its relatives compute them
from projections, block by block, and never hold more than one block of queries against the gallery.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.evaluation.ranking import BoolArray, ranked_hits, shared_classes
from solver.linalg.matrices import FloatArray
from solver.validation.errors import InvalidInputError, InvalidParameterError

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
    """Yield the queries in blocks whose scores of the whole gallery fit into a bounded memory."""
    size = max(1, _BLOCK_SCORES // max(n_gallery, 1))
    for start in range(0, n_queries, size):
        yield slice(start, start + size)


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
