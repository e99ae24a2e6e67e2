"""Curves of a ranking's quality, as means over queries, and how reliable probabilities of a match are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.evaluation.metrics import precision_at_scope, precision_recall_curve, score_blocks
from solver.linalg.matrices import FloatArray
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT

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
