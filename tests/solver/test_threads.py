import os
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from solver.threads import map_chunks, single_threaded_blas

CONTROLLER = ThreadpoolController().select(user_api="blas")


def _blas_threads() -> set[int]:
    # Others, such as the one that faiss brings, count for each thread apart and are not used here.
    ours = [library for library in CONTROLLER.lib_controllers if re.search("numpy|scipy", library.filepath)]
    return {library.num_threads for library in ours}


@pytest.fixture
def two_blas_threads() -> Iterator[None]:
    np.ones((2, 2)) @ np.ones((2, 2))  # BLAS is loaded from here on
    with CONTROLLER.limit(limits=2):
        if _blas_threads() != {2}:
            pytest.skip("this BLAS cannot run two threads")
        yield


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_takes_one_thread_inside_and_as_many_as_before_outside() -> None:
    with single_threaded_blas():
        assert _blas_threads() == {1}
        with single_threaded_blas():
            assert _blas_threads() == {1}
        assert _blas_threads() == {1}  # the outer holder is still there
    assert _blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_overlapping_holders_on_threads_restore_the_number_when_the_last_one_leaves() -> None:
    first_left, second_holds = threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def second() -> None:
        with single_threaded_blas():
            second_holds.set()
            first_left.wait(10)
            seen.append(_blas_threads())

    thread = threading.Thread(target=second)
    with single_threaded_blas():
        thread.start()
        assert second_holds.wait(10)
    first_left.set()
    thread.join()
    assert seen == [{1}]  # leaving first does not lift the limit of the other
    assert _blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_many_concurrent_holders_restore_the_number() -> None:
    seen: list[set[int]] = []

    def hold_often(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            with single_threaded_blas():
                time.sleep(1e-4 * rng.random())
                seen.append(_blas_threads())

    threads = [threading.Thread(target=hold_often, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 120
    assert all(numbers == {1} for numbers in seen)
    assert _blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("n_threads", [1, 3])
def test_error_in_a_chunk_reaches_the_caller_and_restores_the_number(n_threads: int) -> None:
    def fail(chunk: int) -> None:
        assert _blas_threads() == {1}
        raise KeyError(chunk)

    with pytest.raises(KeyError, match="0"):
        map_chunks(fail, [0, 1, 2], n_threads)
    assert _blas_threads() == {2}


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_results_come_in_the_order_of_the_chunks(n_threads: int) -> None:
    def evaluate(chunk: int) -> int:
        time.sleep(0.002 * (5 - chunk))  # the first chunk ends last
        return chunk * chunk

    assert map_chunks(evaluate, range(5), n_threads) == [0, 1, 4, 9, 16]


def test_no_more_chunks_run_at_once_than_there_are_threads() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def evaluate(chunk: Any) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    map_chunks(evaluate, range(8), 2)
    assert most == 2


def test_forked_process_has_threads_of_its_own() -> None:
    everyone = threading.Barrier(2)

    def meet(_: int) -> None:
        everyone.wait(20)  # broken unless two threads take a chunk each

    map_chunks(meet, [0, 1], 2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            everyone = threading.Barrier(2)
            map_chunks(meet, [0, 1], 2)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_chunks_may_use_chunks() -> None:
    def row(number: int) -> list[int]:
        return map_chunks(lambda other: number * other, range(4), 2)

    assert map_chunks(row, range(5), 2) == [[number * other for other in range(4)] for number in range(5)]
