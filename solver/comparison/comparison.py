"""The whole comparison of one set: every method with and without PCA, and how significant differences are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed, parallel_config

from solver.comparison.cells import Cell, CellOutcome, CellRunner, OutcomeStore, cells
from solver.comparison.methods import Method, chosen_methods
from solver.datasets import LABEL, PairedFeatures, annotate_rows
from solver.evaluation.metrics import chance_average_precision, projected_average_precisions
from solver.evaluation.quality import RetrievalQuality, measure_quality
from solver.evaluation.significance import bootstrap_interval, sign_flip_p_value
from solver.linalg import FloatArray
from solver.supervision.annotations import Annotations
from solver.validation import (
    COUNT,
    N_FOLDS,
    SEED,
    InvalidInputError,
    InvalidParameterError,
    SolverError,
    optional,
)

OnOutcome = Callable[[int, int, CellOutcome, bool], None]
"""Takes the number of cells done, the number of all cells, the outcome, and whether it was in the store."""


def run_cells(
    work: Sequence[Cell], n_jobs: int, store: OutcomeStore | None, on_outcome: OnOutcome | None
) -> list[CellOutcome | str]:
    """Return the outcome of each cell, from the store or computed and then stored; or why there is none.
    Each takes one core; an exception that `on_outcome`, called after each, raises ends the run."""
    results: dict[int, CellOutcome | str] = {}

    def add(number: int, outcome: CellOutcome, was_stored: bool) -> None:
        results[number] = outcome
        if on_outcome is not None:
            on_outcome(len(results), len(work), outcome, was_stored)

    for number, cell in enumerate(work):
        stored = None if store is None else store.load(cell.key)
        if stored is not None:
            add(number, stored, True)
    missing = [number for number in range(len(work)) if number not in results]
    for number, outcome in _compute(work, missing, n_jobs):
        if isinstance(outcome, str):
            results[number] = outcome
            continue
        if store is not None:
            store.save(work[number].key, outcome)
        add(number, outcome, False)
    return [results[number] for number in range(len(work))]


def _compute(
    work: Sequence[Cell], numbers: Sequence[int], n_jobs: int
) -> Iterator[tuple[int, CellOutcome | str]]:
    """Yield outcomes as they are finished, from processes with one BLAS thread each."""
    n_jobs = min(n_jobs, len(numbers))
    if n_jobs <= 1:
        runner = CellRunner()
        for number in numbers:
            yield number, _outcome_or_reason(runner, work[number])
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch=n_jobs, return_as="generator_unordered")
        yield from pool(delayed(_run_in_process)(number, work[number]) for number in numbers)


def _run_in_process(number: int, cell: Cell) -> tuple[int, CellOutcome | str]:
    return number, _outcome_or_reason(_process_runner(), cell)


_process_runner = functools.cache(CellRunner)
"""Returns the runner of a worker process: joblib deals cells out singly, and nothing else outlives one."""


def _outcome_or_reason(runner: CellRunner, cell: Cell) -> CellOutcome | str:
    try:
        return runner.run(cell)
    except SolverError as error:  # the other methods may still be fitted
        return str(error)


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
    for number, (outcome, own) in enumerate(zip(outcomes, values, strict=True)):
        rival = _best_rival(outcomes, values, number)
        p_value = None
        if rival is not None:
            pair = own["average"], values[rival]["average"]
            p_value = sign_flip_p_value(*pair, n_permutations=n_permutations, random_state=random_state)
        image_query, text_query = (float(np.nanmean(own[name])) for name in MEASURES[:2])
        row = ComparisonRow(
            dataset=dataset,
            method=outcome.method,
            pca=outcome.pca,
            image_query=image_query,
            text_query=text_query,
            average=(image_query + text_query) / 2.0,
            intervals={
                name: bootstrap_interval(of_queries, n_resamples=n_resamples, random_state=random_state)
                for name, of_queries in own.items()
            },
            against=None if rival is None else outcomes[rival].method,
            p_value=p_value,
            params=outcome.params,
            cv_score=outcome.cv_score,
            n_candidates=outcome.n_candidates,
            n_features=list(outcome.n_features),
            fit_seconds=outcome.fit_seconds,
            tune_seconds=outcome.tune_seconds,
            notes=list(outcome.notes),
        )
        rows.append(row)
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
        Cells computed in parallel, each on one core; as many as the process may use when left out. Apart
        from the seconds, the table does not depend on it.
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
    results = run_cells(work, n_jobs or cpu_count(), store, on_outcome)
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
