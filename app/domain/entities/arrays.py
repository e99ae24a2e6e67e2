"""Types of arrays, and how a vector is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

Matrix = npt.NDArray[np.float32]

Features = Any
"""An (n, dim) float32 array, dense or sparse by rows (`scipy.sparse.csr_array`)."""


def vector_bytes(vector: Vector) -> bytes:
    """Return a vector as it is stored: little-endian float32, on every machine."""
    return vector.astype("<f4", copy=False).tobytes()


def vector_of(stored: bytes) -> Vector:
    """Return the vector that `vector_bytes` made bytes of."""
    return np.frombuffer(stored, dtype="<f4").astype(np.float32, copy=False)
