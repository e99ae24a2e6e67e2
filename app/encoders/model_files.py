"""Model files on disk: identified by the hash of their content, loaded on demand, a few kept in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from typing_extensions import override

from app.domain.entities import Matrix
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.domain.names import join_words
from app.encoders.base import BaseEncoder, import_extra

MAX_BYTES = 2 << 30
"""Of a model file: a protocol buffer message, which an ONNX model is, cannot be longer."""
_STEP_BYTES = 4 << 20


class Signature(NamedTuple):
    """What changes when a file is replaced or written to."""

    device: int
    inode: int
    size: int
    written_ns: int
    changed_ns: int


def signature_of(path: Path) -> Signature:
    """Return the signature of a model file, which is not opened.
    Raises EncoderUnavailableError if there is none, or it is no regular file, empty or too large."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise EncoderUnavailableError(f"there is no model file {path.name!r}") from error
    if not stat.S_ISREG(status.st_mode):
        raise EncoderUnavailableError(f"{path.name!r} is no regular file")
    if not 0 < status.st_size <= MAX_BYTES:
        raise unusable(path, f"has {status.st_size} bytes, expected 1 to {MAX_BYTES}")
    return _signature(status)


def hash_of(path: Path, signature: Signature) -> str:
    """Return the SHA-256 of a model file; raises EncoderUnavailableError unless it has the signature from
    beginning to end."""
    digest = hashlib.sha256()
    try:
        # What became a pipe or a device since must not be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
            size = 0
            while _signature(os.fstat(file.fileno())) == signature:
                step = file.read(_STEP_BYTES)
                if not step:
                    break
                size += len(step)
                digest.update(step)
            if size != signature.size or _signature(os.fstat(file.fileno())) != signature:
                raise unusable(path, "is being replaced")
    except OSError as error:
        raise unusable(path, f"cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def unusable(path: Path, reason: str) -> EncoderUnavailableError:
    """Return the error of a model file that cannot be used."""
    return EncoderUnavailableError(f"the model file {path.name!r} {reason}")


def _signature(status: os.stat_result) -> Signature:
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


MOST_LOADED = 8
"""Models held in memory, whatever the number of collections; the one used least recently goes first."""
_STABLE_SECONDS = 1.0
"""A file not written to for this long is complete; the background check hashes no younger one."""
T = TypeVar("T")


class LoadedFiles(Generic[T]):
    """Loads models and keeps the last few; encoders of the same file share one.
    `load` raises EncoderUnavailableError."""

    # A file is hashed once, and again when its times, size or inode change. Additional files in which a model
    # stores data are not hashed. Health checks never wait for a file: they report what the last background
    # check found, which looks at one file at a time.

    def __init__(self, load: Callable[[Path], T], most: int = MOST_LOADED) -> None:
        self._load = load
        self._most = most
        self._loaded: OrderedDict[str, T] = OrderedDict()
        self._hashes: dict[Path, tuple[Signature, str]] = {}
        self._faults: dict[tuple[Path, str | None], str | None] = {}
        """What the last check of a file and its required hash found wrong; None if nothing."""
        self._being_checked: set[tuple[Path, str | None]] = set()
        self._one_check_at_a_time = threading.Lock()
        self._locks: WeakValueDictionary[Path, threading.Lock] = WeakValueDictionary()
        self._guard = threading.Lock()

    def sha256(self, path: Path) -> str:
        """Return the hash of a model file as it is now; raises EncoderUnavailableError if there is none."""
        with self._lock_of(path):
            return self._hash(path)[1]

    def get(self, path: Path, sha256: str | None) -> T:
        """Return a loaded model of this hash (None: any), even if its file has changed since."""
        # Raises EncoderUnavailableError if it is missing, damaged or has a different hash, or an extra is not
        # installed.
        loaded = self._get_loaded(sha256)
        if loaded is not None:
            return loaded
        with self._lock_of(path):
            signature, digest = self._hash(path)
            require(path, sha256, digest)
            model = self._get_loaded(digest)
            if model is None:
                model = self._load(path)
            if signature_of(path) != signature:
                raise unusable(path, "is being replaced")
        with self._guard:
            self._loaded[digest] = model
            while len(self._loaded) > self._most:
                self._loaded.popitem(last=False)
        return model

    def fault(self, path: Path, sha256: str | None) -> str | None:
        """Return what was wrong with a model file when it was last looked at (None: nothing yet), and have it
        looked at again. Returns immediately, and touches no file."""
        # The model is loaded while there is room for it.
        key = path, sha256
        with self._guard:
            if key not in self._being_checked:
                with contextlib.suppress(RuntimeError):  # no thread can be started: the next call tries again
                    threading.Thread(target=self._look, args=key, name="look-at-model", daemon=True).start()
                    self._being_checked.add(key)
            return self._faults.get(key)

    def has_room(self) -> bool:
        """Return whether one more model can be held without letting go of another."""
        return len(self._loaded) < self._most

    def _look(self, path: Path, sha256: str | None) -> None:
        key = path, sha256
        try:
            fault = self._find_fault(path, sha256)
            with self._guard:
                self._faults[key] = fault
        finally:
            with self._guard:
                self._being_checked.discard(key)

    def _find_fault(self, path: Path, sha256: str | None) -> str | None:
        try:
            self._wait_until_stable(path)
            with self._one_check_at_a_time:
                require(path, sha256, self.sha256(path))
                if sha256 is None or self.has_room():
                    self.get(path, sha256)
        except EncoderUnavailableError as error:
            return str(error)
        return None

    def _wait_until_stable(self, path: Path) -> None:
        """Wait a moment where a file that is to be hashed has just changed; refuse one that is changing."""
        signature, cached = signature_of(path), self._hashes.get(path)
        if cached is not None and cached[0] == signature:
            return
        age = time.time() - max(signature.written_ns, signature.changed_ns) / 1e9
        if age < _STABLE_SECONDS:  # also where the clock of the disk is ahead
            time.sleep(_STABLE_SECONDS)
            if signature_of(path) != signature:
                raise unusable(path, "is being replaced")

    def _get_loaded(self, sha256: str | None) -> T | None:
        with self._guard:
            model = self._loaded.get(sha256 or "")
            if model is not None and sha256 is not None:
                self._loaded.move_to_end(sha256)
        return model

    def _lock_of(self, path: Path) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(path, threading.Lock())

    def _hash(self, path: Path) -> tuple[Signature, str]:
        signature = signature_of(path)
        cached = self._hashes.get(path)
        if cached is None or cached[0] != signature:
            cached = self._hashes[path] = signature, hash_of(path, signature)
        return cached


def require(path: Path, expected: str | None, actual: str) -> None:
    """Refuse another model than the expected one; raises EncoderUnavailableError."""
    if expected is not None and actual != expected:
        sums = f"its SHA-256 is {actual}, not {expected}"
        raise unusable(path, f"is not the one that the collection was made with: {sums}")


class ModelFile(Generic[T]):
    """A file of the server that an encoder's options name: ``path``, and its ``sha256`` (any file when
    absent), or both with a prefix. Methods raise EncoderUnavailableError."""

    def __init__(
        self,
        loaded: LoadedFiles[T],
        options: Mapping[str, Any],
        prefix: str = "",
        *,
        called: str = "the file",  # for messages
    ) -> None:
        self._loaded, self._prefix, self._called = loaded, prefix, called
        self.path = Path(str(options.get(f"{prefix}path", "")))
        self._sha256: str | None = options.get(f"{prefix}sha256")

    def get(self) -> T:
        """Return what the file holds."""
        return self._loaded.get(self.path, self._sha256)

    def fault(self) -> str | None:
        """Return what `LoadedFiles.fault` does."""
        return self._loaded.fault(self.path, self._sha256)

    def find_hash(self) -> dict[str, str]:
        """Return the option of its hash: the one that it has to have, or else the one that it has."""
        return {f"{self._prefix}sha256": self._sha256 or self._loaded.sha256(self.path)}

    def settle(self) -> dict[str, str]:
        """Return the same of a file that works; raises InvalidFieldError, which names the option."""
        try:
            sha256 = self._loaded.sha256(self.path)
            self._loaded.get(self.path, sha256)
        except EncoderUnavailableError as error:
            raise InvalidFieldError(f"encoder.{self._prefix}path", str(error)) from error
        if self._sha256 not in (None, sha256):
            raise InvalidFieldError(f"encoder.{self._prefix}sha256", f"{self._called} has {sha256}")
        return {f"{self._prefix}sha256": sha256}

    def state(self) -> dict[str, str]:
        """Return the option of the hash that it has to have, if there is one."""
        return {} if self._sha256 is None else {f"{self._prefix}sha256": self._sha256}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the hash of a state."""
        self._sha256 = state.get(f"{self._prefix}sha256", self._sha256)


class FileEncoder(BaseEncoder):
    """An encoder of one model file or several."""

    files: Sequence[ModelFile[Any]]

    @override
    def settled_options(self) -> dict[str, Any]:
        return {name: sha256 for file in self.files for name, sha256 in file.settle().items()}

    @override
    def state(self) -> dict[str, Any]:
        return {name: sha256 for file in self.files for name, sha256 in file.state().items()}

    @override
    def restore(self, state: Mapping[str, Any]) -> Self:
        for file in self.files:
            file.restore(state)
        return self

    @override
    def fault(self) -> str | None:
        return "; ".join(filter(None, (file.fault() for file in self.files))) or None


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A loaded model; its `runtime`, an onnxruntime.InferenceSession, may be shared by threads."""

    runtime: Any
    input_name: str  # of its first input
    outputs: tuple[str, ...]


class OnnxEncoder(FileEncoder):
    """An encoder of an ONNX model, perhaps with other files; a subclass tries it with some content."""

    _model: ModelFile[Session]
    _output: str | None  # name of an output; None: the first

    @abstractmethod
    def _try(self) -> Matrix:
        """Return the features of some content."""

    @contextlib.contextmanager
    def _running(self, what: str) -> Iterator[None]:
        """Have errors of the model, which runs in the block, say that it does not take such content."""
        try:
            yield
        except EncoderUnavailableError:
            raise
        except Exception as error:  # onnxruntime's have no base class; the output may be no array of numbers
            path = self._model.path
            reason = without_folder(error, path)
            raise EncoderUnavailableError(f"{path.name} does not take {what}: {reason}") from error

    @override
    def settled_options(self) -> dict[str, Any]:
        settled, outputs = super().settled_options(), self._model.get().outputs
        if self._output is not None and self._output not in outputs:
            there = join_words(map(repr, outputs), "and")
            raise InvalidFieldError("encoder.output", f"the model has {there}, not {self._output!r}")
        try:
            features = self._try()
        except (EncoderUnavailableError, InvalidFieldError) as error:
            raise InvalidFieldError("encoder", str(error)) from error
        if features.size == 0 or not np.isfinite(features).all():
            raise InvalidFieldError("encoder", f"{self._model.path.name} gives no finite features")
        return settled


def load_session(path: Path) -> Session:
    """Return the model of a file; raises EncoderUnavailableError if it holds none."""
    onnxruntime = import_extra("onnxruntime", "onnx")
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


def without_folder(error: Exception, path: Path) -> str:
    """Return the first line of an error, with no path of this machine in it."""
    return str(error).replace(str(path), path.name).strip().partition("\n")[0][:300]
