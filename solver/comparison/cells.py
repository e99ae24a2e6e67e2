"""One cell of a comparison: one method, on one set, with or without PCA; tuned, fitted, projected.

A cell's outcome holds the projected test split, of which every figure can be made again; a store keeps it
under a key that changes with the data, the method's grid, the options and the code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from solver.comparison.methods import Method
from solver.comparison.preparation import Parts
from solver.comparison.tuning import tune
from solver.datasets import PairedFeatures
from solver.linalg.matrices import FloatArray
from solver.threads import single_threaded_blas

_LIBRARIES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """What is to be computed.

    Parameters
    ----------
    data : PairedFeatures
        The set.
    data_key : str
        `fingerprint` of it.
    method : Method
        The method.
    pca : bool
        Whether PCA follows the scaling.
    n_folds : int
        Folds of the cross-validation.
    seed : int
        Of the folds.
    """

    data: PairedFeatures
    data_key: str
    method: Method
    pca: bool
    n_folds: int
    seed: int

    @property
    def key(self) -> str:
        """What the outcome depends on, as a hash."""
        facts = {
            "data": self.data_key,
            "method": self.method.name,
            "grid": repr((self.method.grid, self.method.scalings, sorted(self.method.fixed.items()))),
            "pca": self.pca,
            "n_folds": self.n_folds,
            "seed": self.seed,
            "code": code_version(),
            "own_code": [
                _source(each)
                for each in (*self.method.estimator.__mro__, self.method.walk)
                if each is not None
            ],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came out of a cell.

    Parameters
    ----------
    method : str
        Name of the class.
    pca : bool
        With or without.
    params : dict
        Chosen scalings and parameters.
    cv_score : float
        Cross-validated MAP of the choice, inside the training split.
    n_candidates : int
        How many were tried.
    n_features : tuple of int
        Features of both modalities as they reach the method.
    tune_seconds, fit_seconds : float
        On one core: the whole search, less what an earlier method prepared in this process and left to it,
        and the final fit alone (without scaling and PCA).
    notes : tuple of str
        Warnings of the final fit.
    x_test, z_test : ndarray of shape (n_test, rank)
        The projected test split.
    singular_values : ndarray
        Of M, where the method has one; else empty.
    """

    method: str
    pca: bool
    params: dict[str, Any]
    cv_score: float
    n_candidates: int
    n_features: tuple[int, int]
    tune_seconds: float
    fit_seconds: float
    notes: tuple[str, ...]
    x_test: FloatArray
    z_test: FloatArray
    singular_values: FloatArray


class OutcomeStore(Protocol):
    """Where outcomes are kept, so that an interrupted comparison goes on."""

    def load(self, key: str) -> Outcome | None:
        """Return what is kept under a key, or None."""

    def save(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome under a key."""


def run_cell(cell: Cell) -> Outcome:
    """Tune on the training split, fit on all of it, and project the test split once."""
    parts = _parts(cell)
    with single_threaded_blas():
        began = time.perf_counter()
        choice = tune(parts, cell.method, cell.pca)
        tune_seconds = time.perf_counter() - began
        final = parts.final
        X, x_test = parts.features(final, "x", choice.x_scaling, cell.pca)
        Z, z_test = parts.features(final, "z", choice.z_scaling, cell.pca)
        began = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted = cell.method.fit(X, Z, parts.supervision(final), choice.parameters)
        fit_seconds = time.perf_counter() - began
        return Outcome(
            method=cell.method.name,
            pca=cell.pca,
            params={"x_scaling": choice.x_scaling, "z_scaling": choice.z_scaling, **choice.parameters},
            cv_score=choice.score,
            n_candidates=choice.n_candidates,
            n_features=(X.shape[1], Z.shape[1]),
            tune_seconds=tune_seconds,
            fit_seconds=fit_seconds,
            notes=tuple(dict.fromkeys(str(entry.message) for entry in caught)),
            x_test=fitted.project_x(x_test),
            z_test=fitted.project_z(z_test),
            singular_values=np.asarray(
                getattr(fitted, "singular_values_", ()) if cell.method.has_matrix else (), np.float64
            ),
        )


def fingerprint(data: PairedFeatures) -> str:
    """Return a hash of a set's features, classes and split."""
    digest = hashlib.sha256()
    for array in (data.X, data.Z, data.labels, data.is_train):
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@functools.cache
def code_version() -> str:
    """Return a hash of the library's source and of the versions it computes with."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes())
    digest.update(repr([(name, version(name)) for name in _LIBRARIES]).encode())
    return digest.hexdigest()


@functools.cache
def _source(part: Any) -> str:
    """Return where a class or function of a method is from, and its source where that can be had."""
    name = f"{part.__module__}.{part.__qualname__}"
    try:
        return f"{name}\n{inspect.getsource(part)}"
    except (OSError, TypeError):  # built in, or typed in
        return name


_kept_parts: dict[tuple[str, int, int], Parts] = {}


def _parts(cell: Cell) -> Parts:
    """Return the set's parts with all that is prepared, kept from the cell before when of the same set."""
    key = cell.data_key, cell.n_folds, cell.seed
    if key not in _kept_parts:
        _kept_parts.clear()
        _kept_parts[key] = Parts.of(cell.data, cell.n_folds, cell.seed)
    return _kept_parts[key]


def cells(
    data: PairedFeatures, methods: Iterable[Method], pca: Iterable[bool], n_folds: int, seed: int
) -> list[Cell]:
    """Return the cells of one set."""
    key = fingerprint(data)
    return [Cell(data, key, method, with_pca, n_folds, seed) for method in methods for with_pca in pca]
