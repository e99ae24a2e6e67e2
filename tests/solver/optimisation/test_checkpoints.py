import itertools
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save, save_file

from solver import (
    Checkpoint,
    FitCheckpoints,
    IterationProgress,
    Labels,
    LowRankBilinear,
    alpha_max,
    make_low_rank_pairs,
)
from solver.datasets import SyntheticPairs
from solver.linalg import LowRankMatrix
from solver.optimisation.convergence import Memory
from solver.validation import ArtifactError, InvalidInputError


def _fit_arguments(noise: float = 1.5, seed: int = 0) -> tuple[Any, Any, Labels]:
    data = make_low_rank_pairs(
        60, 50, n_features_x=12, n_features_z=11, n_classes=4, noise=noise, random_state=seed
    )
    return data.X, data.Z, Labels(data.x_labels, data.z_labels)


def _large_arguments() -> tuple[Any, Any, Labels]:
    """Return samples that are begun on a subsample where blocks are small."""
    data = make_low_rank_pairs(920, 920, n_features_x=6, n_features_z=5, noise=1.0, random_state=0)
    return data.X, data.Z, Labels(data.x_labels, data.z_labels)


def _estimator(arguments: tuple[Any, Any, Labels], fraction: float, **parameters: Any) -> LowRankBilinear:
    return LowRankBilinear(fraction * alpha_max(*arguments), **parameters)


def _assert_same_bits(found: LowRankBilinear, expected: LowRankBilinear) -> None:
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_", "singular_values_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.objective_ == expected.objective_
    assert found.duality_gap_ == expected.duality_gap_


def _checkpoint(rank: int = 2, dtype: type = np.float32) -> Checkpoint:
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((4, rank)), rng.random(rank), rng.standard_normal((3, rank))
    M = LowRankMatrix(*(array.astype(dtype) for array in arrays))
    return Checkpoint(M, 0.7, 3, 0.1, 1 / 3, np.inf, True, Memory(0.05, 0.5, 1e-3, 2, 0.25))


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saved_checkpoint_is_read_back_bit_by_bit(rank: int, dtype: type, tmp_path: Path) -> None:
    saved = _checkpoint(rank, dtype)
    saved.save(tmp_path / "state")
    found = Checkpoint.load(tmp_path / "state")
    for field in fields(Checkpoint):
        if field.name != "M":
            assert getattr(found, field.name) == getattr(saved, field.name)
    for name in ("U", "s", "V"):
        array = getattr(found.M, name)
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, getattr(saved.M, name))


def test_a_checkpoint_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    saved = _checkpoint()
    saved.save(tmp_path / "state")
    with safe_open(tmp_path / "state", framework="numpy") as file:
        facts = json.loads(file.metadata()["facts"])
        arrays = {name: file.get_tensor(name) for name in ("U", "s", "V")}
    facts["is_sketched"] = facts.pop("is_subsampled")
    memory = facts["memory"]
    memory["quiet"], memory["wanted"] = memory.pop("n_stalled"), memory.pop("check_at")
    save_file(arrays, tmp_path / "earlier", {"facts": json.dumps(facts)})
    assert Checkpoint.load(tmp_path / "earlier").is_subsampled is saved.is_subsampled is True


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    for iteration in (1, 2):
        checkpoint = _checkpoint()
        Checkpoint(checkpoint.M, 0.7, iteration, 0.1, 0.3, 1.0, False, checkpoint.memory).save(
            tmp_path / "state"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert Checkpoint.load(tmp_path / "state").iteration == 2


CASES = [
    (1 / 3, {}),
    (1 / 30, {}),
    (1 / 300, {"dtype": np.float64}),
    (1 / 1000, {}),
    (1 / 30, {"tol": 1e-6}),  # float32 first, float64 later
    (1 / 30, {"fit_intercept": False}),
]


@pytest.mark.parametrize(("fraction", "parameters"), CASES)
def test_fit_resumed_from_any_saved_state_has_the_bits_of_the_uninterrupted_one(
    fraction: float, parameters: dict[str, Any], tmp_path: Path
) -> None:
    arguments = _fit_arguments()
    model = _estimator(arguments, fraction, **parameters)
    for number, state in enumerate(model.iter_fit(*arguments)):
        state.save(tmp_path / str(number))
    assert model.converged_
    saved = sorted(tmp_path.iterdir())
    assert len(saved) == model.n_iter_ + 1
    for path in saved:
        resumed = _estimator(arguments, fraction, **parameters)
        _assert_same_bits(resumed.fit(*arguments, start=Checkpoint.load(path)), model)


@pytest.mark.filterwarnings("ignore::solver.validation.ConvergenceWarning")
def test_resumed_fit_remembers_bounds_and_patience_of_the_states_before() -> None:
    # So near the rounding of float64 the best bound is not the last one, and the gap falls slowly.
    arguments, parameters = _fit_arguments(1.94, seed=439068), {"tol": 8.3e-8, "dtype": np.float64}
    model = _estimator(arguments, 5.2e-4, **parameters)
    states = list(model.iter_fit(*arguments))
    for state in states[-8:]:
        _assert_same_bits(_estimator(arguments, 5.2e-4, **parameters).fit(*arguments, start=state), model)


@pytest.mark.filterwarnings("ignore::solver.validation.ConvergenceWarning")
def test_resumed_fit_goes_on_counting_the_stalled_iterations() -> None:
    arguments, parameters = _fit_arguments(), {"tol": 1e-18, "dtype": np.float64}  # never met
    *_, last = _estimator(arguments, 1 / 30, **parameters).iter_fit(*arguments)
    for n_stalled, n_iter in ((29, 1), (20, 10), (0, 30)):
        memory = replace(last.memory, n_stalled=n_stalled, best_gap=0.0)
        resumed = _estimator(arguments, 1 / 30, **parameters)
        resumed.fit(*arguments, start=replace(last, memory=memory))
        assert not resumed.converged_
        assert resumed.n_iter_ == n_iter


def test_resumed_fit_uses_the_bound_of_the_states_before() -> None:
    arguments = _fit_arguments()
    exact = _estimator(arguments, 1 / 30, tol=1e-7, dtype=np.float64).fit(*arguments)
    first = next(iter(_estimator(arguments, 1 / 30, dtype=np.float64).iter_fit(*arguments)))
    memory = replace(first.memory, best_bound=exact.objective_ * (1 - exact.duality_gap_))
    resumed = _estimator(arguments, 1 / 30, dtype=np.float64)
    for entry in resumed.fit(*arguments, start=replace(first, memory=memory)).history_:
        # With the best bound there is, each gap is the distance to the optimum itself.
        assert entry.gap == pytest.approx(1 - exact.objective_ / entry.objective, abs=1e-6)


def test_state_for_another_penalty_is_a_start_whose_bounds_are_forgotten() -> None:
    arguments = _fit_arguments()
    *_, last = _estimator(arguments, 1 / 10, tol=1e-6).iter_fit(*arguments)
    for fraction in (1 / 100, 1 / 2):
        cold = _estimator(arguments, fraction).fit(*arguments)
        resumed = _estimator(arguments, fraction).fit(*arguments, start=last)
        assert resumed.converged_
        assert resumed.objective_ == pytest.approx(cold.objective_, rel=2e-3)  # both within tol
        for entry in resumed.history_:
            assert entry.gap is not None
            # A bound of the other problem would make some gap smaller than the distance to the optimum.
            assert entry.objective * (1 - entry.gap) <= cold.objective_ * (1 + 1e-5)


@pytest.mark.parametrize("change", ["X", "Z", "labels", "features", "intercept"])
def test_state_of_other_samples_is_refused(change: str) -> None:
    X, Z, supervision = _fit_arguments()
    model = _estimator((X, Z, supervision), 1 / 30)
    *_, last = model.iter_fit(X, Z, supervision)
    others: dict[str, Callable[[], tuple[Any, Any, Labels]]] = {
        "X": lambda: (X + 1e-3, Z, supervision),
        "Z": lambda: (X, 1.01 * Z**3, supervision),
        "labels": lambda: _fit_arguments(seed=1)[2:] and (X, Z, _fit_arguments(seed=1)[2]),
        "features": lambda: (X[:, :-1], Z, supervision),
        "intercept": lambda: (X, Z, supervision),
    }
    model.set_params(fit_intercept=change != "intercept")
    with pytest.raises(InvalidInputError, match="start was made from other samples"):
        model.fit(*others[change](), start=last)


def _save_soundly(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> None:
    """Save a checkpoint but for a change of its arrays and facts, or the text that this returns for facts."""
    arrays: dict[str, Any] = {"U": np.ones((4, 2)), "s": np.ones(2), "V": np.ones((3, 2))}
    memory = {"alpha": 0.1, "best_bound": 0.1, "best_gap": 0.1, "n_stalled": 0, "check_at": 1.0}
    facts: dict[str, Any] = {
        "fingerprint": 1.0, "iteration": 1, "stage_alpha": 1.0, "step_size": 1.0, "gradient_target": 1.0,
        "is_subsampled": False, "memory": memory,
    }  # fmt: skip
    text = change(arrays, facts)
    save_file(arrays, path, {"facts": text if isinstance(text, str) else json.dumps(facts)})


NO_CHECKPOINTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "header": lambda whole: b"\xff" * 8 + whole[8:],
    "text": lambda _: b"no checkpoint",
    "no facts": lambda _: save({"U": np.ones((4, 2)), "s": np.ones(2), "V": np.ones((3, 2))}),
}
DAMAGES: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "tensor": lambda arrays, _: arrays.pop("V"),
    "ranks": lambda arrays, _: arrays.update(s=np.ones(3)),
    "dimensions": lambda arrays, _: arrays.update(s=np.ones((2, 2))),
    "types": lambda arrays, _: arrays.update(s=np.ones(2, np.float32)),
    "integers": lambda arrays, _: arrays.update({n: each.astype(np.int64) for n, each in arrays.items()}),
    "nan": lambda arrays, _: arrays["U"].put(0, np.nan),
    "fact": lambda _, facts: facts.pop("step_size"),
    "word": lambda _, facts: facts.update(step_size="large"),
    "null": lambda _, facts: facts.update(fingerprint=None),
    "memory": lambda _, facts: facts.update(memory=[1, 2]),
    "remembered": lambda _, facts: facts["memory"].pop("n_stalled"),
    "json": lambda *_: "{broken",
    "list": lambda *_: "[1]",
}


@pytest.mark.parametrize("kind", ["missing", "folder", *NO_CHECKPOINTS, *DAMAGES])
def test_damaged_file_is_an_artifact_error_that_names_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "state"
    _save_soundly(path, lambda *_: None)
    assert Checkpoint.load(path).M.rank == 2
    if kind in DAMAGES:
        _save_soundly(path, DAMAGES[kind])
    elif kind in NO_CHECKPOINTS:
        path.write_bytes(NO_CHECKPOINTS[kind](path.read_bytes()))
    else:
        path.unlink()
        if kind == "folder":
            path.mkdir()
    with pytest.raises(ArtifactError, match="state is not a checkpoint"):
        Checkpoint.load(path)


def test_resuming_leaves_the_checkpoint_unmodified(pairs: SyntheticPairs) -> None:
    arguments = pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels)
    model = _estimator(arguments, 1 / 30)
    for state in model.iter_fit(*arguments):
        copies = [array.copy() for array in (state.M.U, state.M.s, state.M.V)]
        _estimator(arguments, 1 / 30).fit(*arguments, start=state)
        for array, copy in zip((state.M.U, state.M.s, state.M.V), copies, strict=True):
            np.testing.assert_array_equal(array, copy)


@pytest.mark.usefixtures("small_blocks")
def test_large_fit_resumed_on_its_subsample_has_the_bits_of_the_uninterrupted_one(tmp_path: Path) -> None:
    arguments = _large_arguments()
    whole = _estimator(arguments, 1 / 20, tol=1e-4)
    kept = list(whole.iter_fit(*arguments))
    subsampled = [number for number, state in enumerate(kept) if state.is_subsampled]
    assert subsampled
    for number in subsampled[:2]:
        kept[number].save(tmp_path / "state")
        resumed = _estimator(arguments, 1 / 20, tol=1e-4)
        _assert_same_bits(resumed.fit(*arguments, start=Checkpoint.load(tmp_path / "state")), whole)


ROOT = Path(__file__).parents[3]
PARAMETERS = {"alpha_fraction": 1 / 30, "tol": 1e-6}


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
from tests.solver.optimisation.test_checkpoints import _fit_arguments, _fit

def die(progress):
    if progress.iteration == {iteration}:
        os.kill(os.getpid(), signal.SIGKILL)

with FitCheckpoints({str(folder)!r}, every_seconds=0):
    _fit(_fit_arguments(), {parameters}, die)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    died = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, timeout=60)
    assert died.returncode == -signal.SIGKILL


def _assert_same(found: LowRankBilinear, expected: LowRankBilinear) -> None:
    _assert_same_bits(found, expected)
    for name in ("alpha_", "n_iter_", "converged_", "stop_reason_"):
        assert getattr(found, name) == getattr(expected, name)
    steps, expected_steps = (
        [replace(step, seconds=0.0) for step in model.history_] for model in (found, expected)
    )
    assert steps == expected_steps
    assert found.rank_ > 1


@pytest.mark.filterwarnings("ignore::solver.validation.ConvergenceWarning")
def test_a_fit_whose_process_was_killed_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    parameters = {**PARAMETERS, "max_iter": 7}  # which the iterations of both processes count for
    expected = _fit(_fit_arguments(), parameters)
    assert expected.n_iter_ == 7
    _fit_and_die(tmp_path, parameters, 5)
    seen: list[IterationProgress] = []
    with FitCheckpoints(tmp_path, every_seconds=0) as checkpoints:
        found = _fit(_fit_arguments(), {**parameters, "n_threads": 1}, seen.append)
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
    arguments = _large_arguments()
    parameters = {"alpha_fraction": 1 / 20, "tol": 1e-3}
    expected = _fit(arguments, parameters)
    assert expected.history_[0].share < expected.history_[-1].share == 1
    _interrupt(tmp_path, arguments, parameters, expected.n_iter_)
    seen: list[IterationProgress] = []
    with FitCheckpoints(tmp_path, every_seconds=0):
        _assert_same(_fit(arguments, parameters, seen.append), expected)
    assert len(seen) < expected.n_iter_


def test_a_checkpoint_belongs_to_one_fit(tmp_path: Path) -> None:
    X, Z, labels = _fit_arguments()
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
        _fit(_fit_arguments(), PARAMETERS)
    assert not folder.exists()


def test_a_damaged_checkpoint_costs_the_iterations_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = _fit_arguments()
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
    arguments = _fit_arguments()
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
    arguments = _fit_arguments()
    model = LowRankBilinear(**PARAMETERS, warm_start=True)
    with FitCheckpoints(tmp_path, every_seconds=0):
        model.fit(*arguments)
        model.fit(*arguments)
    assert list(tmp_path.iterdir()) == []
