"""Saving a fit and resuming it, also by the next process if one dies."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import joblib
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from solver.linalg import LowRankMatrix
from solver.optimisation.convergence import Memory
from solver.optimisation.descent import RESUMED, DescentState
from solver.progress import IterationProgress
from solver.validation import ArtifactError, EngineError

_EARLIER_NAMES = {"is_sketched": "is_subsampled", "quiet": "n_stalled", "wanted": "check_at"}
"""Fields that have another name in files of earlier versions."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Everything that a fit needs to resume as if it had not been interrupted.

    Parameters
    ----------
    M : LowRankMatrix
        Iterate, in the basis of the prepared problem.
    fingerprint : float
        Of the prepared problem; differs if the samples or labels differ.
    iteration : int
        Steps taken so far.
    stage_alpha, step_size, gradient_target : float
        See `solver.optimisation.descent.DescentState`.
    is_subsampled : bool
        See `solver.optimisation.descent.DescentState`.
    memory : Memory
        State of the convergence monitor.
    """

    M: LowRankMatrix
    fingerprint: float
    iteration: int
    stage_alpha: float
    step_size: float
    gradient_target: float
    is_subsampled: bool
    memory: Memory

    @classmethod
    def of(cls, state: DescentState, fingerprint: float, memory: Memory) -> Self:
        """Return the part of a state that cannot be recomputed."""
        fields_of_state = {name: getattr(state, name) for name in RESUMED}
        return cls(**fields_of_state, fingerprint=fingerprint, memory=memory)

    def save(self, path: str | Path) -> None:
        """Write the checkpoint to a file atomically, in place of an earlier one."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(self.to_bytes({}))
        partial.replace(path)

    def to_bytes(self, notes: Mapping[str, str]) -> bytes:
        """Return the content of a file; `load` ignores the notes beside the checkpoint."""
        facts = {name: value for name, value in asdict(self).items() if name != "M"}
        arrays = {"U": self.M.U, "s": self.M.s, "V": self.M.V}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return bytes(save(contiguous, {"facts": json.dumps(facts), **notes}))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote; ArtifactError if it is missing, damaged or none."""
        try:
            with safe_open(path, framework="numpy") as file:
                facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
                _rename(facts)
                _rename(facts["memory"])
                M = LowRankMatrix(*(file.get_tensor(name) for name in ("U", "s", "V")))
            return cls(_check(M), **_numbers(facts, cls), memory=Memory(**_numbers(facts["memory"], Memory)))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path} is not a checkpoint of a fit: {error}") from error


def _rename(facts: dict[str, Any]) -> None:
    for earlier, name in _EARLIER_NAMES.items():
        if earlier in facts:
            facts[name] = facts.pop(earlier)


def _check(M: LowRankMatrix) -> LowRankMatrix:
    """Return M; raise ValueError unless the three arrays fit together."""
    arrays = (M.U, M.s, M.V)
    if [array.ndim for array in arrays] != [2, 1, 2] or len({array.shape[-1] for array in arrays}) != 1:
        raise ValueError(f"arrays of shapes {[array.shape for array in arrays]}")
    if {array.dtype for array in arrays} not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"arrays of types {[array.dtype.name for array in arrays]}")
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("NaN or infinity in an array")
    return M


def _numbers(facts: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    casts = {"int": int, "float": float, "bool": bool}
    return {field.name: casts[field.type](facts[field.name]) for field in fields(kind) if field.type in casts}


_logger = logging.getLogger(__name__)
_SECONDS = 30.0  # between two writes: what a death costs at most, and longer than most fits take

_Solution = TypeVar("_Solution")


class FitCheckpoints:
    """Has every `LowRankBilinear` that is fitted within a ``with`` statement write checkpoints to a folder.

    A fit that was begun before with the same samples, supervision and parameters, by this process or one
    that died, goes on from its last checkpoint and ends with the bits of one that was never interrupted, its
    history included. A checkpoint that cannot be written or read costs a warning in the log, not the fit.
    Fits with `warm_start`, with `start` or by ``solver="paper"`` write none, nor do the first steps of a
    large problem, on a subsample alone.

    Parameters
    ----------
    folder : path-like
        Made when the first checkpoint is written.
    every_seconds : float, >= 0
        Least time between two checkpoints of a fit, and before the first; at 0 each step writes one.

    Examples
    --------
    >>> from solver import FitCheckpoints, LowRankBilinear
    >>> with FitCheckpoints("checkpoints") as checkpoints:  # doctest: +SKIP
    ...     model = LowRankBilinear(alpha_fraction=0.1).fit(X, Z, supervision)
    >>> checkpoints.discard()  # doctest: +SKIP
    """

    PREFIX: ClassVar[str] = "fit-"
    """Of the names of the files; a fit that is never tried again leaves one."""

    def __init__(self, folder: str | Path, every_seconds: float = _SECONDS) -> None:
        self._folder = Path(folder)
        self._every_seconds = every_seconds
        self._paths: set[Path] = set()
        self._token: Token[FitCheckpoints | None] | None = None

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _CURRENT.reset(self._token)

    def discard(self) -> None:
        """Remove the checkpoints of all fits so far, which will not be needed again."""
        for path in self._paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._paths.clear()

    def open(self, *identity: Any) -> FitRecord:
        """Return the record of a fit, by all that the result depends on but the version of this package."""
        key = joblib.hash((version("lrbs"), *identity), hash_name="sha1")
        path = self._folder / f"{self.PREFIX}{key}"
        self._paths.add(path)
        return FitRecord(path, self._every_seconds)


_CURRENT: ContextVar[FitCheckpoints | None] = ContextVar("checkpoints", default=None)


def current_checkpoints() -> FitCheckpoints | None:
    """Return where fits of this context write their checkpoints, None by default."""
    return _CURRENT.get()


class FitRecord:
    """The checkpoint file of one fit.
    `history` leaves out the iteration that led to `start`: resuming reports it once more."""

    def __init__(self, path: Path, every_seconds: float) -> None:
        self._path = path
        self._every_seconds = every_seconds
        self.start: Checkpoint | None = None
        self.history: list[IterationProgress] = []
        if path.exists():
            self._read()
        self._written_at = time.monotonic()

    def keep(
        self, states: Generator[Checkpoint, None, _Solution], history: Sequence[IterationProgress]
    ) -> Generator[Checkpoint, None, _Solution]:
        """Yield the states of a fit, write those that are due, and return the solution.
        `history`, its iterations, grows meanwhile."""
        last: Checkpoint | None = None
        n_iterations = 0
        while True:
            try:
                state = next(states)
            except StopIteration as end:
                solution: _Solution = end.value
                return solution
            except EngineError:
                if last is not None:
                    self._write(last, history[:n_iterations])
                raise
            last, n_iterations = state, len(history)
            if time.monotonic() - self._written_at >= self._every_seconds:
                self._write(state, history)
            yield state

    def _read(self) -> None:
        try:
            start = Checkpoint.load(self._path)
            with safe_open(self._path, framework="numpy") as file:
                entries = json.loads((file.metadata() or {})["history"])
            self.history = [IterationProgress(**entry) for entry in entries]
            self.start = start
        except (ArtifactError, OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            _logger.warning("a fit starts from the beginning, since its checkpoint is damaged: %s", error)
        else:
            _logger.info("a fit goes on after %d iterations from %s", len(self.history), self._path)

    def _write(self, state: Checkpoint, history: Sequence[IterationProgress]) -> None:
        """Replace the file; where that is impossible, the earlier checkpoint stays."""
        # The iteration that led to the state is reported again by who resumes there.
        n_before = len(history) - (state.iteration > 0)
        notes = {"history": json.dumps([asdict(entry) for entry in history[:n_before]])}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            _replace(self._path, state.to_bytes(notes))
        except OSError as error:
            _logger.warning("a checkpoint could not be written, the fit goes on without it: %s", error)
        self._written_at = time.monotonic()


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically, under a name of its own first: another process may write the same one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
