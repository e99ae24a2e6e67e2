"""The scaling of `solver.scaling.scaler` as an estimator of scikit-learn."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from solver.scaling.scaler import Scaler


class FeatureScaler(Scaler, BaseEstimator):
    """`Scaler` as an estimator of scikit-learn, with its parameters and attributes.

    `get_params`, `set_params` and `clone` of scikit-learn work.
    """
