"""How good a ranking is: average precision over the full ranking, in the paper's definition.

Ties are broken by gallery index, before scoring: of two items with equal scores the one that comes
first in the gallery ranks first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.linalg import FloatArray

_BLOCK_QUERIES = 256


def rank_gallery(scores: npt.ArrayLike) -> npt.NDArray[np.intp]:
    """Return gallery indices by descending score, equal scores by index.

    Parameters
    ----------
    scores : array-like of shape (..., n_gallery)
        Higher is better.
    """
    scores = np.asarray(scores)
    if scores.dtype.kind in "ub":
        scores = scores.astype(np.float64)
    return np.argsort(-scores, axis=-1, kind="stable")


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
    """
    return float(average_precisions(np.asarray(relevant)[None, :], np.asarray(scores)[None, :])[0])


def average_precisions(relevant: npt.ArrayLike, scores: npt.ArrayLike) -> FloatArray:
    """Return AveP of each query.

    Parameters
    ----------
    relevant : array-like of bool, shape (n_queries, n_gallery)
        Which gallery items answer which query.
    scores : array-like of shape (n_queries, n_gallery)
        Higher is better.

    Returns
    -------
    ndarray of shape (n_queries,)
        NaN where a query has nothing relevant.
    """
    order = rank_gallery(scores)
    hits = np.take_along_axis(np.asarray(relevant, dtype=bool), order, axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    n_relevant = hits.sum(axis=1)
    total = (precision * hits).sum(axis=1)
    return np.where(n_relevant > 0, total / np.maximum(n_relevant, 1), np.nan)


def mean_average_precision(
    query_projections: npt.ArrayLike,
    gallery_projections: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
) -> float:
    """Return MAP of one direction: every query against the whole gallery, relevant = same label.

    Parameters
    ----------
    query_projections : array-like of shape (n_queries, rank)
        Projected queries.
    gallery_projections : array-like of shape (n_gallery, rank)
        Projected gallery; the similarity is the inner product.
    query_labels : array-like of shape (n_queries,)
        Classes of the queries.
    gallery_labels : array-like of shape (n_gallery,)
        Classes of the gallery.

    Returns
    -------
    float
        Mean over the queries that have something relevant; NaN when none has.
    """
    queries, gallery = np.asarray(query_projections), np.asarray(gallery_projections)
    labels, targets = np.asarray(query_labels), np.asarray(gallery_labels)
    values = [
        average_precisions(labels[part, None] == targets[None, :], queries[part] @ gallery.T)
        for part in (slice(start, start + _BLOCK_QUERIES) for start in range(0, len(queries), _BLOCK_QUERIES))
    ]
    scored = np.concatenate(values) if values else np.zeros(0)
    scored = scored[~np.isnan(scored)]
    return float(scored.mean()) if len(scored) else float("nan")


def chance_average_precision(query_labels: npt.ArrayLike, gallery_labels: npt.ArrayLike) -> float:
    """Return the MAP to expect of a random ranking: the mean share of relevant items.

    Parameters
    ----------
    query_labels : array-like of shape (n_queries,)
        Classes of the queries.
    gallery_labels : array-like of shape (n_gallery,)
        Classes of the gallery.

    Returns
    -------
    float
        A close lower bound (random AveP exceeds the share of relevant items by O(log n / n)).
    """
    targets, counts = np.unique(np.asarray(gallery_labels), return_counts=True)
    share = dict(zip(targets.tolist(), counts / counts.sum(), strict=True))
    shares = [share[label] for label in np.asarray(query_labels).tolist() if label in share]
    return float(np.mean(shares)) if shares else float("nan")
