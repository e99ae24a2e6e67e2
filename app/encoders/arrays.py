"""Arrays within the state of an encoder, which is JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_DTYPE = np.dtype("<f4")


def pack_array(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return an array as JSON values, in single precision."""
    content = np.ascontiguousarray(values, _DTYPE).tobytes()
    return {"shape": list(values.shape), "float32": base64.b64encode(content).decode()}


def unpack_array(packed: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """Return the array that `pack_array` packed."""
    content = base64.b64decode(packed["float32"], validate=True)
    return np.frombuffer(content, _DTYPE).astype(np.float32).reshape(packed["shape"])
