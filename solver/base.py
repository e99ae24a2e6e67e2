"""The contract of every estimator: two encoders and an inner product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from typing_extensions import override

from solver.evaluation.quality import Objective, default_objective, measure_quality, objective_value
from solver.linalg import FloatArray, Samples, check_samples, feature_names, project_affinely
from solver.state import write_state
from solver.supervision.annotations import OF_SEARCHES, AnyLabels, annotations_of, n_axes, supervision_of
from solver.supervision.kinds import PairedRows
from solver.validation import InvalidInputError, NotFittedError, SupervisionError, check_parameters


class EstimatorNotFittedError(NotFittedError, SklearnNotFittedError):
    """What an estimator raises before `fit`: scikit-learn's own error, and the solver's."""


class CrossModalEstimator(BaseEstimator, ABC):
    """Base of all methods: `fit`, then project both modalities into one space.

    The similarity of two samples is the inner product of their projections, so that
    maximum-inner-product search over a projected gallery is the ranking. Parameters are plain
    attributes (`get_params`, `set_params` and `clone` of scikit-learn work) and are validated in `fit`.
    """

    _fitted_attribute: ClassVar[str]
    """Set by `fit`: an estimator without it is not fitted."""
    _learned_from_pairs: bool = False

    x_feature_names_in_: npt.NDArray[np.object_]
    z_feature_names_in_: npt.NDArray[np.object_]

    @abstractmethod
    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Learn the two projections from samples and the pairs that are similar.

        Parameters
        ----------
        X, Z : array-like, sparse array or data frame of shape (n_samples, n_features)
            Both modalities.
        supervision : Labels, MultiLabels, PairedRows, SignedPairs, array-like, tuple or None
            Which pairs are similar. An array holds a class of each row of both modalities, or 0/1 indicators
            of several, a tuple those of X and of Z. None: row i of X and row i of Z are partners.

        Raises
        ------
        InvalidParameterError, InvalidInputError, SupervisionError
            If a parameter is out of range, an array unusable, or the supervision of other samples or of
            another kind than is needed, or leaves nothing to learn from.
        """

    @property
    @abstractmethod
    def n_features_in_(self) -> int:
        """Number of features of the first modality's samples; raises NotFittedError before `fit`."""

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
        self._check_columns(X, "X")
        return self._project(X, "x")

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """Project samples of the second modality; parameters and errors are those of `project_x`."""
        self._check_columns(Z, "Z")
        return self._project(Z, "z")

    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        """Return the projections of one modality, "x" or "z", by a fitted estimator."""
        raise NotImplementedError(f"{type(self).__name__} has neither _project nor project_x and project_z")

    def similarity(self, X: npt.ArrayLike, Z: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples_x, n_samples_z) array of inner products of the projections."""
        return self.project_x(X) @ self.project_z(Z).T

    def score(
        self,
        X: npt.ArrayLike,
        Z: npt.ArrayLike,
        supervision: AnyLabels = None,
        objective: Objective | None = None,
    ) -> float:
        """Return how good the rankings of both directions are, from 0 to 1.

        Parameters
        ----------
        X, Z, supervision
            As of `fit`, or `Annotations`; only what learned from pairs takes None for pairs.
        objective : {"map", "ndcg", "recall"}, or a weight for each of some of them, optional
            What to measure: by default MAP where there is nothing but labels, and nDCG@10 otherwise.

        Raises
        ------
        NotFittedError, InvalidInputError
            As of `project_x`, or if samples and supervision do not fit each other.
        SupervisionError
            If it is another kind of supervision.
        """
        x, z = self.project_x(X), self.project_z(Z)
        if supervision is None and not self._learned_from_pairs:
            raise SupervisionError(f"labels were learned from, and are needed to measure; {OF_SEARCHES}")
        annotations = annotations_of(supervision_of(supervision, x, z))
        quality = measure_quality(x, z, annotations)
        return objective_value(quality, default_objective(annotations) if objective is None else objective)

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the columns of X; only where a data frame was fitted, as `z_feature_names_in_` of Z."""
        return self.x_feature_names_in_

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder, for `solver.load`: arrays and JSON, no pickle.

        These are ``model.safetensors`` and ``model.json``; the folder is made if it is not there.
        """
        self._check_fitted()
        write_state(self, folder)

    def _check_inputs(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels
    ) -> tuple[Samples, Samples, Any]:
        """Return the checked samples and the supervision of a fit; the names of columns are remembered."""
        self._check_parameters()
        if n_axes(Z) == 1:
            raise InvalidInputError(
                f"Z is one column, such as labels: fit takes samples of both modalities, then labels; "
                f"{OF_SEARCHES}"
            )
        x, z = check_samples(X, "X"), check_samples(Z, "Z")
        for side, samples in (("x", X), ("z", Z)):
            self.__dict__.pop(f"{side}_feature_names_in_", None)
            names = feature_names(samples)
            if names is not None:
                setattr(self, f"{side}_feature_names_in_", names)
        checked = supervision_of(supervision, x, z)
        self._learned_from_pairs = isinstance(checked, PairedRows)
        return x, z, checked

    def _check_columns(self, samples: npt.ArrayLike, name: str) -> None:
        """Raise unless the estimator is fitted, and on the same columns where both are data frames."""
        self._check_fitted()
        names, fitted = feature_names(samples), getattr(self, f"{name.lower()}_feature_names_in_", None)
        if names is not None and fitted is not None and names.tolist() != fitted.tolist():
            differing = sorted(set(names) ^ set(fitted)) or ["their order"]
            raise InvalidInputError(
                f"the columns of {name} differ from those that were fitted: {', '.join(differing)}"
            )

    def _check_fitted(self) -> None:
        if not hasattr(self, self._fitted_attribute):
            raise EstimatorNotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")

    def _check_parameters(self) -> None:
        declared = fields(self) if is_dataclass(self) else ()
        rules = {one.name: one.metadata["rule"] for one in declared if "rule" in one.metadata}
        check_parameters(rules, self.get_params(deep=False))


class LinearCrossModalEstimator(CrossModalEstimator):
    """Base of the methods whose two projections are affine maps: ``X @ x_factors_ + x_intercept_``.

    Attributes
    ----------
    x_factors_, z_factors_ : ndarray of shapes (n_features_x, rank) and (n_features_z, rank)
        Linear projections of both modalities.
    x_intercept_, z_intercept_ : ndarray of shape (rank,)
        Added to every projection of their modality.
    M_ : ndarray of shape (n_features_x, n_features_z)
        ``x_factors_ @ z_factors_.T``: the similarity is ``X @ M_ @ Z.T`` and what the intercepts add, unless
        a method compares projections by another measure than their inner product.
    """

    _fitted_attribute: ClassVar[str] = "x_factors_"

    x_factors_: FloatArray
    z_factors_: FloatArray
    x_intercept_: FloatArray
    z_intercept_: FloatArray

    @property
    def M_(self) -> FloatArray:  # noqa: N802 - the letter of the paper
        """``x_factors_ @ z_factors_.T``, of shape (n_features_x, n_features_z), between raw features."""
        self._check_fitted()
        return self.x_factors_ @ self.z_factors_.T

    @property
    @override
    def n_features_in_(self) -> int:
        """Number of features of the first modality's samples; of the second it is ``len(z_factors_)``."""
        self._check_fitted()
        return len(self.x_factors_)

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        factors, intercept = getattr(self, f"{side}_factors_"), getattr(self, f"{side}_intercept_")
        return project_affinely(samples, factors, intercept, side.upper())
