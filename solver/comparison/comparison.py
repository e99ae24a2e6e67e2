"""The whole comparison of one set: every method with and without PCA, and how significant differences are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.comparison.cells import CellOutcome, OutcomeStore, cells
from solver.comparison.methods import Method, chosen_methods
from solver.comparison.rows import ComparisonRow, comparison_rows
from solver.comparison.running import OnOutcome, run_cells
from solver.datasets import LABEL, PairedFeatures, annotate_rows
from solver.evaluation.metrics import chance_average_precision
from solver.evaluation.quality import RetrievalQuality, measure_quality
from solver.supervision.annotations import Annotations
from solver.validation.errors import InvalidInputError, InvalidParameterError
from solver.validation.parameters import COUNT, N_FOLDS, SEED, optional


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The compared methods of one set.

    Parameters
    ----------
    dataset : str
    data : PairedFeatures
    rows : list of ComparisonRow
        Without PCA first, in the order of the methods.
    outcomes : list of CellOutcome
        Outcome behind each row.
    qualities : list of RetrievalQuality
        Measures of each row by label, facets, grades and partners of the test split.
    chance : float
        MAP to expect of a random ranking.
    failures : list of str
        Methods that have no row, each with the reason.
    """

    dataset: str
    data: PairedFeatures
    rows: list[ComparisonRow]
    outcomes: list[CellOutcome]
    qualities: list[RetrievalQuality]
    chance: float
    failures: list[str]

    @property
    def test_labels(self) -> Any:
        """Classes of the test split."""
        return self.data.labels[~self.data.is_train]


def compare(
    data: PairedFeatures,
    *,
    annotations: Annotations | None = None,
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
    annotations : Annotations, optional
        What is known of the rows of both modalities, for measures beyond MAP; the facet "label" is the main
        one. When left out, rows of the same class are alike, and the two samples of a row are partners.
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
        If the set has no training or no test rows, the annotations are of other rows, or no method can be
        fitted on it.
    """
    chosen = chosen_methods(methods)
    _check(data, pca, n_folds, random_state, n_jobs)
    test_annotations = _test_annotations(data, annotations)
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
    label = LABEL if LABEL in test_annotations.facets else None
    qualities = [
        measure_quality(outcome.x_test, outcome.z_test, test_annotations, label=label) for outcome in outcomes
    ]
    chance = chance_average_precision(labels, labels)
    return Comparison(dataset, data, rows, outcomes, qualities, chance, failures)


def _test_annotations(data: PairedFeatures, annotations: Annotations | None) -> Annotations:
    if annotations is None:
        values = [(label,) for label in data.labels.tolist()]
        annotations = annotate_rows({LABEL: (values, values)})
    n_rows = len(data.labels)
    if annotations.shape != (n_rows, n_rows):
        raise InvalidInputError(f"annotations of {annotations.shape} samples do not fit {n_rows} rows")
    rows = np.flatnonzero(~data.is_train)
    return annotations.subset(rows, rows)


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
