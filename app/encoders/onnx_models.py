"""ONNX models on disk: told by the hash of their file, loaded when they are needed, a few held at a time."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from app.domain.errors import EncoderUnavailableError

try:
    import onnxruntime
except ImportError:  # the extra "onnx" is optional; `OnnxModels` says so when it is needed
    onnxruntime = None

MOST_SESSIONS = 8
"""Models held in memory, whatever the number of collections; the one used least recently goes first."""
_Signature = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A loaded model.

    Parameters
    ----------
    runtime : onnxruntime.InferenceSession
        Runs it; may be shared by threads.
    input_name : str
        Of its first input.
    outputs : tuple of str
        Names of its outputs.
    """

    runtime: Any
    input_name: str
    outputs: tuple[str, ...]


class OnnxModels:
    """Loads models and keeps the last few; encoders of the same file share one.

    A file is hashed once, and again when its times, size or inode say that it is another. What a model keeps
    in files beside its own is not looked at.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._hashes: dict[Path, tuple[_Signature, str]] = {}
        self._locks: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    def sha256(self, path: Path) -> str:
        """Return the hash of a model file as it is now; raises EncoderUnavailableError if there is none."""
        with self._lock_of(path):
            return self._hashed(path)[1]

    def session(self, path: Path, sha256: str | None) -> Session:
        """Return a loaded model.

        A model that is held is used whatever became of its file: its hash says that it is the right one.

        Parameters
        ----------
        path : Path
            Its file.
        sha256 : str or None
            The hash it must have; any when None.

        Raises
        ------
        EncoderUnavailableError
            If the file is missing, damaged or another one, or onnxruntime is not installed.
        """
        if onnxruntime is None:
            raise EncoderUnavailableError("the onnx encoder needs the extra: pip install 'lrbs[onnx]'")
        held = self._held(sha256)
        if held is not None:
            return held
        with self._lock_of(path):
            signature, found = self._hashed(path)
            require(path, sha256, found)
            session = self._held(found) or _load(path)
            if _signature(path) != signature:
                raise EncoderUnavailableError(f"the model file {path.name!r} is being replaced")
        with self._guard:
            self._sessions[found] = session
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def has_room(self) -> bool:
        """Return whether one more model can be held without letting go of another."""
        return len(self._sessions) < MOST_SESSIONS

    def _held(self, sha256: str | None) -> Session | None:
        with self._guard:
            session = self._sessions.get(sha256 or "")
            if session is not None and sha256 is not None:
                self._sessions.move_to_end(sha256)
        return session

    def _lock_of(self, path: Path) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(path, threading.Lock())

    def _hashed(self, path: Path) -> tuple[_Signature, str]:
        signature = _signature(path)
        known = self._hashes.get(path)
        if known is None or known[0] != signature:
            try:
                with path.open("rb") as file:
                    known = signature, hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise EncoderUnavailableError(
                    f"the model file {path.name!r} cannot be read: {error.strerror}"
                ) from error
            self._hashes[path] = known
        return known


def require(path: Path, expected: str | None, found: str) -> None:
    """Refuse another model than the expected one; raises EncoderUnavailableError."""
    if expected is not None and found != expected:
        raise EncoderUnavailableError(
            f"the model file {path.name!r} is not the one that the collection was made with: "
            f"its SHA-256 is {found}, not {expected}"
        )


def without_folder(error: Exception, path: Path) -> str:
    """Return the first line of an error, with no path of this machine in it."""
    return str(error).replace(str(path), path.name).strip().partition("\n")[0][:300]


def _signature(path: Path) -> _Signature:
    """Return what changes when a file is replaced or written to."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        raise EncoderUnavailableError(f"there is no model file {path.name!r}") from error
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _load(path: Path) -> Session:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # The runtime's threads spin while they wait: on cores that others use too, a picture took 2.6 times
    # the processor time. Several pictures, or several requests, fill the cores better.
    options.intra_op_num_threads = 1
    try:
        runtime = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        outputs = tuple(output.name for output in runtime.get_outputs())
        return Session(runtime, runtime.get_inputs()[0].name, outputs)
    except Exception as error:  # onnxruntime's own errors share no public base class
        raise EncoderUnavailableError(
            f"{path.name} is not a usable ONNX model: {without_folder(error, path)}"
        ) from error
