"""A fit's state as a value that can be kept, written to a file, and gone on from."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from solver.errors import ArtifactError
from solver.linalg.matrices import LowRankMatrix
from solver.optimisation.convergence import Memory
from solver.optimisation.descent import DescentState


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Everything that a fit needs to go on as if it had not been interrupted.

    Parameters
    ----------
    M : LowRankMatrix
        Iterate, in the basis of the prepared problem.
    fingerprint : float
        Of the prepared problem: tells whether the samples are the same.
    iteration : int
        Steps taken so far.
    stage_alpha, step_size, gradient_target : float
        See `solver.optimisation.descent.DescentState`.
    is_subsampled : bool
        See there, too.
    memory : Memory
        What the monitor remembered.
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
        """Keep what cannot be computed anew."""
        return cls(
            state.M,
            fingerprint,
            state.iteration,
            state.stage_alpha,
            state.step_size,
            state.gradient_target,
            state.is_subsampled,
            memory,
        )

    def save(self, path: str | Path) -> None:
        """Write the checkpoint to a file, which appears whole or not at all.

        Parameters
        ----------
        path : path-like
            The file; replaced when it exists.

        Raises
        ------
        OSError
            If it cannot be written, such as for lack of space.
        """
        path = Path(path)
        facts = {name: value for name, value in asdict(self).items() if name != "M"}
        arrays = {"U": self.M.U, "s": self.M.s, "V": self.M.V}
        partial = path.with_name(f".{path.name}.partial")
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        partial.write_bytes(save(contiguous, {"facts": json.dumps(facts)}))
        partial.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a checkpoint.

        Parameters
        ----------
        path : path-like
            A file written by `save`.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged or something else.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                facts: dict[str, Any] = json.loads((file.metadata() or {})["facts"])
                if "is_sketched" in facts:  # its name in files of earlier versions
                    facts["is_subsampled"] = facts.pop("is_sketched")
                M = LowRankMatrix(*(file.get_tensor(name) for name in ("U", "s", "V")))
            return cls(
                _checked(M), **_numbers(facts, cls), memory=Memory(**_numbers(facts["memory"], Memory))
            )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{path} is not a checkpoint of a fit: {error}") from error


def _checked(M: LowRankMatrix) -> LowRankMatrix:
    """Raise ValueError unless the three arrays fit together."""
    arrays = (M.U, M.s, M.V)
    if [array.ndim for array in arrays] != [2, 1, 2] or len({array.shape[-1] for array in arrays}) != 1:
        raise ValueError(f"arrays of shapes {[array.shape for array in arrays]}")
    if {array.dtype for array in arrays} not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        raise ValueError(f"arrays of types {[array.dtype.name for array in arrays]}")
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("NaN or infinity in an array")
    return M


def _numbers(facts: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Return the plain numbers among the fields of a dataclass."""
    casts = {"int": int, "float": float, "bool": bool}
    return {each.name: casts[each.type](facts[each.name]) for each in fields(kind) if each.type in casts}
