"""The table of what users look for: the right class, similar items, and the one right item."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from solver import RankingQuality, RetrievalQuality
from solver.comparison import Comparison

CAPTION = (
    "Test split, both directions averaged, in % but for the rank; of the rows with and without PCA the one "
    "that did better in cross-validation. nDCG counts how many facets an item shares with the query, and "
    "whether it is its partner; R and the median rank are those of the partner; lists: different first pages "
    "of ten, and the number of queries."
)


def quality_table(comparison: Comparison, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of some rows of a comparison, best nDCG first.

    Parameters
    ----------
    comparison : Comparison
        What was compared.
    numbers : sequence of int
        Indices of rows.
    """
    means = {number: comparison.qualities[number].mean for number in numbers}
    ordered = sorted(numbers, key=lambda number: -_or_zero(means[number].ndcg))
    facets = list(means[ordered[0]].facet_precision)
    header = ["method", "PCA", "MAP", "nDCG@10", "R@1", "R@10", "rank"]
    header += [*(f"{name} P@10" for name in facets), "lists"]
    lines = [
        [
            comparison.rows[number].method,
            "99 %" if comparison.rows[number].pca else "none",
            *_cells(means[number]),
        ]
        for number in ordered
    ]
    return header, lines


def quality_values(quality: RetrievalQuality) -> dict[str, Any]:
    """Return both directions and their mean as JSON values; null where there was nothing to measure."""
    values: dict[str, Any] = _without_nan({**asdict(quality), "mean": asdict(quality.mean)})
    return values


def _cells(mean: RankingQuality) -> list[str]:
    return [
        _percent(mean.map),
        _percent(mean.ndcg),
        _percent(mean.recall_at_1),
        _percent(mean.recall_at_10),
        "-" if math.isnan(mean.median_rank) else f"{mean.median_rank:g}",
        *(_percent(value) for value in mean.facet_precision.values()),
        f"{mean.n_lists} of {mean.n_queries}",
    ]


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
