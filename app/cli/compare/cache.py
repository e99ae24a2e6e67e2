"""Cache of outcomes and features on disk, so that an interrupted comparison can be resumed."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from solver.comparison import CellOutcome

_Arrays = dict[str, npt.NDArray[Any]]
_Value = TypeVar("_Value")

_SCALARS = "facts"  # name of the member that holds all fields that are not arrays, as JSON
_logger = logging.getLogger(__name__)


class FileCache:
    """One .npz file (no pickle) for each outcome or set of features, put in place by renaming."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> CellOutcome | None:
        """Return the outcome stored under a key; None if there is none, or it is damaged."""
        return self._read(key, _outcome)

    def save(self, key: str, outcome: CellOutcome) -> None:
        values = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        scalars = {name: value for name, value in values.items() if name not in arrays}
        self.store(key, {**arrays, _SCALARS: np.asarray(json.dumps(scalars, default=_as_number))})

    def store(self, key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{key}.{secrets.token_hex(4)}"
        try:
            with temporary.open("wb") as stream:
                np.savez(stream, **dict(arrays))  # type: ignore[arg-type] # the stubs take them for allow_pickle
            os.replace(temporary, self._folder / f"{key}.npz")
        finally:
            temporary.unlink(missing_ok=True)

    def get_or_compute(self, key: str, compute: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the array stored under a key; compute and store it if there is none."""
        stored = self._read(key, lambda arrays: arrays["array"])
        if stored is not None:
            return stored
        array = compute()
        self.store(key, {"array": array})
        return array

    def _read(self, key: str, decode: Callable[[_Arrays], _Value]) -> _Value | None:
        path = self._folder / f"{key}.npz"
        if not path.is_file():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                return decode({name: archive[name] for name in archive.files})
        # Damaged bytes raise nearly anything in the decoders: NotImplementedError, RuntimeError, KeyError,
        # OSError, TypeError and more. None of them matters: whatever is stored here can be computed again.
        except Exception as error:
            _logger.warning("%s is damaged and will be computed again: %s", path.name, error)
            return None


def _outcome(arrays: _Arrays) -> CellOutcome:
    values: dict[str, Any] = {**json.loads(str(arrays.pop(_SCALARS))), **arrays}
    values["n_features"], values["notes"] = tuple(values["n_features"]), tuple(values["notes"])
    outcome = CellOutcome(**values)
    for name in ("x_test", "z_test", "singular_values"):
        if not isinstance(getattr(outcome, name), np.ndarray):
            raise TypeError(f"{name} is no array")
    return outcome


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored")
