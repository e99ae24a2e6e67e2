"""Saving a fit and resuming it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from solver.linalg.matrices import LowRankMatrix
from solver.optimisation.convergence import Memory
from solver.optimisation.descent import RESUMED, DescentState
from solver.validation.errors import ArtifactError

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
                _rename(facts, _EARLIER_NAMES)
                _rename(facts["memory"], _EARLIER_NAMES)
                M = LowRankMatrix(*(file.get_tensor(name) for name in ("U", "s", "V")))
            return cls(_check(M), **_numbers(facts, cls), memory=Memory(**_numbers(facts["memory"], Memory)))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path} is not a checkpoint of a fit: {error}") from error


def _rename(facts: dict[str, Any], names: dict[str, str]) -> None:
    for earlier, name in names.items():
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
