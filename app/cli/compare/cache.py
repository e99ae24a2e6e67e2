"""Outcomes and features on disk, so that an interrupted comparison goes on where it was."""

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
_Kept = TypeVar("_Kept")

_FACTS = "facts"
_logger = logging.getLogger(__name__)


class FileCache:
    """One .npz file (no pickle) for each outcome or set of features; written beside, then renamed.

    Parameters
    ----------
    folder : Path
        Made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> CellOutcome | None:
        """Return the outcome kept under a key; None where there is none, or it is damaged."""
        return self._read(key, _outcome)

    def save(self, key: str, outcome: CellOutcome) -> None:
        """Keep an outcome."""
        values = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        facts = {name: value for name, value in values.items() if name not in arrays}
        self.keep(key, {**arrays, _FACTS: np.asarray(json.dumps(facts, default=_as_number))})

    def arrays(self, key: str) -> _Arrays | None:
        """Return the arrays kept under a key; None where there are none, or they are damaged."""
        return self._read(key, dict)

    def keep(self, key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep arrays under a key."""
        self._folder.mkdir(parents=True, exist_ok=True)
        beside = self._folder / f".{key}.{secrets.token_hex(4)}"
        try:
            with beside.open("wb") as stream:
                np.savez(stream, **dict(arrays))  # type: ignore[arg-type] # the stubs take them for allow_pickle
            os.replace(beside, self._folder / f"{key}.npz")
        finally:
            beside.unlink(missing_ok=True)

    def made_once(self, key: str, make: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return one array: the kept one, or what `make` returns, which is then kept."""
        kept = self._read(key, lambda arrays: arrays["array"])
        if kept is not None:
            return kept
        array = make()
        self.keep(key, {"array": array})
        return array

    def _read(self, key: str, decode: Callable[[_Arrays], _Kept]) -> _Kept | None:
        path = self._folder / f"{key}.npz"
        if not path.is_file():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                return decode({name: archive[name] for name in archive.files})
        # Damaged bytes raise nearly anything in the decoders: NotImplementedError, RuntimeError, KeyError,
        # OSError, TypeError and more. Whatever it is, what is kept can be made again.
        except Exception as error:
            _logger.warning("%s is damaged and made again: %s", path.name, error)
            return None


def _outcome(arrays: _Arrays) -> CellOutcome:
    values: dict[str, Any] = {**json.loads(str(arrays.pop(_FACTS))), **arrays}
    values["n_features"], values["notes"] = tuple(values["n_features"]), tuple(values["notes"])
    outcome = CellOutcome(**values)
    for name in ("x_test", "z_test", "singular_values"):
        if not isinstance(getattr(outcome, name), np.ndarray):
            raise TypeError(f"{name} is no array")
    return outcome


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be kept")
