"""Pairs of samples as one input, for the grid searches and cross-validations of scikit-learn."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import Tags

from solver.base import CrossModalEstimator, EstimatorNotFittedError
from solver.linalg import FloatArray, check_samples, is_frame, is_sparse, to_dense
from solver.supervision.annotations import supervision_of
from solver.validation import COUNT, InvalidInputError, optional


class PairedSamples:
    """Rows of two modalities that belong together, to be split together.

    Parameters
    ----------
    X : array-like, sparse array or data frame of shape (n_pairs, n_features_x)
        Samples of the first modality.
    Z : array-like, sparse array or data frame of shape (n_pairs, n_features_z)
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
        self.X, self.Z = (_with_rows(side) for side in (X, Z))
        for name, side in self._sides():
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
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return some of the pairs, by row numbers, a mask or a slice; with columns, an array of those."""
        if isinstance(rows, tuple):
            rows, columns = rows
            if columns is not ... and not (isinstance(columns, slice) and columns == slice(None)):
                return np.asarray(self)[rows][..., columns]
        if not (isinstance(rows, slice) or np.ndim(rows)):
            rows = slice(rows, rows + 1 or None)  # one pair
        return PairedSamples(_take(self.X, rows), _take(self.Z, rows))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return X beside Z as one dense array, which scikit-learn's scalers of columns take."""
        both: FloatArray = np.hstack([to_dense(check_samples(side, name)) for name, side in self._sides()])
        return both.astype(dtype or both.dtype, copy=False)

    def _sides(self) -> tuple[tuple[str, Any], tuple[str, Any]]:
        return ("X", self.X), ("Z", self.Z)


@dataclass(eq=False, repr=False)
class PairedEstimator(MetaEstimatorMixin, BaseEstimator):
    """An estimator that takes both modalities as one input, for `sklearn.model_selection`.

    Parameters
    ----------
    estimator : CrossModalEstimator
        What learns; its parameters are ``estimator__alpha`` and so on.
    objective : str, mapping or None
        What `score` measures, as of `CrossModalEstimator.score`.
    n_features_x : int, >= 1, or None
        Where samples are one array, X beside Z: the number of columns that are X. A pipeline passes such
        arrays on, whose scalers made one of `PairedSamples`, and nothing in them says where X ends. Steps
        that mix columns, such as PCA, go into a `ColumnTransformer`, one for each modality.

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

    In a pipeline, scalers of columns take both modalities at once:

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = PairedEstimator(LowRankBilinear(alpha_fraction=0.1), n_features_x=data.X.shape[1])
    >>> pipeline = make_pipeline(StandardScaler(), model).fit(pairs, data.x_labels[by_class[0]])
    >>> round(pipeline.score(pairs, data.x_labels[by_class[0]]), 1)
    1.0

    Principal components of each modality by itself, 3 of X and 2 of Z:

    >>> from sklearn.compose import make_column_transformer
    >>> from sklearn.decomposition import PCA
    >>> end = data.X.shape[1]
    >>> components = make_column_transformer((PCA(3), slice(end)), (PCA(2), slice(end, pairs.shape[1])))
    >>> model = PairedEstimator(LowRankBilinear(alpha_fraction=0.1), n_features_x=3)
    >>> pipeline = make_pipeline(components, model).fit(pairs, data.x_labels[by_class[0]])
    >>> pipeline[-1].project_z(components.transform(pairs)[:, 3:]).shape[0]
    40
    """

    estimator: CrossModalEstimator
    objective: Any = None
    _: KW_ONLY
    n_features_x: int | None = None

    def fit(self, samples: PairedSamples | npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:
        """Fit a copy of the estimator.

        Parameters
        ----------
        samples : PairedSamples, or array-like of shape (n_pairs, n_features) where `n_features_x` is given
            What to learn from; InvalidInputError if they are neither.
        y : array-like of shape (n_pairs,) or (n_pairs, n_classes), optional
            A class of each pair, or 0/1 indicators of several; without it only partners are similar.
        """
        pairs = self._pairs_of(samples)
        self.estimator_: CrossModalEstimator = clone(self.estimator).fit(pairs.X, pairs.Z, y)
        self.n_features_in_ = pairs.shape[1]
        return self

    def score(self, samples: PairedSamples | npt.ArrayLike, y: npt.ArrayLike | None = None) -> float:
        """Return how good the rankings of both directions are; parameters and errors as of `fit`."""
        fitted, pairs = self._fitted, self._pairs_of(samples)
        supervision = supervision_of(y, pairs.X, pairs.Z)
        return fitted.score(pairs.X, pairs.Z, supervision, self.objective)

    @property
    def x_feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the columns of X."""
        return self._fitted.x_feature_names_in_

    @property
    def z_feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the columns of Z."""
        return self._fitted.z_feature_names_in_

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the columns of X, then of those of Z."""
        return np.concatenate([self.x_feature_names_in_, self.z_feature_names_in_])

    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        """As of `CrossModalEstimator.project_x`; the columns of a data frame are those that were fitted."""
        return self._fitted.project_x(X)

    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        """As of `CrossModalEstimator.project_z`; the columns of a data frame are those that were fitted."""
        return self._fitted.project_z(Z)

    def save(self, folder: str | Path) -> None:
        """Write `estimator_` into a folder for `solver.load`, as of `CrossModalEstimator.save`."""
        self._fitted.save(folder)

    def __sklearn_tags__(self) -> Tags:
        """Return the tags of a classifier, so that folds are drawn within the classes of `y`."""
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        return tags

    @property
    def _fitted(self) -> CrossModalEstimator:
        if not hasattr(self, "estimator_"):
            raise EstimatorNotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self.estimator_

    def _pairs_of(self, samples: Any) -> PairedSamples:
        if isinstance(samples, PairedSamples):
            return samples
        optional(COUNT).check("n_features_x", self.n_features_x)
        if self.n_features_x is None:
            raise InvalidInputError(
                f"samples must be PairedSamples, got {type(samples).__name__}; one array of X beside Z, as a "
                "scaler in a pipeline returns it, needs n_features_x, the number of columns that are X"
            )
        both = check_samples(samples, "samples")
        if both.shape[1] <= self.n_features_x:
            raise InvalidInputError(f"samples have {both.shape[1]} columns: none are left for Z")
        return PairedSamples(both[:, : self.n_features_x], both[:, self.n_features_x :])


def _with_rows(side: Any) -> Any:
    if is_sparse(side):
        return side.tocsr()
    return side if is_frame(side) else np.asarray(side)


def _take(side: Any, rows: Any) -> Any:
    if is_frame(side) and not hasattr(side, "iloc"):
        return side[np.arange(len(side))[rows]]
    return side.iloc[rows] if is_frame(side) else side[rows]
