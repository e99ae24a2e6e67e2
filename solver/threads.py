"""Independent chunks of work on threads, each with a single-threaded BLAS.

Threads over blocks of pairs and threads inside BLAS would compete for the same cores. The number of BLAS
threads is a property of the whole process, so all running computations share one limit, which the last of
them lifts.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

_Chunk = TypeVar("_Chunk")
_Result = TypeVar("_Result")


class _SharedBlasLimit:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: ThreadpoolController | None = None
        self._n_modules = 0
        self._limiter: Any = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                if self._controller is None or self._n_modules != len(sys.modules):
                    # Modules load libraries: search again if any were imported since.
                    self._controller, self._n_modules = ThreadpoolController(), len(sys.modules)
                with _from_any_thread():
                    self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    with _from_any_thread():
                        self._limiter.restore_original_limits()


@contextmanager
def _from_any_thread() -> Iterator[None]:
    """Let this thread set the number of OpenBLAS threads; threadpoolctl accepts only the first to do so."""
    OpenBLASController.clear_controlling_thread(force=True)
    yield
    OpenBLASController.clear_controlling_thread(force=True)


_BLAS_LIMIT = _SharedBlasLimit()


def _reset_after_fork() -> None:
    """Discard, in a forked process, the threads of its parent and the locks that they held."""
    global _BLAS_LIMIT
    _BLAS_LIMIT = _SharedBlasLimit()
    _helpers.cache_clear()


os.register_at_fork(after_in_child=_reset_after_fork)


def single_threaded_blas() -> AbstractContextManager[None]:
    """Return a context in which BLAS uses one thread: small products gain nothing from more."""
    return _BLAS_LIMIT.hold()


def even_slices(n_rows: int, n_parts: int) -> list[slice]:
    """Return `n_parts` consecutive slices of nearly equal length, or one per row if there are fewer rows."""
    n_parts = min(n_parts, n_rows)
    edges = [i * n_rows // n_parts for i in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def row_blocks(n_rows: int, size: int = 4096) -> Iterator[slice]:
    """Yield consecutive slices of `size` rows, the last one of what is left: bounds the memory of copies."""
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def map_chunks(
    evaluate: Callable[[_Chunk], _Result], chunks: Sequence[_Chunk], n_threads: int
) -> list[_Result]:
    """Return ``[evaluate(chunk) for chunk in chunks]``, computed on up to `n_threads` threads, this one
    included. The evaluation must not depend on the order of the chunks."""
    n_helpers = min(n_threads, len(chunks)) - 1
    if n_helpers < 1:  # as of few samples, where all that follows takes longer than the chunk
        with _BLAS_LIMIT.hold():
            return [evaluate(chunk) for chunk in chunks]
    results: dict[int, _Result] = {}
    errors: dict[int, BaseException] = {}
    positions = itertools.count()

    def take_chunks() -> None:
        while not errors and (position := next(positions)) < len(chunks):
            try:
                results[position] = evaluate(chunks[position])
            except BaseException as error:  # raised below, in the calling thread
                errors[position] = error

    with _BLAS_LIMIT.hold():
        helpers = [_helpers(n_helpers).submit(take_chunks) for _ in range(n_helpers)]
        try:
            take_chunks()
        except BaseException as error:  # an interrupt between two chunks: stop the helpers, too
            errors[-1] = error
        # A helper that has not started by now has nothing left to do.
        wait([helper for helper in helpers if not helper.cancel()])
    if errors:
        raise errors[min(errors)]
    return [results[position] for position in range(len(chunks))]


@functools.cache
def _helpers(n_helpers: int) -> ThreadPoolExecutor:
    """Return a pool of threads, created once: starting threads takes as long as a small chunk."""
    return ThreadPoolExecutor(n_helpers, thread_name_prefix="chunks")
