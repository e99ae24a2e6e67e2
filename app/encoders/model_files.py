"""Files of models: which ones are taken, and their hash."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

from app.domain.errors import EncoderUnavailableError

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
        raise EncoderUnavailableError(
            f"the model file {path.name!r} has {status.st_size} bytes, expected 1 to {MAX_BYTES}"
        )
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
                raise being_replaced(path)
    except OSError as error:
        raise EncoderUnavailableError(
            f"the model file {path.name!r} cannot be read: {error.strerror}"
        ) from error
    return digest.hexdigest()


def being_replaced(path: Path) -> EncoderUnavailableError:
    """Return the error of a file that changes while it is looked at."""
    return EncoderUnavailableError(f"the model file {path.name!r} is being replaced")


def _signature(status: os.stat_result) -> Signature:
    return Signature(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
