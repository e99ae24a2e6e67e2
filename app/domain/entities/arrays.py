"""Types of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]


Matrix = npt.NDArray[np.float32]
