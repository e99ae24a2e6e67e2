"""Types of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]

Matrix = npt.NDArray[np.float32]

Features = Any
"""An (n, dim) float32 array, dense or sparse by rows (`scipy.sparse.csr_array`)."""
