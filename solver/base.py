"""The contract of every estimator: two encoders and an inner product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from typing_extensions import override

from solver.evaluation.quality import (
    Objective,
    default_objective,
    measure_quality,
    objective_value,
)
from solver.linalg.matrices import FloatArray
from solver.linalg.samples import project_affinely
from solver.supervision.annotations import Annotations
from solver.supervision.base import Supervision
from solver.supervision.conversion import annotations_of
from solver.validation.errors import NotFittedError
from solver.validation.parameters import Rule, check_parameters


class EstimatorNotFittedError(NotFittedError, SklearnNotFittedError):
    """What an estimator raises before `fit`: scikit-learn's own error, and the solver's."""


class CrossModalEstimator(BaseEstimator, ABC):
    """Base of all methods: `fit`, then project both modalities into one space.

    The similarity of two samples is the inner product of their projections, so that
    maximum-inner-product search over a projected gallery is the ranking. Parameters are plain
    attributes (`get_params`, `set_params` and `clone` of scikit-learn work) and are validated in `fit`.
    """

    _parameter_rules: ClassVar[Mapping[str, Rule]] = {}
    """Rule of each parameter; not in the format of scikit-learn's `_parameter_constraints`."""
    _fitted_attribute: ClassVar[str]
    """Set by `fit`: an estimator without it is not fitted."""

    @abstractmethod
    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: Supervision) -> Self:
        """Learn the two projections from samples and the pairs that are similar."""

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """Number of features of the first modality's samples; raises NotFittedError before `fit`."""

    @abstractmethod
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """Project samples of the first modality into the common space.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_samples_x, n_features_x)
            Samples with the features that the estimator was fitted on.

        Returns
        -------
        ndarray of shape (n_samples_x, n_dimensions)
            The projections.

        Raises
        ------
        NotFittedError
            If the estimator was not fitted.
        InvalidInputError
            If the samples are not a finite numeric matrix with these features.
        """

    @abstractmethod
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Project samples of the second modality; parameters and errors are those of `project_x`."""

    def similarity(self, X: npt.ArrayLike, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_x, n_samples_z) array of inner products of the projections."""
        similarity: FloatArray = self.project_x(X) @ self.project_z(Z).T
        return similarity

    def score(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: Annotations | Supervision,
        objective: Objective | None = None,
    ) -> float:
        """Return how good the rankings of both directions are, from 0 to 1.

        Parameters
        ----------
        X, Z : array-like or sparse array of shape (n_samples, n_features)
            Samples of both modalities.
        supervision : Annotations, Labels, MultiLabels or PairedRows
            Which of them belong together.
        objective : {"map", "ndcg", "recall"}, or a weight for each of some of them, optional
            What to measure: by default MAP where there is nothing but labels, and nDCG@10 otherwise.

        Raises
        ------
        NotFittedError, InvalidInputError
            As of `project_x`, or if samples and supervision do not fit each other.
        SupervisionError
            If it is another kind of supervision.
        """
        annotations = annotations_of(supervision)
        quality = measure_quality(self.project_x(X), self.project_z(Z), annotations)
        return objective_value(quality, default_objective(annotations) if objective is None else objective)

    def _check_fitted(self) -> None:
        if not hasattr(self, self._fitted_attribute):
            raise EstimatorNotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _check_parameters(self) -> None:
        check_parameters(self._parameter_rules, self.get_params(deep=False))


class LinearCrossModalEstimator(CrossModalEstimator):
    """Base of the methods whose two projections are affine maps: ``X @ x_factors_ + x_intercept_``.

    Attributes
    ----------
    x_factors_ : ndarray of shape (n_features_x, rank)
        Linear projection of the first modality.
    z_factors_ : ndarray of shape (n_features_z, rank)
        Linear projection of the second modality.
    x_intercept_ : ndarray of shape (rank,)
        Added to every projection of the first modality.
    z_intercept_ : ndarray of shape (rank,)
        Added to every projection of the second modality.
    """

    _fitted_attribute: ClassVar[str] = "x_factors_"

    x_factors_: FloatArray
    z_factors_: FloatArray
    x_intercept_: FloatArray
    z_intercept_: FloatArray

    @property
    @override
    def n_features_in_(self) -> int:
        """Number of features of the first modality's samples; of the second it is ``len(z_factors_)``."""
        self._check_fitted()
        return len(self.x_factors_)

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        self._check_fitted()
        return project_affinely(X, self.x_factors_, self.x_intercept_, "X")

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        self._check_fitted()
        return project_affinely(Z, self.z_factors_, self.z_intercept_, "Z")
