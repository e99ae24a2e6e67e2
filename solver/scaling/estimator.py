"""The scaling of `solver.scaling.scaler` as an estimator of scikit-learn."""

from __future__ import annotations

from sklearn.base import BaseEstimator

from solver.scaling.scaler import Scaler


class FeatureScaler(Scaler, BaseEstimator):
    """Scale features; one of five kinds. `get_params`, `set_params` and `clone` of scikit-learn work.

    Parameters
    ----------
    kind : {"none", "center", "standard", "l2", "sqrt"}
        "none": divide by the root-mean-square norm only. "center": subtract the mean first.
        "standard": subtract the mean and divide each feature by its standard deviation.
        "l2": divide each sample by its norm. "sqrt": square root of non-negative features
        (histograms, counts), then as "center".

    Attributes
    ----------
    kind_ : str
        The kind it was fitted with.
    mean_ : ndarray of shape (n_features,)
        Subtracted from each sample.
    scale_ : ndarray of shape (n_features,)
        Each centred feature is multiplied by it.
    """
