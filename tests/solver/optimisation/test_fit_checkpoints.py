import itertools
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import (
    FitCheckpoints,
    IterationProgress,
    Labels,
    LowRankBilinear,
    make_low_rank_pairs,
)

ROOT = Path(__file__).parents[3]
PARAMETERS = {"alpha_fraction": 1 / 30, "tol": 1e-6}


def _arguments() -> tuple[Any, Any, Labels]:
    data = make_low_rank_pairs(
        60, 50, n_features_x=12, n_features_z=11, n_classes=4, noise=1.5, random_state=0
    )
    return data.X, data.Z, Labels(data.x_labels, data.z_labels)


def _fit(
    arguments: tuple[Any, Any, Labels],
    parameters: dict[str, Any],
    callback: Callable[[IterationProgress], None] | None = None,
) -> LowRankBilinear:
    return LowRankBilinear(**parameters).fit(*arguments, callback=callback)


def _fit_and_die(folder: Path, parameters: dict[str, Any], iteration: int) -> None:
    """Fit in a process that is killed in the middle of an iteration."""
    script = f"""
import os, signal
from solver import FitCheckpoints
from tests.solver.optimisation.test_fit_checkpoints import _arguments, _fit

def die(progress):
    if progress.iteration == {iteration}:
        os.kill(os.getpid(), signal.SIGKILL)

with FitCheckpoints({str(folder)!r}, every_seconds=0):
    _fit(_arguments(), {parameters}, die)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, timeout=60)
    assert died.returncode == -signal.SIGKILL


def _assert_same(found: LowRankBilinear, expected: LowRankBilinear) -> None:
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_", "singular_values_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    for name in ("objective_", "duality_gap_", "alpha_", "n_iter_", "converged_", "stop_reason_"):
        assert getattr(found, name) == getattr(expected, name)
    steps, expected_steps = (
        [replace(step, seconds=0.0) for step in model.history_] for model in (found, expected)
    )
    assert steps == expected_steps
    assert found.rank_ > 1


@pytest.mark.filterwarnings("ignore::solver.validation.ConvergenceWarning")
def test_a_fit_whose_process_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    parameters = {**PARAMETERS, "max_iter": 7}  # which the iterations of both processes count for
    expected = _fit(_arguments(), parameters)
    assert expected.n_iter_ == 7
    _fit_and_die(tmp_path, parameters, 5)
    seen: list[IterationProgress] = []
    with FitCheckpoints(tmp_path, every_seconds=0) as checkpoints:
        found = _fit(_arguments(), {**parameters, "n_threads": 1}, seen.append)
    _assert_same(found, expected)
    assert seen[0].iteration == 4
    assert all(before.seconds < after.seconds for before, after in itertools.pairwise(found.history_))
    assert len(list(tmp_path.iterdir())) == 1
    checkpoints.discard()
    assert list(tmp_path.iterdir()) == []


class StopError(Exception):
    pass


def _interrupt(
    folder: Path,
    arguments: tuple[Any, Any, Labels],
    parameters: dict[str, Any] = PARAMETERS,
    iteration: int = 5,
) -> None:
    def stop(progress: IterationProgress) -> None:
        if progress.iteration == iteration:
            raise StopError

    with FitCheckpoints(folder, every_seconds=0), pytest.raises(StopError):
        _fit(arguments, parameters, stop)


@pytest.mark.usefixtures("small_blocks")
def test_a_fit_that_began_on_a_subsample_ends_with_the_same_history(tmp_path: Path) -> None:
    data = make_low_rank_pairs(920, 920, n_features_x=6, n_features_z=5, noise=1.0, random_state=0)
    arguments = data.X, data.Z, Labels(data.x_labels, data.z_labels)
    parameters = {"alpha_fraction": 1 / 20, "tol": 1e-3}
    expected = _fit(arguments, parameters)
    assert expected.history_[0].share < expected.history_[-1].share == 1
    _interrupt(tmp_path, arguments, parameters, expected.n_iter_)
    seen: list[IterationProgress] = []
    with FitCheckpoints(tmp_path, every_seconds=0):
        _assert_same(_fit(arguments, parameters, seen.append), expected)
    assert len(seen) < expected.n_iter_


def test_a_checkpoint_belongs_to_one_fit(tmp_path: Path) -> None:
    X, Z, labels = _arguments()
    _interrupt(tmp_path, (X, Z, labels))
    nudged = X.copy()
    nudged[3, 4] = np.nextafter(nudged[3, 4], np.inf)
    codes = np.arange(60) % 4
    others: list[tuple[tuple[Any, Any, Labels], dict[str, Any]]] = [
        ((nudged, Z, labels), PARAMETERS),
        ((X, np.asfortranarray(Z[:, ::-1]), labels), PARAMETERS),
        ((X, Z, Labels(codes, codes[:50])), PARAMETERS),
        ((X, Z, labels), {**PARAMETERS, "tol": 1e-5}),
        ((X, Z, labels), {**PARAMETERS, "fit_intercept": False}),
    ]
    for arguments, parameters in others:
        seen: list[IterationProgress] = []
        with FitCheckpoints(tmp_path, every_seconds=0):
            found = _fit(arguments, parameters, seen.append)
        assert seen[0].iteration == 1
        _assert_same(found, _fit(arguments, parameters))
    assert len(list(tmp_path.iterdir())) == 1 + len(others)


def test_fits_that_take_less_than_the_pause_write_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    with FitCheckpoints(folder):
        _fit(_arguments(), PARAMETERS)
    assert not folder.exists()


def test_a_damaged_checkpoint_costs_the_iterations_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = _arguments()
    _interrupt(tmp_path, arguments)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    seen: list[IterationProgress] = []
    with FitCheckpoints(tmp_path, every_seconds=0):
        found = _fit(arguments, PARAMETERS, seen.append)
    assert seen[0].iteration == 1
    assert "starts from the beginning, since its checkpoint is damaged" in caplog.text
    _assert_same(found, _fit(arguments, PARAMETERS))


@contextmanager
def _files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Have every write beyond a size fail as it would on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_fit_goes_on_where_no_checkpoint_can_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = _arguments()
    _interrupt(tmp_path, arguments)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    with caplog.at_level(logging.WARNING), FitCheckpoints(tmp_path, every_seconds=0), _files_of_at_most(64):
        found = _fit(arguments, PARAMETERS)
    assert "a checkpoint could not be written, the fit goes on without it" in caplog.text
    _assert_same(found, _fit(arguments, PARAMETERS))
    # The last one that could be written is still there, and nothing else.
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_warm_starts_write_none(tmp_path: Path) -> None:
    arguments = _arguments()
    model = LowRankBilinear(**PARAMETERS, warm_start=True)
    with FitCheckpoints(tmp_path, every_seconds=0):
        model.fit(*arguments)
        model.fit(*arguments)
    assert list(tmp_path.iterdir()) == []
