"""The whole comparison of one set: every method with and without PCA, and how significant differences are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solver.comparison.cells import CellOutcome, OutcomeStore, cells
from solver.comparison.methods import Method, chosen_methods
from solver.comparison.rows import ComparisonRow, comparison_rows
from solver.comparison.running import OnOutcome, run_cells
from solver.datasets import PairedFeatures
from solver.evaluation.metrics import chance_average_precision
from solver.validation.errors import InvalidInputError, InvalidParameterError
from solver.validation.parameters import COUNT, N_FOLDS, SEED, optional


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The compared methods of one set.

    Parameters
    ----------
    dataset : str
        Name of the set.
    data : PairedFeatures
        The set itself.
    rows : list of ComparisonRow
        Without PCA first, in the order of the methods.
    outcomes : list of CellOutcome
        Outcome behind each row.
    chance : float
        MAP to expect of a random ranking.
    failures : list of str
        Methods that have no row, each with the reason.
    """

    dataset: str
    data: PairedFeatures
    rows: list[ComparisonRow]
    outcomes: list[CellOutcome]
    chance: float
    failures: list[str]

    @property
    def test_labels(self) -> Any:
        """Classes of the test split."""
        return self.data.labels[~self.data.is_train]


def compare(
    data: PairedFeatures,
    *,
    dataset: str = "data",
    methods: Sequence[str | Method] | None = None,
    pca: Sequence[bool] = (False, True),
    n_folds: int = 3,
    random_state: int = 0,
    n_jobs: int | None = None,
    n_resamples: int = 2000,
    n_permutations: int = 10_000,
    store: OutcomeStore | None = None,
    on_outcome: OnOutcome | None = None,
) -> Comparison:
    """Tune every method by the same rules inside the training split, then look at the test split once.

    Parameters
    ----------
    data : PairedFeatures
        Paired rows with one class each and a split.
    dataset : str
        Name of the set in the table.
    methods : sequence of str or Method, optional
        Names from `METHODS`, or methods of one's own; all of `METHODS` that are not optional when left out.
    pca : sequence of bool
        Whether PCA follows the scaling: rows without it, with it, or both.
    n_folds : int, >= 2
        Folds of the cross-validation.
    random_state : int, >= 0
        Seed of folds and resampling.
    n_jobs : int, optional
        Cells computed in parallel, each on one core; as many as there are cores when left out. Apart from
        the seconds, the table does not depend on it.
    n_resamples : int, >= 2
        Bootstrap samples of each interval.
    n_permutations : int, >= 1
        Permutations of each test.
    store : OutcomeStore, optional
        Stores the outcome of each cell; a cell that is in it already is not computed again.
    on_outcome : callable, optional
        Called after each cell; an exception it raises ends the comparison.

    Raises
    ------
    InvalidParameterError
        If an option is out of range; names it.
    InvalidInputError
        If the set has no training or no test rows, or no method can be fitted on it.
    """
    chosen = chosen_methods(methods)
    _check(data, pca, n_folds, random_state, n_jobs)
    work = cells(data, chosen, dict.fromkeys(pca), n_folds, random_state)
    results = run_cells(work, n_jobs or os.cpu_count() or 1, store, on_outcome)
    order = sorted(range(len(work)), key=lambda number: work[number].pca)
    outcomes = [outcome for number in order if isinstance(outcome := results[number], CellOutcome)]
    failures = [
        f"{work[number].method.name} {'with' if work[number].pca else 'without'} PCA: {reason}"
        for number in order
        if isinstance(reason := results[number], str)
    ]
    if not outcomes:
        raise InvalidInputError(f"no method can be fitted on {dataset}: {'; '.join(failures)}")
    labels = data.labels[~data.is_train]
    rows = comparison_rows(
        dataset,
        outcomes,
        labels,
        n_resamples=n_resamples,
        n_permutations=n_permutations,
        random_state=random_state,
    )
    return Comparison(dataset, data, rows, outcomes, chance_average_precision(labels, labels), failures)


def _check(
    data: PairedFeatures, pca: Sequence[bool], n_folds: int, random_state: int, n_jobs: int | None
) -> None:
    if not pca or not all(isinstance(value, bool) for value in pca):
        raise InvalidParameterError("pca", pca, "one or two of False and True")
    N_FOLDS.check("n_folds", n_folds)
    SEED.check("random_state", random_state)
    optional(COUNT).check("n_jobs", n_jobs)
    if data.is_train.all() or not data.is_train.any():
        raise InvalidInputError("the set must have training rows and test rows")
