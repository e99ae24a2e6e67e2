"""One cell of a comparison: one method, on one set, with or without PCA; tuned, fitted, projected.
A cell's outcome holds the projected test split, from which every figure can be computed again; it is stored
under a key that changes with the data, the method's grid, the options and the code."""

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
from solver.comparison.tuning import PreparedSplits, tune
from solver.datasets import PairedFeatures
from solver.linalg.matrices import FloatArray
from solver.threads import single_threaded_blas

_LIBRARIES = ("numpy", "scipy", "scikit-learn")


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One entry of the table: a method on a set (and its `fingerprint`), with PCA after scaling or without.
    Folds of the cross-validation are drawn by the seed."""

    data: PairedFeatures
    data_key: str
    method: Method
    pca: bool
    n_folds: int
    seed: int

    @property
    def key(self) -> str:
        """Hash of everything that the outcome depends on."""
        inputs = {
            "data": self.data_key,
            "method": self.method.name,
            "grid": repr((self.method.grid, self.method.scalings, sorted(self.method.fixed.items()))),
            "pca": self.pca,
            "n_folds": self.n_folds,
            "seed": self.seed,
            "code": code_version(),
            "own_code": [
                _source(definition)
                for definition in (*self.method.estimator.__mro__, self.method.walk)
                if definition is not None
            ],
        }
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class CellOutcome:
    """Result of a cell.

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
        Candidates that were scored.
    n_features : tuple of int
        Features of both modalities as they reach the method.
    tune_seconds, fit_seconds : float
        On one core: the whole search, without what an earlier method in the same process had prepared, and
        the final fit alone (without scaling and PCA).
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
    """Storage of outcomes, so that an interrupted comparison can be resumed."""

    def load(self, key: str) -> CellOutcome | None:
        """Return the outcome stored under a key, or None."""

    def save(self, key: str, outcome: CellOutcome) -> None:
        """Store an outcome under a key."""


@dataclass(slots=True)
class CellRunner:
    """Computes cells one after the other; the next cell of the same set reuses its prepared features."""

    _splits: PreparedSplits | None = None
    _key: tuple[str, int, int] | None = None

    def run(self, cell: Cell) -> CellOutcome:
        """Tune on the training split, fit on all of it, and project the test split once, on one core.
        InvalidInputError if the method cannot be fitted with any scaling."""
        splits = self._prepared_splits(cell)
        with single_threaded_blas():
            start = time.perf_counter()
            choice = tune(splits, cell.method, cell.pca)
            tune_seconds = time.perf_counter() - start
            final = splits.final
            X, x_test = splits.features(final, "x", choice.x_scaling, cell.pca)
            Z, z_test = splits.features(final, "z", choice.z_scaling, cell.pca)
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = cell.method.fit(X, Z, splits.supervision(final), choice.parameters)
            fit_seconds = time.perf_counter() - start
            singular_values = getattr(fitted, "singular_values_", ()) if cell.method.has_matrix else ()
            return CellOutcome(
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
                singular_values=np.asarray(singular_values, np.float64),
            )

    def _prepared_splits(self, cell: Cell) -> PreparedSplits:
        key = cell.data_key, cell.n_folds, cell.seed
        if self._splits is None or key != self._key:
            self._splits, self._key = PreparedSplits(cell.data, cell.n_folds, cell.seed), key
        return self._splits


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
def _source(definition: Any) -> str:
    """Return the qualified name of a class or function, and its source where that is available."""
    name = f"{definition.__module__}.{definition.__qualname__}"
    try:
        return f"{name}\n{inspect.getsource(definition)}"
    except (OSError, TypeError):  # built in, or typed at a prompt
        return name


def cells(
    data: PairedFeatures, methods: Iterable[Method], pca: Iterable[bool], n_folds: int, seed: int
) -> list[Cell]:
    """Return the cells of one set."""
    key = fingerprint(data)
    return [Cell(data, key, method, with_pca, n_folds, seed) for method in methods for with_pca in pca]
