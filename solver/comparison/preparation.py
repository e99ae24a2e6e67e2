"""Scaling and PCA, learned on the rows that are fitted and on nothing else; shared by all methods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA

from solver.baselines import BasisMemo
from solver.datasets import PairedFeatures
from solver.evaluation.splits import stratified_folds
from solver.feature_scaler import FeatureScaler
from solver.linalg.matrices import FloatArray
from solver.supervision.labels import Labels

PCA_ENERGY = 0.99
MODALITIES = ("x", "z")
_MOST_KEPT_BYTES = 1 << 29


class Preparation:
    """A `FeatureScaler`, then PCA that keeps 99 % of the energy where it is asked for.

    Parameters
    ----------
    scaling : str
        Kind of `FeatureScaler`.
    pca : bool
        Whether principal components follow.
    """

    def __init__(self, scaling: str, pca: bool) -> None:
        self._scaler = FeatureScaler(scaling)
        self._with_pca = pca
        self._pca: Any = None

    def fit(self, samples: FloatArray) -> Self:
        """Learn scale and components."""
        self._scaler.fit(samples)
        if self._with_pca:
            scaled = self._scaler.transform(samples).astype(np.float64)
            is_tall = scaled.shape[0] >= scaled.shape[1]
            self._pca = PCA(PCA_ENERGY, svd_solver="covariance_eigh" if is_tall else "full").fit(scaled)
        return self

    def transform(self, samples: FloatArray) -> FloatArray:
        """Return float32 features."""
        scaled: FloatArray = self._scaler.transform(samples)
        if self._pca is None:
            return scaled
        components: FloatArray = self._pca.transform(scaled.astype(np.float64)).astype(np.float32)
        return components


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Rows to fit, rows to judge by.

    Parameters
    ----------
    fitting, judging : ndarray of int
        Rows of the whole set.
    """

    fitting: npt.NDArray[np.intp]
    judging: npt.NDArray[np.intp]


@dataclass(slots=True)
class Parts:
    """A set's cross-validation folds and its final split, with prepared features kept for the next method.

    Of those no more are kept here than fit into `most_kept_bytes`; what was not used for longest goes first.
    `bases` keeps the samples of its own, within a bound of its own.

    Parameters
    ----------
    data : PairedFeatures
        The set.
    folds : list of Part
        Inside the training split.
    final : Part
        Training split, test split.
    most_kept_bytes : int
        Of prepared features; those last asked for are kept in any case.
    bases : BasisMemo
        Their bases, for the methods that need them.
    """

    data: PairedFeatures
    folds: list[Part]
    final: Part
    most_kept_bytes: int = _MOST_KEPT_BYTES
    bases: BasisMemo = field(default_factory=lambda: BasisMemo(2 * _MOST_KEPT_BYTES))
    _prepared: dict[tuple[int, str, str, bool], tuple[FloatArray, FloatArray]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: PairedFeatures, n_folds: int, seed: int) -> Self:
        """Deal the training rows to folds, class by class; the two rows of a pair stay together."""
        training, test = np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)
        rng = np.random.default_rng(seed)
        held = [
            rng.permutation(training[part]) for part in stratified_folds(data.labels[training], n_folds, rng)
        ]
        folds = [Part(np.setdiff1d(training, part), part) for part in held]
        return cls(data, folds, Part(training, test))

    def features(self, part: Part, modality: str, scaling: str, pca: bool) -> tuple[FloatArray, FloatArray]:
        """Return one modality's prepared rows to fit and rows to judge by."""
        key = id(part), modality, scaling, pca
        found = self._prepared.pop(key, None)
        if found is None:
            samples = self.data.X if modality == "x" else self.data.Z
            preparation = Preparation(scaling, pca).fit(samples[part.fitting])
            found = preparation.transform(samples[part.fitting]), preparation.transform(samples[part.judging])
        self._prepared[key] = found  # the last, as the latest used
        n_bytes = sum(array.nbytes for pair in self._prepared.values() for array in pair)
        while n_bytes > self.most_kept_bytes and len(self._prepared) > 1:
            oldest = self._prepared.pop(next(iter(self._prepared)))
            n_bytes -= sum(array.nbytes for array in oldest)
        return found

    def allowed(self, modality: str, scalings: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds of scaling that fit a modality's training rows: no root of what is negative."""
        samples = self.data.X if modality == "x" else self.data.Z
        is_negative = bool((samples[self.final.fitting] < 0).any())
        return tuple(kind for kind in scalings if kind != "sqrt" or not is_negative)

    def supervision(self, part: Part) -> Labels:
        """Return the classes of the rows to fit."""
        return Labels(self.data.labels[part.fitting])
