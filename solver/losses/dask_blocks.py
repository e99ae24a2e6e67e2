"""Blocks of one loss as tasks of a Dask cluster: what is sent, what is stored, and what a worker does."""
# A task names a folder and a block; the worker maps samples and factors from files there and keeps the
# samples mapped.

from __future__ import annotations

import ctypes
import functools
import shutil
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np

from solver.linalg.matrices import FloatArray
from solver.losses.costs import sample_tiles, time_tiles
from solver.losses.engine import Measure
from solver.losses.pair_blocks import Block, PairBlocks
from solver.threads import single_threaded_blas
from solver.validation.errors import EngineError

_LOADED = 2  # losses that a worker keeps mapped: a fit has one in either precision
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of two parameters in the C library's malloc.h
_KEPT_BYTES = 32 << 20  # more than a tile's temporary arrays take; the C library accepts no larger threshold
_REST = "rest.joblib"

_Part = TypeVar("_Part")


class DaskBlockMap:
    """The blocks of one loss; its folder goes with this object, or before by `remove`.
    `run` yields what workers return of a function for each tuple of arguments, in their order."""

    def __init__(
        self,
        run: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]],
        pairs: PairBlocks,
        folder: Path,
    ) -> None:
        self._run, self._pairs, self._folder = run, pairs, folder
        self.remove: Callable[[], object] = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        """Remove what is stored, once."""
        _store(pairs, folder)

    def map(
        self,
        measure: Measure[_Part],
        blocks: Sequence[Block],
        left: FloatArray,
        right: FloatArray,
        *numbers: float,
    ) -> Iterator[_Part]:
        """Yield the measure of each block, in the order of the blocks."""
        files = [self._folder / f"{name}-{uuid.uuid4().hex}.npy" for name in ("left", "right")]
        for file, factor in zip(files, (left, right), strict=True):
            np.save(file, factor)
        names = [file.name for file in files]
        try:
            yield from self._run(
                compute_block, ((str(self._folder), measure, block, names, numbers) for block in blocks)
            )
        except (FileNotFoundError, PermissionError) as error:
            raise EngineError(f"a worker cannot read {self._folder}: {error}") from error
        finally:
            for file in files:
                file.unlink()

    def time_tiles(self, n_tasks: int) -> list[tuple[float, float]]:
        """Return the seconds, of the clock and of a processor, that workers take for a pair."""
        block, left, right = sample_tiles(self._pairs)
        return list(self.map(time_tiles, [block] * n_tasks, left, right))


def compute_block(
    folder: str,
    measure: Measure[_Part],
    block: Block,
    factors: Sequence[str],
    numbers: tuple[float, ...],
) -> _Part:
    """Compute a block: what a worker does. `folder` has the pairs, and the files of both factors."""
    left, right = (_map_array(Path(folder) / name) for name in factors)
    with single_threaded_blas():
        return measure(_load(folder), block, left, right, *numbers)


def _store(pairs: PairBlocks, folder: Path) -> None:
    """Write pairs to a folder: dense samples so that they can be mapped, the rest beside them."""
    rest: dict[str, Any] = {}
    for name, samples in (("X", pairs.X), ("Z", pairs.Z)):
        if isinstance(samples, np.ndarray):
            rest[name] = f"{name}.npy"
            np.save(folder / rest[name], samples)
        else:
            rest[name] = samples
    joblib.dump((pairs.sizes, pairs.supervision, rest), folder / _REST)


@functools.lru_cache(_LOADED)
def _load(folder: str) -> PairBlocks:
    _keep_freed_memory()
    sizes, supervision, rest = joblib.load(Path(folder) / _REST)
    X, Z = (
        _map_array(Path(folder) / samples) if isinstance(samples, str) else samples
        for samples in (rest["X"], rest["Z"])
    )
    return PairBlocks(sizes, Z, supervision, X)


def _map_array(file: Path) -> FloatArray:
    array: FloatArray = np.asarray(np.load(file, mmap_mode="r"))
    return array


def _keep_freed_memory() -> None:
    """Undo that Dask has its workers return freed memory at once: a tile would wait for it as long again."""
    with suppress(OSError, AttributeError):  # another C library, which has no such function
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
