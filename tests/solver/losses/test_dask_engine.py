import functools
import hashlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import (
    Checkpoint,
    DaskEngine,
    EngineError,
    FitCheckpoints,
    FitCost,
    IterationProgress,
    Labels,
    LowRankBilinear,
    PairSizes,
    make_low_rank_pairs,
)
from solver.linalg import from_factors
from solver.losses import dask_engine, pair_blocks
from solver.losses.base import FactoredPoint
from solver.losses.pair_blocks import PairBlocks
from solver.losses.pair_losses import PairLogisticLoss
from tests.dask_cluster import Cluster, kill_once

FACTORS = ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_", "singular_values_")


@pytest.fixture(scope="module")
def _cluster(distributed: Any) -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.kill()


@pytest.fixture
def cluster(_cluster: Cluster) -> Cluster:
    """A cluster that all tests share; it is started again after a test that ended part of it."""
    if not _cluster.is_running:
        _cluster.kill()
        _cluster.start()
    return _cluster


def _arguments(n: int = 500, *, is_sparse: bool = False) -> tuple[Any, Any, Labels]:
    data = make_low_rank_pairs(
        n, n + 50, n_features_x=14, n_features_z=12, n_classes=5, noise=1.5, random_state=0
    )
    Z = scipy.sparse.csr_array(np.where(data.Z > 0, data.Z, 0.0)) if is_sparse else data.Z
    return data.X, Z, Labels(data.x_labels, data.z_labels)


def _estimator(**parameters: Any) -> LowRankBilinear:
    return LowRankBilinear(alpha_fraction=1 / 30, tol=1e-4, **parameters)


@functools.cache
def _fitted_here(n: int = 500) -> LowRankBilinear:
    """Return what a fit in this process gives; to be asked for outside of an engine."""
    return _estimator().fit(*_arguments(n))


def _assert_same_bits(found: LowRankBilinear, expected: LowRankBilinear) -> None:
    for name in FACTORS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.rank_ > 1
    assert found.objective_ == expected.objective_
    assert found.duality_gap_ == expected.duality_gap_ <= 1e-4


def _hash(results: tuple[Any, ...]) -> str:
    return hashlib.sha256(b"".join(np.asarray(result).tobytes() for result in results)).hexdigest()


def _kill_busy(engine: DaskEngine) -> None:
    """Kill a worker in the middle of a block."""
    pids, deadline = engine.client.run(os.getpid), time.monotonic() + 60.0
    while not (busy := [worker for worker, tasks in engine.client.processing().items() if tasks]):
        assert time.monotonic() < deadline, "no worker was busy"
        time.sleep(0.001)
    os.kill(pids[busy[0]], signal.SIGKILL)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_fit_on_workers_has_the_bits_of_one_in_this_process(
    is_sparse: bool, cluster: Cluster, tmp_path: Path
) -> None:
    arguments, costs, folders = _arguments(is_sparse=is_sparse), list[FitCost](), set[Path]()
    expected = _estimator(n_threads=1).fit(*arguments)
    with DaskEngine(cluster.address, tmp_path, least_pairs=0, announce=costs.append):
        found = _estimator().fit(*arguments, callback=lambda _: folders.update(tmp_path.iterdir()))
    _assert_same_bits(found, expected)
    assert len(folders) == 2  # one for each precision
    assert list(tmp_path.iterdir()) == []
    assert [cost.n_pairs for cost in costs] == [500 * 550]
    assert all(cost.n_threads <= 2 for cost in costs)


def test_a_fit_whose_workers_are_killed_three_times_has_the_same_bits(cluster: Cluster) -> None:
    arguments, killers = _arguments(900), list[threading.Thread]()
    with DaskEngine(cluster.address, least_pairs=0) as engine:

        def kill_next(_: IterationProgress) -> None:
            if len(killers) < 3:
                for killer in killers:
                    killer.join()
                killers.append(threading.Thread(target=_kill_busy, args=(engine,)))
                killers[-1].start()

        found = _estimator().fit(*arguments, callback=kill_next)
        for killer in killers:
            killer.join()
    assert len(killers) == 3
    _assert_same_bits(found, _fitted_here(900))


def test_a_fit_outlives_its_scheduler_or_gives_up_and_goes_on_from_its_checkpoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    arguments, expected = _arguments(), _fitted_here()
    impatient = functools.partial(DaskEngine, cluster.address, least_pairs=0, patience_seconds=1.0)
    # Two lose the same scheduler: one waits for longer than its client tries, the other gives up.
    with DaskEngine(cluster.address, least_pairs=0) as engine:
        patient = _estimator()
        rest = patient.iter_fit(*arguments)
        next(rest)
        with impatient():
            states = _estimator().iter_fit(*arguments)
            next(states)
            cluster.signal(signal.SIGSTOP, scheduler=True)
            try:
                with pytest.raises(EngineError, match="no Dask scheduler with a worker at tcp"):
                    next(states)
            finally:
                cluster.signal(signal.SIGCONT, scheduler=True)
        for _ in itertools.islice(rest, 2):
            pass
        with impatient(), FitCheckpoints(tmp_path):
            states = _estimator().iter_fit(*arguments)
            for _ in itertools.islice(states, 4):
                pass
            cluster.kill()
            with pytest.raises(EngineError, match=r"no Dask (scheduler|worker)"):
                next(states)
        deadline = time.monotonic() + 60.0
        while engine.client.status != "closed":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        cluster.start()
        for _ in rest:
            pass
        _assert_same_bits(patient, expected)

    (file,) = tmp_path.iterdir()  # written when the fit gave up
    start = Checkpoint.load(file)
    assert start.iteration == 3
    with DaskEngine(cluster.address, least_pairs=0):
        _assert_same_bits(_estimator().fit(*arguments, start=start), expected)
    with FitCheckpoints(tmp_path):
        resumed = _estimator().fit(*arguments)
    _assert_same_bits(resumed, expected)
    assert resumed.n_iter_ == expected.n_iter_


def test_a_fit_outlives_a_scheduler_that_is_lost_before_its_first_evaluation(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, losses = _fitted_here(), list[str]()
    with DaskEngine(cluster.address, least_pairs=0) as engine:
        engine.connect()
        wait = engine.wait

        def lose_scheduler(future: Any) -> None:
            if not losses:
                losses.append("while its speed is measured")
                cluster.kill()
                cluster.start()
            wait(future)

        monkeypatch.setattr(engine, "wait", lose_scheduler)
        _assert_same_bits(_estimator().fit(*_arguments()), expected)
        assert losses


@pytest.mark.parametrize(
    ("is_sparse", "dtype", "n_blocks"), [(True, np.float32, 18), (False, np.float64, 33)]
)
def test_a_grid_of_blocks_has_the_same_bits_also_where_workers_are_killed(
    is_sparse: bool, dtype: type, n_blocks: int, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_blocks, "_BLOCK_PAIRS", 1 << 17)  # as for a hundred billion pairs
    data = make_low_rank_pairs(2000, 3000, n_features_x=8, n_features_z=6, n_classes=5, random_state=0)
    X, Z = data.X, data.Z
    if is_sparse:
        X, Z = (scipy.sparse.csr_array(np.where(side > 0, side, 0.0)) for side in (X, Z))
    labels, rng = Labels(data.x_labels, data.z_labels), np.random.default_rng(0)
    A, B = (rng.standard_normal((n_features, 3)).astype(dtype) for n_features in (8, 6))
    point = FactoredPoint(A, B)
    with DaskEngine(cluster.address, least_pairs=0) as engine:
        here, there = (
            PairLogisticLoss(X, Z, labels, dtype, n_threads=2, engine=each) for each in (None, engine)
        )
        sizes = PairSizes(2000, 3000, 8, 6, np.dtype(dtype).itemsize)
        assert sizes.is_grid
        assert len(sizes.split()) == n_blocks
        killer = threading.Thread(target=_kill_busy, args=(engine,))
        killer.start()
        value, on_A, on_B = there.value_and_factor_gradients(A, B)
        killer.join()
        assert _hash((value, on_A, on_B)) == _hash(here.value_and_factor_gradients(A, B))
        assert _hash(there.value_and_gradient(point)) == _hash(here.value_and_gradient(point))
        assert there.dual_value(point, 0.5) == here.dual_value(point, 0.5) > 0
        M = from_factors(A, B)
        assert there.value(M) == here.value(M) == pytest.approx(value, rel=1e-5)
        assert there.mean_curvature(point) == here.mean_curvature(point) > 0


def test_small_problems_stay_in_this_process(tmp_path: Path) -> None:
    with DaskEngine("tcp://127.0.0.1:9", tmp_path) as engine:
        _estimator().fit(*_arguments())
        assert list(tmp_path.iterdir()) == []
        assert engine.client is None


def test_workers_that_do_not_see_the_folder_are_named(cluster: Cluster, tmp_path: Path) -> None:
    X, Z, labels = _arguments()
    with DaskEngine(cluster.address, tmp_path, least_pairs=0) as engine:
        pairs = PairBlocks.of(X, Z, labels)
        engine.open(pairs, 1)
        blocks = engine.open(pairs, 1)  # which no worker has read to measure how fast it is
        for file in tmp_path.glob("*/*"):
            file.unlink()
        with pytest.raises(EngineError, match=f"cannot read {tmp_path}"):
            list(blocks.map(PairBlocks.sum_values, pairs.sizes.split(), (X[:, :2], Z[:, :2])))


def test_what_is_stored_for_workers_goes_with_the_engine_whoever_holds_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    with DaskEngine(cluster.address, tmp_path, least_pairs=0) as engine:
        blocks = engine.open(PairBlocks.of(*_arguments()), 1)
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    del blocks


def test_without_a_scheduler_a_fit_fails(distributed: Any) -> None:
    with (
        DaskEngine("tcp://127.0.0.1:9", least_pairs=0, patience_seconds=0.5),
        pytest.raises(EngineError, match=r"no Dask scheduler with a worker at tcp://127\.0\.0\.1:9"),
    ):
        _estimator().fit(*_arguments())


def test_calls_are_taken_as_workers_come_to_them_and_their_errors_are_told_from_lost_schedulers(
    cluster: Cluster, tmp_path: Path
) -> None:
    taken: list[int] = []

    def arguments(stop: int) -> Iterator[tuple[int]]:
        for number in range(-stop, 0):
            taken.append(number)
            yield (number,)

    engine = DaskEngine(cluster.address)
    results = engine.map(abs, arguments(200))
    assert next(results) == 200
    assert len(taken) < 100
    assert list(results) == list(range(199, 0, -1))
    with pytest.raises(FileNotFoundError, match="nothing"):
        list(engine.map(os.stat, [(str(tmp_path),), (str(tmp_path / "nothing"),)]))

    def break_off() -> Iterator[tuple[int]]:
        yield (1,)
        raise OSError("of who asks")

    with pytest.raises(OSError, match="of who asks"):
        list(engine.map(abs, break_off()))
    assert list(engine.map(abs, [])) == []
    engine.close()


def test_calls_of_many_bytes_are_not_taken_far_ahead(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "_BYTES_AHEAD", 1 << 20, raising=False)
    sizes, taken = [300_000] * 12 + [2 << 20, 0, 3 << 20], list[int]()

    def arguments() -> Iterator[tuple[bytes]]:
        for size in sizes:
            taken.append(size)
            yield (bytes(size),)

    engine = DaskEngine(cluster.address)
    results = engine.map(len, arguments())
    assert next(results) == 300_000
    assert len(taken) == 4  # that fill the megabyte
    assert list(results) == sizes[1:]  # also one that is larger
    engine.close()


def _allow_no_failure(dask_scheduler: Any) -> None:
    """Raise KilledWorker at the first death."""
    dask_scheduler.allowed_failures = 0


def test_workers_that_are_killed_by_one_call_each_do_not_end_a_long_map(
    cluster: Cluster, tmp_path: Path
) -> None:
    engine = DaskEngine(cluster.address)
    engine.connect()
    engine.client.run_on_scheduler(_allow_no_failure)
    calls = ((str(tmp_path), number, number % 30 == 0) for number in range(70))
    assert list(engine.map(kill_once, calls)) == list(range(70))
    assert len(list(tmp_path.iterdir())) == 3
    engine.close()


def test_a_fit_whose_workers_die_before_their_speed_is_measured_fails(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaskEngine(cluster.address, least_pairs=0) as engine:
        engine.connect()
        monkeypatch.setattr(engine, "_patience_seconds", 3.0)
        cluster.signal(signal.SIGKILL, scheduler=False)
        with pytest.raises(EngineError, match="no Dask worker for 3 s"):
            _estimator().fit(*_arguments())
