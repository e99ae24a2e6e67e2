"""Bringing raw features to a common scale before a similarity is learned.

Whatever the kind, the training samples leave with a root-mean-square norm of 1, so that one range of
penalty weights serves every data set.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from solver.base import check_samples
from solver.errors import InvalidInputError, InvalidParameterError, NotFittedError
from solver.linalg import FloatArray

SCALINGS = ("none", "center", "standard", "l2", "sqrt")


class FeatureScaler(BaseEstimator):
    """Scale features; one of five kinds.

    Parameters
    ----------
    kind : {"none", "center", "standard", "l2", "sqrt"}
        "none": divide by the root-mean-square norm only. "center": subtract the mean first.
        "standard": subtract the mean and divide each feature by its standard deviation.
        "l2": divide each sample by its norm. "sqrt": square root of non-negative features
        (histograms, counts), then as "center".

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        Subtracted from each sample.
    scale_ : ndarray of shape (n_features,)
        Each centred feature is multiplied by it.
    """

    mean_: FloatArray
    scale_: FloatArray

    def __init__(self, kind: str = "center") -> None:
        self.kind = kind

    def fit(self, samples: npt.ArrayLike) -> Self:
        """Learn mean and scale.

        Parameters
        ----------
        samples : array-like of shape (n_samples, n_features)
            Training samples. Not modified.

        Raises
        ------
        InvalidParameterError
            If `kind` is unknown.
        InvalidInputError
            If "sqrt" meets a negative feature, or every sample is the same.
        """
        if self.kind not in SCALINGS:
            raise InvalidParameterError("kind", self.kind, f"one of {SCALINGS}")
        prepared = self._transform_rows(check_samples(samples, "samples"), fitting=True)
        n_features = prepared.shape[1]
        self.mean_ = np.zeros(n_features)
        self.scale_ = np.ones(n_features)
        if self.kind in ("center", "standard", "sqrt"):
            self.mean_ = prepared.mean(axis=0)
        if self.kind == "standard":
            deviation = prepared.std(axis=0)
            noise = len(prepared) * np.finfo(np.float64).eps * np.abs(prepared).max(axis=0)
            deviation = np.where(deviation > noise, deviation, 0.0)
            self.scale_ = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)
        if self.kind != "l2":
            centred = (prepared - self.mean_) * self.scale_
            typical = float(np.sqrt(np.mean(np.sum(centred**2, axis=1))))
            if typical <= n_features * np.finfo(np.float64).eps * float(np.abs(prepared).max(initial=0.0)):
                raise InvalidInputError("all samples are the same: there is nothing to learn from")
            self.scale_ = self.scale_ / typical
        return self

    @classmethod
    def restore(cls, kind: str, mean: FloatArray, scale: FloatArray) -> Self:
        """Rebuild a fitted scaler from its kind, mean and scale."""
        scaler = cls(kind)
        scaler.mean_, scaler.scale_ = mean, scale
        return scaler

    def transform(self, samples: npt.ArrayLike) -> FloatArray:
        """Return scaled samples as float32.

        Parameters
        ----------
        samples : array-like of shape (n_samples, n_features)
            Not modified.
        """
        if not hasattr(self, "scale_"):
            raise NotFittedError("this FeatureScaler is not fitted yet: call fit first")
        array = check_samples(samples, "samples")
        if array.shape[1] != len(self.scale_):
            raise InvalidInputError(f"samples have {array.shape[1]} features, expected {len(self.scale_)}")
        scaled = (self._transform_rows(array) - self.mean_) * self.scale_
        result: FloatArray = scaled.astype(np.float32)
        return result

    def _transform_rows(self, array: FloatArray, fitting: bool = False) -> FloatArray:
        exact = array.astype(np.float64)
        if self.kind == "l2":
            norms = np.linalg.norm(exact, axis=1, keepdims=True)
            unit: FloatArray = np.divide(exact, norms, out=np.zeros_like(exact), where=norms > 0)
            return unit
        if self.kind == "sqrt":
            if fitting and exact.min() < 0:
                raise InvalidInputError("scaling 'sqrt' needs features >= 0")
            return np.asarray(np.sqrt(np.maximum(exact, 0.0)))
        return exact
