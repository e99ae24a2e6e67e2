"""Saving a fitted model: one safetensors file of arrays and one JSON text of facts, no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from solver.errors import ArtifactError
from solver.linalg import FloatArray
from solver.pipeline import Projector

_ARRAYS = "model.safetensors"
_FACTS = "model.json"
_FORMAT = 1


def save_projector(projector: Projector, directory: Path, facts: dict[str, Any]) -> None:
    """Write a projector into an existing folder.

    Parameters
    ----------
    projector : Projector
        Two affine maps into one space.
    directory : Path
        Gets ``model.safetensors`` and ``model.json``.
    facts : dict
        JSON-serialisable description of how it was learned.
    """
    arrays = {name: np.ascontiguousarray(value) for name, value in projector.arrays().items()}
    save_file(arrays, directory / _ARRAYS)
    header = {"format": _FORMAT, "x_scaling": projector.x_scaling, "z_scaling": projector.z_scaling}
    text = json.dumps({**header, "facts": facts}, indent=2, allow_nan=False)
    (directory / _FACTS).write_text(text + "\n", encoding="utf-8")


def load_projector(directory: Path) -> tuple[Projector, dict[str, Any]]:
    """Read what `save_projector` wrote.

    Parameters
    ----------
    directory : Path
        Folder with the two files.

    Returns
    -------
    projector : Projector
        The two maps.
    facts : dict
        As given when it was saved.

    Raises
    ------
    ArtifactError
        If a file is missing, damaged or of another format.
    """
    try:
        arrays: dict[str, FloatArray] = load_file(directory / _ARRAYS)
        header = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
        if header["format"] != _FORMAT:
            raise ArtifactError(f"{directory / _FACTS}: format {header['format']!r}, expected {_FORMAT}")
        projector = Projector.from_arrays(arrays, header["x_scaling"], header["z_scaling"])
        return projector, header["facts"]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ArtifactError(f"no readable model in {directory}: {error}") from error
