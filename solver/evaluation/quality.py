"""How well projections answer queries for the same class, for similar items, and for the one right item.

MAP of a label alone does not see whether an item of the right class is also of the right colour, or the
partner of the query. So the facets, the pairs, and the graded relevance that counts both are measured side by
side, and an objective says which of them decides. As everywhere here, ties are broken by gallery index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.evaluation import metrics
from solver.linalg import FloatArray
from solver.supervision.annotations import Annotations, Facet
from solver.validation import NOT_NEGATIVE, InvalidInputError, InvalidParameterError, number_within, one_of

OBJECTIVES = ("ndcg", "map", "recall")
"""What a model can be chosen by: graded nDCG@10, MAP, and R@10 of the partner."""
AT_LEAST = "at_least"
FLOORS = ("ndcg", "map", "recall_1", "recall_10")
"""What an objective can have a least share of, by name under "at_least"."""
Objective = str | Mapping[str, float | Mapping[str, float]]
"""One of `OBJECTIVES`, or a weight for each of some of them; "at_least" among them holds floors."""
USUAL_OBJECTIVE: Mapping[str, float] = MappingProxyType({"ndcg": 2.0, "map": 1.0})
"""Where nothing else is asked for."""
# With equal weights of nDCG, MAP and R@10 more partners are recalled, and items as people find them, by
# partners and values, lose .03 of nDCG, on parts of 2030 products that no term had learned from. With more of
# nDCG, Wikipedia's articles lose MAP.
_Relevance = Callable[[slice], metrics.BoolArray]


@dataclass(frozen=True, slots=True)
class RankingQuality:
    """Measures of one query direction, as means over the queries that have something to find.

    A measure is NaN where no query has.

    Parameters
    ----------
    map : float
        MAP of the main label; where no facet is one, the mean of the facets' MAP.
    facet_map : mapping of str to float
        MAP by each facet.
    ndcg : float
        Graded nDCG@10; an item's grade counts the shared facets, and one for a pair.
    recall_at_1, recall_at_10 : float
        Share of the queries one of whose partners is the first, or among the first ten.
    median_rank : float
        Median over the queries of the rank of the best-ranked partner, from 1.
    facet_precision : mapping of str to float
        Share of the first ten items (or of all, if there are fewer) that share a value of the facet with
        the query. Queries whose value is unknown are left out.
    n_lists : int
        Number of different first pages, as items in order.
    n_queries : int
    """

    map: float
    facet_map: Mapping[str, float]
    ndcg: float
    recall_at_1: float
    recall_at_10: float
    median_rank: float
    facet_precision: Mapping[str, float]
    n_lists: int
    n_queries: int


@dataclass(frozen=True, slots=True)
class RetrievalQuality:
    """Measures of both query directions.

    Parameters
    ----------
    x_to_z : RankingQuality
        Queries of the first modality against a gallery of the second.
    z_to_x : RankingQuality
        Queries of the second modality against a gallery of the first.
    """

    x_to_z: RankingQuality
    z_to_x: RankingQuality

    @property
    def mean(self) -> RankingQuality:
        """Average of the directions in which there is something to measure; counts are added up."""
        first, second = self.x_to_z, self.z_to_x
        return RankingQuality(
            map=_mean((first.map, second.map)),
            facet_map=_mean_by_facet(first.facet_map, second.facet_map),
            ndcg=_mean((first.ndcg, second.ndcg)),
            recall_at_1=_mean((first.recall_at_1, second.recall_at_1)),
            recall_at_10=_mean((first.recall_at_10, second.recall_at_10)),
            median_rank=_mean((first.median_rank, second.median_rank)),
            facet_precision=_mean_by_facet(first.facet_precision, second.facet_precision),
            n_lists=first.n_lists + second.n_lists,
            n_queries=first.n_queries + second.n_queries,
        )


def measure_quality(
    x_projections: npt.ArrayLike,
    z_projections: npt.ArrayLike,
    annotations: Annotations,
    *,
    label: str | None = None,
) -> RetrievalQuality:
    """Measure the rankings of both directions: each modality's samples as queries against all of the other's.

    Parameters
    ----------
    x_projections : array-like of shape (n_samples_x, rank)
        Projected samples of the first modality.
    z_projections : array-like of shape (n_samples_z, rank)
        Projected samples of the second; the similarity is the inner product, computed in float32.
    annotations : Annotations
        What is known of these samples. Signs are not looked at.
    label : str, optional
        The facet that is the main label. Without one, MAP is the mean over all facets.

    Raises
    ------
    InvalidInputError
        If projections and annotations do not fit each other, or an entry is not finite.
    InvalidParameterError
        If `label` is not one of the facets.

    Notes
    -----
    Queries are ranked block by block, so that memory does not grow with their number.

    Examples
    --------
    >>> colour = Facet.of([["red"], ["blue"]], [["red"], ["blue"]])
    >>> annotations = Annotations((2, 2), {"colour": colour}, np.array([[0, 0], [1, 1]]))
    >>> quality = measure_quality([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.9, 0.1]], annotations)
    >>> quality.x_to_z.recall_at_1, quality.z_to_x.recall_at_1
    (1.0, 0.5)
    """
    if label is not None:
        one_of(*annotations.facets).check("label", label)
    x, z = (
        _single_precision(projections, name)
        for projections, name in ((x_projections, "x_projections"), (z_projections, "z_projections"))
    )
    if x.shape[1] != z.shape[1] or (len(x), len(z)) != annotations.shape:
        raise InvalidInputError(
            f"x_projections {x.shape}, z_projections {z.shape} and annotations of {annotations.shape} "
            "samples do not fit each other"
        )
    return RetrievalQuality(
        _summary(_rank_queries(x, z, annotations), label, len(x)),
        _summary(_rank_queries(z, x, annotations.transpose()), label, len(z)),
    )


def default_objective(annotations: Annotations) -> Objective:
    """Return "map" for one facet alone, "ndcg" for pairs alone, and `USUAL_OBJECTIVE` otherwise."""
    if annotations.top_grade <= 1 and not len(annotations.pairs):
        return "map"
    return dict(USUAL_OBJECTIVE) if annotations.facets else "ndcg"


def objective_value(quality: RetrievalQuality, objective: Objective) -> float:
    """Return what a model is chosen by, averaged over both directions.

    Parameters
    ----------
    quality : RetrievalQuality
        Measures of held-out samples.
    objective : str or mapping of str to float
        "ndcg", "map" or "recall" (R@10 of the partner), or weights of some of these: their weighted mean.
        Floors of "at_least" do not count: they bound the weights of a `CompositeBilinear`.

    Returns
    -------
    float
        In [0, 1]. Measures without anything to measure are left out of a weighted mean; NaN if none is left.

    Raises
    ------
    InvalidParameterError
        If the objective is none of these.
    """
    mean = quality.mean
    values = {"ndcg": mean.ndcg, "map": mean.map, "recall": mean.recall_at_10}
    weights = {
        name: weight
        for name, weight in check_objective(objective).items()
        if weight > 0.0 and not math.isnan(values[name])
    }
    total = sum(weights.values())
    return sum(weight / total * values[name] for name, weight in weights.items()) if weights else math.nan


def check_objective(objective: Objective) -> dict[str, float]:
    """Return the weights of an objective.

    Raises
    ------
    InvalidParameterError
        If it is not one of `OBJECTIVES`, nor weights of some of them of which one is positive, or its floors
        are no shares of `FLOORS`.
    """
    weights: dict[str, Any] = {objective: 1.0} if isinstance(objective, str) else dict(objective)
    floors = weights.pop(AT_LEAST, {})
    if not isinstance(floors, Mapping):
        raise InvalidParameterError("objective['at_least']", floors, "a share for each of some measures")
    for name, share in floors.items():
        one_of(*FLOORS).check("objective['at_least']", name)
        number_within(0.0, 1.0, closed="right").check(f"objective['at_least'][{name!r}]", share)
    for name, weight in weights.items():
        one_of(*OBJECTIVES).check("objective", name)
        NOT_NEGATIVE.check(f"objective[{name!r}]", weight)
    if not any(weight > 0.0 for weight in weights.values()):
        raise InvalidParameterError("objective", objective, "one or more measures with a positive weight")
    return weights


def floors_of(objective: Objective) -> dict[str, float]:
    """Return the least shares that an objective has under "at_least", by measure."""
    floors: Any = {} if isinstance(objective, str) else objective.get(AT_LEAST, {})
    return dict(floors)


@dataclass(slots=True)
class _Tally:
    """Values of single queries, block by block; NaN where a query has nothing to find."""

    average_precisions: dict[str, list[FloatArray]]
    precisions: dict[str, list[FloatArray]]
    gains: list[FloatArray] = field(default_factory=list)
    partner_ranks: list[FloatArray] = field(default_factory=list)
    pages: list[npt.NDArray[np.intp]] = field(default_factory=list)


def query_values(
    queries: npt.ArrayLike, gallery: npt.ArrayLike, annotations: Annotations, label: str | None
) -> dict[str, list[FloatArray]]:
    """Return the values of single queries that each measure of `OBJECTIVES` is the mean of the means of.
    Parameters and errors are those of `measure_quality`. A query with nothing to find is NaN."""
    x, z = _single_precision(queries, "queries"), _single_precision(gallery, "gallery")
    tally = _rank_queries(x, z, annotations)
    ranks = np.concatenate(tally.partner_ranks or [np.full(len(x), np.nan)])
    names = [label] if label is not None else list(annotations.facets)
    return {
        "map": [
            np.concatenate(tally.average_precisions[name] or [np.full(len(x), np.nan)]) for name in names
        ],
        "ndcg": [np.concatenate(tally.gains or [np.full(len(x), np.nan)])],
        "recall": [np.where(np.isnan(ranks), np.nan, ranks <= metrics.FIRST_PAGE)],
    }


def _rank_queries(queries: FloatArray, gallery: FloatArray, annotations: Annotations) -> _Tally:
    facets = annotations.facets
    tally = _Tally({name: [] for name in facets}, {name: [] for name in facets})
    relevance = {name: _facet_relevance(facet) for name, facet in facets.items()}
    unknown = {name: facet.x_indicators.sum(axis=1) == 0 for name, facet in facets.items()}
    is_paired = _pair_relevance(annotations)
    for part in metrics.query_blocks(len(queries), len(gallery)) if len(gallery) else ():
        order = metrics.rank_gallery(queries[part] @ gallery.T)
        places = order + np.arange(len(order))[:, None] * len(gallery)  # in the flattened block
        grades = np.zeros(order.shape, np.int16)
        for name in facets:
            relevant = relevance[name](part)
            grades += relevant
            hits = relevant.ravel()[places]
            tally.average_precisions[name].append(metrics.average_precisions_of_hits(hits))
            shares = hits[:, : metrics.FIRST_PAGE].mean(axis=1)
            tally.precisions[name].append(np.where(unknown[name][part], np.nan, shares))
        if len(annotations.pairs):
            paired = is_paired(part)
            grades += paired
            hits = paired.ravel()[places]  # of which the first counts, from 1; NaN without any
            tally.partner_ranks.append(np.where(hits.any(axis=1), hits.argmax(axis=1) + 1.0, np.nan))
        tally.gains.append(_normalised_gains(grades, places, annotations.top_grade))
        tally.pages.append(order[:, : metrics.FIRST_PAGE])
    return tally


def _summary(tally: _Tally, label: str | None, n_queries: int) -> RankingQuality:
    facet_map = {name: _mean_of(parts) for name, parts in tally.average_precisions.items()}
    ranks = np.concatenate(tally.partner_ranks or [np.zeros(0)])
    ranks = ranks[~np.isnan(ranks)]
    return RankingQuality(
        map=facet_map[label] if label is not None else _mean(facet_map.values()),
        facet_map=facet_map,
        ndcg=_mean_of(tally.gains),
        recall_at_1=_mean((ranks <= 1).tolist()),
        recall_at_10=_mean((ranks <= metrics.FIRST_PAGE).tolist()),
        median_rank=float(np.median(ranks)) if len(ranks) else math.nan,
        facet_precision={name: _mean_of(parts) for name, parts in tally.precisions.items()},
        n_lists=len(np.unique(np.concatenate(tally.pages), axis=0)) if tally.pages else 0,
        n_queries=n_queries,
    )


def _facet_relevance(facet: Facet) -> _Relevance:
    sides = facet.sides
    if not facet.is_exclusive or not facet.values:
        return metrics.shared_classes(*sides)[0]
    # An unknown value equals no other: its code differs from one side to the other.
    codes = [
        np.where(side.any(axis=1), side.argmax(axis=1), -1 - number) for number, side in enumerate(sides)
    ]
    return metrics.shared_classes(*codes)[0]


def _pair_relevance(annotations: Annotations) -> _Relevance:
    n_gallery = annotations.shape[1]
    pairs = annotations.pairs[np.argsort(annotations.pairs[:, 0], kind="stable")]

    def relevance(part: slice) -> metrics.BoolArray:
        start, stop, _ = part.indices(annotations.shape[0])
        first, last = np.searchsorted(pairs[:, 0], (start, stop))
        paired = np.zeros((stop - start, n_gallery), np.bool)
        paired[pairs[first:last, 0] - start, pairs[first:last, 1]] = True
        return paired

    return relevance


def _normalised_gains(
    grades: npt.NDArray[np.int16], places: npt.NDArray[np.intp], top_grade: int
) -> FloatArray:
    """Return nDCG of each query's first page; the ideal is the best ranking of the whole gallery."""
    n_shown = min(metrics.FIRST_PAGE, grades.shape[1])
    gain = metrics.discounted_gains(grades.ravel()[places[:, :n_shown]])
    ideal = metrics.ideal_gains(grades, n_shown, top_grade)
    return np.where(ideal > 0.0, gain / np.where(ideal > 0.0, ideal, 1.0), np.nan)


def _single_precision(projections: npt.ArrayLike, name: str) -> FloatArray:
    """Return projections in float32, by a power of two of the size at which products do not overflow."""
    array = metrics.as_projections(projections, name)
    exponent = math.frexp(float(np.abs(array).max(initial=0.0)))[1]
    return np.ascontiguousarray(np.ldexp(array, -exponent), np.float32)


def _mean_of(parts: list[FloatArray]) -> float:
    return _mean(np.concatenate(parts).tolist()) if parts else math.nan


def _mean(values: Iterable[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def _mean_by_facet(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {facet: _mean((value, second[facet])) for facet, value in first.items()}
