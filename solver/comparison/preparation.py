"""Scaling and PCA, learned from the rows that are fitted and nothing else; shared by all methods."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA

from solver.baselines import CentredBasis
from solver.datasets import PairedFeatures
from solver.evaluation.splits import stratified_folds
from solver.linalg.matrices import FloatArray
from solver.scaling.estimator import FeatureScaler
from solver.supervision.labels import Labels

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(slots=True)
class BoundedCache(Generic[Key, Value]):
    """Computed values by key, of at most `max_bytes`; the value last asked for stays in any case."""

    max_bytes: int
    size_of: Callable[[Value], int]
    _values: dict[Key, Value] = field(default_factory=dict)

    def get(self, key: Key, compute: Callable[[], Value]) -> Value:
        """Return the value of a key, computed if it is not there."""
        value = self._values.pop(key) if key in self._values else compute()
        self._values[key] = value  # last in the dict: the most recently used
        n_bytes = sum(map(self.size_of, self._values.values()))
        while n_bytes > self.max_bytes and len(self._values) > 1:
            n_bytes -= self.size_of(self._values.pop(next(iter(self._values))))
        return value


PCA_ENERGY = 0.99  # share of the variance that the principal components keep
_MAX_FEATURE_BYTES = 1 << 29  # 512 MiB for each process, of which a comparison runs one a core
_MAX_BASIS_BYTES = 2 * _MAX_FEATURE_BYTES  # a basis is float64, where prepared features are float32


class FeaturePreparation:
    """A `FeatureScaler`, followed on demand by PCA that keeps 99 % of the energy."""

    def __init__(self, scaling: str, pca: bool) -> None:
        self._scaler = FeatureScaler(scaling)
        self._with_pca = pca
        self._pca: Any = None

    def fit(self, samples: FloatArray) -> Self:
        self._scaler.fit(samples)
        if self._with_pca:
            scaled = self._scaler.transform(samples).astype(np.float64)
            is_tall = scaled.shape[0] >= scaled.shape[1]
            self._pca = PCA(PCA_ENERGY, svd_solver="covariance_eigh" if is_tall else "full").fit(scaled)
        return self

    def transform(self, samples: FloatArray) -> FloatArray:
        scaled: FloatArray = self._scaler.transform(samples)
        if self._pca is None:
            return scaled
        components: FloatArray = self._pca.transform(scaled.astype(np.float64)).astype(np.float32)
        return components


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows of the whole set to fit, and rows to score the fit on."""

    fitting: npt.NDArray[np.intp]
    scoring: npt.NDArray[np.intp]


FeatureKey = tuple[Split, str, str, bool]
"""Split (the very object), modality, scaling, and whether PCA follows."""
PreparedPair = tuple[FloatArray, FloatArray]  # one modality's prepared rows to fit and to score


class PreparedSplits:
    """A set's cross-validation folds inside the training split, and its final one, training against test.
    Features are prepared once for all methods."""

    def __init__(
        self, data: PairedFeatures, n_folds: int, seed: int, max_feature_bytes: int = _MAX_FEATURE_BYTES
    ) -> None:
        """Deal the training rows to folds, class by class; the two rows of a pair stay together.
        `max_feature_bytes` bounds the prepared features that are held for the next method."""
        training, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
        rng = np.random.default_rng(seed)
        scoring = [
            rng.permutation(training[rows]) for rows in stratified_folds(data.labels[training], n_folds, rng)
        ]
        self.data = data
        self.folds = [Split(np.setdiff1d(training, rows), rows) for rows in scoring]
        self.final = Split(training, test)
        self._features = BoundedCache[FeatureKey, PreparedPair](
            max_feature_bytes, lambda arrays: sum(array.nbytes for array in arrays)
        )
        self._bases = BoundedCache[FeatureKey, CentredBasis](_MAX_BASIS_BYTES, lambda basis: basis.n_bytes)

    def features(self, split: Split, modality: str, scaling: str, pca: bool) -> PreparedPair:
        """Return one modality's prepared rows to fit and rows to score."""

        def prepare() -> PreparedPair:
            samples = self.data.X if modality == "x" else self.data.Z
            fitting, scoring = samples[split.fitting], samples[split.scoring]
            preparation = FeaturePreparation(scaling, pca).fit(fitting)
            return preparation.transform(fitting), preparation.transform(scoring)

        return self._features.get((split, modality, scaling, pca), prepare)

    def basis(self, split: Split, modality: str, scaling: str, pca: bool) -> CentredBasis:
        """Return the centred basis of the rows to fit that `features` prepares."""

        def compute() -> CentredBasis:
            return CentredBasis.of(self.features(split, modality, scaling, pca)[0], modality.upper())

        return self._bases.get((split, modality, scaling, pca), compute)

    def usable_scalings(self, modality: str, scalings: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of scaling that suit a modality's training rows: no root of negative features."""
        samples = self.data.X if modality == "x" else self.data.Z
        is_negative = bool((samples[self.final.fitting] < 0).any())
        return tuple(kind for kind in scalings if kind != "sqrt" or not is_negative)

    def supervision(self, split: Split) -> Labels:
        return Labels(self.data.labels[split.fitting])
