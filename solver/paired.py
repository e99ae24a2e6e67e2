"""Pairs of samples as one input, for the grid searches and cross-validations of scikit-learn."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone

from solver.base import CrossModalEstimator, EstimatorNotFittedError
from solver.linalg.matrices import FloatArray, is_sparse
from solver.supervision.base import Supervision
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.validation.errors import InvalidInputError


class PairedSamples:
    """Rows of two modalities that belong together, to be split together.

    Parameters
    ----------
    X : array-like, sparse array or pandas.DataFrame of shape (n_pairs, n_features_x)
        Samples of the first modality.
    Z : array-like, sparse array or pandas.DataFrame of shape (n_pairs, n_features_z)
        Their partners, row by row.

    Raises
    ------
    InvalidInputError
        If the two differ in their number of rows, or one is not two-dimensional.

    Examples
    --------
    >>> pairs = PairedSamples([[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]])
    >>> pairs.shape, pairs[[1]].Z.tolist()
    ((2, 3), [[2.0]])
    """

    def __init__(self, X: Any, Z: Any) -> None:
        self.X, self.Z = (side if _has_rows(side) else np.asarray(side) for side in (X, Z))
        for name, side in (("X", self.X), ("Z", self.Z)):
            if len(side.shape) != 2:
                raise InvalidInputError(f"{name} must be of shape (n_pairs, n_features), got {side.shape}")
        if self.X.shape[0] != self.Z.shape[0]:
            raise InvalidInputError(
                f"X has {self.X.shape[0]} rows and Z has {self.Z.shape[0]}: each needs its partner"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of pairs, and of the features of both samples together."""
        return self.X.shape[0], self.X.shape[1] + self.Z.shape[1]

    def __len__(self) -> int:
        """Return the number of pairs."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> PairedSamples:
        """Return some of the pairs, by row numbers, a mask or a slice."""
        if isinstance(rows, tuple):  # NumPy's way to say "these rows, and all columns"
            rows = rows[0]
        return PairedSamples(_take(self.X, rows), _take(self.Z, rows))


class PairedEstimator(MetaEstimatorMixin, BaseEstimator):
    """An estimator that takes both modalities as one input, for `sklearn.model_selection`.

    Parameters
    ----------
    estimator : CrossModalEstimator
        What learns; its parameters are ``estimator__alpha`` and so on.
    objective : str, mapping or None
        What `score` measures, as of `CrossModalEstimator.score`.

    Attributes
    ----------
    estimator_ : CrossModalEstimator
        The fitted copy.
    n_features_in_ : int
        Number of features of both modalities together.
    x_feature_names_in_, z_feature_names_in_ : ndarray of str
        Names of the columns of either side; only where it was a data frame.
    feature_names_in_ : ndarray of str
        Both, those of `X` before those of `Z`; only where both were data frames.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from solver import LowRankBilinear, make_low_rank_pairs
    >>> data = make_low_rank_pairs(n_samples_x=40, n_samples_z=40, random_state=0)
    >>> by_class = data.x_labels.argsort(), data.z_labels.argsort()  # of equal classes in each row
    >>> pairs = PairedSamples(data.X[by_class[0]], data.Z[by_class[1]])
    >>> grid = {"estimator__alpha_fraction": [0.9, 0.1]}
    >>> search = GridSearchCV(PairedEstimator(LowRankBilinear()), grid, cv=2)
    >>> search.fit(pairs, data.x_labels[by_class[0]]).best_params_
    {'estimator__alpha_fraction': 0.1}
    """

    def __init__(self, estimator: CrossModalEstimator, objective: Any = None) -> None:
        self.estimator = estimator
        self.objective = objective

    def fit(self, samples: PairedSamples, y: npt.ArrayLike | None = None) -> Self:
        """Fit a copy of the estimator.

        Parameters
        ----------
        samples : PairedSamples
            What to learn from.
        y : array-like of shape (n_pairs,) or (n_pairs, n_classes), optional
            A class of each pair, or 0/1 indicators of several; without it only partners are similar.

        Raises
        ------
        InvalidInputError, SupervisionError
            As of the estimator, or if `samples` are not `PairedSamples`.
        """
        _check_samples(samples)
        self.estimator_ = clone(self.estimator).fit(samples.X, samples.Z, _supervision(samples, y))
        self.n_features_in_ = samples.shape[1]
        left, right = _feature_names(samples.X), _feature_names(samples.Z)
        self._remember("x_feature_names_in_", left)
        self._remember("z_feature_names_in_", right)
        both = None if left is None or right is None else np.concatenate([left, right])
        self._remember("feature_names_in_", both)
        return self

    def score(self, samples: PairedSamples, y: npt.ArrayLike | None = None) -> float:
        """Return how good the rankings of both directions are; parameters and errors as of `fit`."""
        self._check_fitted()
        _check_samples(samples)
        self._check_names(samples.X, "X")
        self._check_names(samples.Z, "Z")
        score: float = self.estimator_.score(samples.X, samples.Z, _supervision(samples, y), self.objective)
        return score

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """As of `CrossModalEstimator.project_x`; the columns of a data frame are those that were fitted."""
        self._check_fitted()
        self._check_names(X, "X")
        projections: FloatArray = self.estimator_.project_x(X)
        return projections

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """As of `CrossModalEstimator.project_z`; the columns of a data frame are those that were fitted."""
        self._check_fitted()
        self._check_names(Z, "Z")
        projections: FloatArray = self.estimator_.project_z(Z)
        return projections

    def _check_fitted(self) -> None:
        if not hasattr(self, "estimator_"):
            raise EstimatorNotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _check_names(self, side: Any, name: str) -> None:
        names = _feature_names(side)
        expected = getattr(self, f"{name.lower()}_feature_names_in_", None)
        if names is not None and expected is not None and names.tolist() != expected.tolist():
            differing = sorted(map(str, set(names) ^ set(expected))) or ["their order"]
            raise InvalidInputError(
                f"the columns of {name} differ from those that were fitted: {', '.join(differing)}"
            )

    def _remember(self, attribute: str, names: npt.NDArray[np.object_] | None) -> None:
        if names is not None:
            setattr(self, attribute, names)
        elif hasattr(self, attribute):
            delattr(self, attribute)


def _check_samples(samples: Any) -> None:
    if not isinstance(samples, PairedSamples):
        raise InvalidInputError(f"samples must be PairedSamples, got {type(samples).__name__}")


def _supervision(samples: PairedSamples, y: npt.ArrayLike | None) -> Supervision:
    if y is None:
        return PairedRows(len(samples))
    return Labels(y) if np.ndim(y) == 1 else MultiLabels(y)


def _has_rows(side: Any) -> bool:
    return is_sparse(side) or hasattr(side, "iloc")


def _take(side: Any, rows: Any) -> Any:
    return side.iloc[rows] if hasattr(side, "iloc") else side[rows]


def _feature_names(side: Any) -> npt.NDArray[np.object_] | None:
    """Return the names of the columns of a data frame; None of anything else."""
    return np.asarray(side.columns, object) if hasattr(side, "columns") else None
