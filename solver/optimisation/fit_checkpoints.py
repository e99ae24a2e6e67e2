"""Checkpoints that a process writes while it fits, and that the next process finds if this one dies.
A file is named by a hash of everything that the result depends on, so that a fit finds its own checkpoint
and no other one."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

import joblib
from safetensors import SafetensorError, safe_open

from solver.optimisation.checkpoint import Checkpoint
from solver.progress import IterationProgress
from solver.validation.errors import ArtifactError, EngineError

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
