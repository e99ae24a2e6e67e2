"""The table of a comparison: one row for each outcome, with intervals and a test against the best other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.comparison.cells import CellOutcome
from solver.evaluation.metrics import projected_average_precisions
from solver.evaluation.significance import bootstrap_interval, sign_flip_p_value
from solver.linalg.matrices import FloatArray

MEASURES = ("image_query", "text_query", "average")
"""Fields of a row that hold MAP: each query direction, and the mean of both."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One line of the table.

    Parameters
    ----------
    dataset, method : str
        The set, and the class of the method.
    pca : bool
        Whether PCA (99 % of the energy) followed the scaling.
    image_query, text_query, average : float
        Test MAP as fractions: queries of the first modality, of the second, and the mean of both.
    intervals : dict
        95 % bootstrap interval over queries of each of the three.
    against : str or None
        The best other method of the same table: the runner-up for the winner, the winner for all others.
    p_value : float or None
        Paired permutation test of the averages against it, two-sided; not corrected for the number of rows.
    params : dict
        Chosen inside the training split.
    cv_score : float
        Cross-validated MAP of that choice; on the first fold alone where there was nothing to choose.
    n_candidates : int
        Candidates that were scored.
    n_features : list of int
        Features of both modalities as they reach the method.
    fit_seconds, tune_seconds : float
        On one core: the final fit, and the search before it, without what earlier methods had prepared.
    notes : list of str
        Warnings of the final fit.
    """

    dataset: str
    method: str
    pca: bool
    image_query: float
    text_query: float
    average: float
    intervals: dict[str, tuple[float, float]]
    against: str | None
    p_value: float | None
    params: dict[str, Any]
    cv_score: float
    n_candidates: int
    n_features: list[int]
    fit_seconds: float
    tune_seconds: float
    notes: list[str]


def comparison_rows(
    dataset: str,
    outcomes: Sequence[CellOutcome],
    labels: Any,
    *,
    n_resamples: int,
    n_permutations: int,
    random_state: int,
) -> list[ComparisonRow]:
    """Return the rows of some outcomes (projected test splits, of these classes), in their order."""
    values = [_query_values(outcome, labels) for outcome in outcomes]
    rows = []
    for number, outcome in enumerate(outcomes):
        rival = _best_rival(outcomes, values, number)
        p_value = None
        if rival is not None:
            pair = values[number]["average"], values[rival]["average"]
            p_value = sign_flip_p_value(*pair, n_permutations=n_permutations, random_state=random_state)
        intervals = {
            name: bootstrap_interval(of_queries, n_resamples=n_resamples, random_state=random_state)
            for name, of_queries in values[number].items()
        }
        against = None if rival is None else outcomes[rival].method
        rows.append(_row(dataset, outcome, values[number], intervals, against, p_value))
    return rows


def _query_values(outcome: CellOutcome, labels: Any) -> dict[str, FloatArray]:
    """Return the average precision of each query, for each of the `MEASURES`."""
    x, z = outcome.x_test, outcome.z_test
    x_to_z = projected_average_precisions(x, z, labels, labels)
    z_to_x = projected_average_precisions(z, x, labels, labels)
    # Both directions of a pair are drawn together: they are two queries about one thing.
    return dict(zip(MEASURES, (x_to_z, z_to_x, (x_to_z + z_to_x) / 2.0), strict=True))


def _best_rival(
    outcomes: Sequence[CellOutcome], values: Sequence[dict[str, FloatArray]], number: int
) -> int | None:
    rivals = [
        other
        for other, outcome in enumerate(outcomes)
        if other != number and outcome.pca == outcomes[number].pca
    ]
    return max(rivals, key=lambda other: float(np.nanmean(values[other]["average"])), default=None)


def _row(
    dataset: str,
    outcome: CellOutcome,
    values: dict[str, FloatArray],
    intervals: dict[str, tuple[float, float]],
    against: str | None,
    p_value: float | None,
) -> ComparisonRow:
    image_query, text_query = (float(np.nanmean(values[name])) for name in MEASURES[:2])
    return ComparisonRow(
        dataset=dataset,
        method=outcome.method,
        pca=outcome.pca,
        image_query=image_query,
        text_query=text_query,
        average=(image_query + text_query) / 2.0,
        intervals=intervals,
        against=against,
        p_value=p_value,
        params=outcome.params,
        cv_score=outcome.cv_score,
        n_candidates=outcome.n_candidates,
        n_features=list(outcome.n_features),
        fit_seconds=outcome.fit_seconds,
        tune_seconds=outcome.tune_seconds,
        notes=list(outcome.notes),
    )
