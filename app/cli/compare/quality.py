"""The table of what users look for: the right class, similar items, and the one right item."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from solver import RankingQuality, RetrievalQuality
from solver.comparison import Comparison
from solver.datasets import LABEL

_RANK = "rank"  # column of the partner's rank, the one that is no share
CAPTION = (
    "Test split, both directions averaged, in % but for the rank; of the rows with and without PCA the one "
    "that did better in cross-validation. nDCG counts how many facets an item shares with the query, and "
    "whether it is its partner; R and the median rank are those of the partner; P@10 stays below 100 "
    "where fewer than ten items are relevant; lists: different first pages of ten, and the number of queries."
)


def quality_table(comparison: Comparison, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of some rows of a comparison, best nDCG first. A measure that there is nothing
    to measure by has no column: MAP without labels, ranks without partners."""
    means = {number: comparison.qualities[number].mean for number in numbers}
    ordered = sorted(numbers, key=lambda number: -_or_zero(means[number].ndcg))
    columns = {
        name: [value(means[number]) for number in ordered]
        for name, value in _measures(means[ordered[0]]).items()
    }
    columns = {name: values for name, values in columns.items() if not all(map(math.isnan, values))}
    lines = [
        [
            comparison.rows[number].method,
            "99 %" if comparison.rows[number].pca else "none",
            *(_cell(name, values[place]) for name, values in columns.items()),
            f"{means[number].n_lists} of {means[number].n_queries}",
        ]
        for place, number in enumerate(ordered)
    ]
    return ["method", "PCA", *columns, "lists"], lines


def _measures(mean: RankingQuality) -> dict[str, Callable[[RankingQuality], float]]:
    measures: dict[str, Callable[[RankingQuality], float]] = {
        "nDCG@10": lambda quality: quality.ndcg,
        "R@1": lambda quality: quality.recall_at_1,
        "R@10": lambda quality: quality.recall_at_10,
        _RANK: lambda quality: quality.median_rank,
    }
    if LABEL in mean.facet_map:
        measures = {"MAP": lambda quality: quality.map, **measures}
    for facet in mean.facet_precision:
        measures[f"{facet} P@10"] = lambda quality, facet=facet: quality.facet_precision[facet]  # type: ignore[misc]
    return measures


def quality_values(quality: RetrievalQuality) -> dict[str, Any]:
    """Return both directions and their mean as JSON values; null where there was nothing to measure."""
    values: dict[str, Any] = _without_nan({**asdict(quality), "mean": asdict(quality.mean)})
    return values


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:g}" if name == _RANK else f"{100 * value:.1f}"


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
