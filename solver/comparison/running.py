"""Running the cells of a comparison: from the store where they are in it, else computed in processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from joblib import Parallel, delayed, parallel_config

from solver.comparison.cells import Cell, CellOutcome, CellRunner, OutcomeStore
from solver.validation.errors import SolverError

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


@functools.cache
def _process_runner() -> CellRunner:
    """Return the runner of a worker process: joblib deals cells out singly, and nothing else outlives one."""
    return CellRunner()


def _outcome_or_reason(runner: CellRunner, cell: Cell) -> CellOutcome | str:
    try:
        return runner.run(cell)
    except SolverError as error:  # the other methods may still be fitted
        return str(error)
