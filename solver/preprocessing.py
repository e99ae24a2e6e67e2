"""Bringing raw features to a common scale before a similarity is learned.

Whatever the kind, the training samples leave with a root-mean-square norm of 1, so that one range of
penalty weights serves every data set. (Under "l2", where each sample is scaled by itself, this holds of
the samples that are not zero; zero ones stay zero.)
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from solver.base import check_samples
from solver.errors import InvalidInputError, InvalidParameterError, NotFittedError, OutOfRangeError
from solver.linalg import FloatArray

SCALINGS = ("none", "center", "standard", "l2", "sqrt")
_CENTRING = ("center", "standard", "sqrt")


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
    kind_ : str
        The kind it was fitted with.
    mean_ : ndarray of shape (n_features,)
        Subtracted from each sample.
    scale_ : ndarray of shape (n_features,)
        Each centred feature is multiplied by it.
    """

    kind_: str
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
            If "sqrt" meets a negative feature, or nothing is left to scale: every sample is the same
            under a kind that subtracts the mean, or every sample is zero under "none" and "l2".
        """
        _check_kind(self.kind)
        array = check_samples(samples, "samples")
        if self.kind == "sqrt" and array.min() < 0:
            raise InvalidInputError("scaling 'sqrt' needs features >= 0")
        mean, scale = _learn(_prepare(array, self.kind), self.kind)
        self.kind_, self.mean_, self.scale_ = self.kind, mean, scale
        return self

    @classmethod
    def restore(cls, kind: str, mean: FloatArray, scale: FloatArray) -> Self:
        """Rebuild a fitted scaler.

        Parameters
        ----------
        kind : str
            Its `kind_`.
        mean, scale : ndarray of shape (n_features,)
            Its `mean_` and `scale_`.

        Raises
        ------
        InvalidParameterError
            If the kind is unknown.
        InvalidInputError
            If mean and scale are not finite vectors of one length.
        """
        _check_kind(kind)
        for name, vector in (("mean", mean), ("scale", scale)):
            if vector.ndim != 1 or vector.dtype.kind != "f" or not np.isfinite(vector).all():
                raise InvalidInputError(f"{name} must be a finite vector, got {vector.dtype} {vector.shape}")
        if mean.shape != scale.shape:
            raise InvalidInputError(f"mean {mean.shape} and scale {scale.shape} differ in length")
        scaler = cls(kind)
        scaler.kind_, scaler.mean_, scaler.scale_ = kind, mean, scale
        return scaler

    def transform(self, samples: npt.ArrayLike) -> FloatArray:
        """Return scaled samples as float32.

        Parameters
        ----------
        samples : array-like of shape (n_samples, n_features)
            Not modified. Negative features count as 0 under "sqrt".

        Raises
        ------
        NotFittedError
            If it was not fitted.
        InvalidInputError
            If there are more or fewer features than it was fitted on.
        OutOfRangeError
            If a scaled feature exceeds float32; says in which samples.
        """
        if not hasattr(self, "scale_"):
            raise NotFittedError("this FeatureScaler is not fitted yet: call fit first")
        array = check_samples(samples, "samples")
        if array.shape[1] != len(self.scale_):
            raise InvalidInputError(f"samples have {array.shape[1]} features, expected {len(self.scale_)}")
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (_prepare(array, self.kind_) - self.mean_) * self.scale_
            result: FloatArray = scaled.astype(np.float32)
        is_finite = np.asarray(np.isfinite(result).all(axis=1), np.bool)
        if not is_finite.all():
            largest = np.abs(array).max()
            raise OutOfRangeError(f"samples reach {largest:g}: scaled they exceed float32", ~is_finite)
        return result


def _check_kind(kind: object) -> None:
    if kind not in SCALINGS:
        raise InvalidParameterError("kind", kind, f"one of {SCALINGS}")


def _prepare(array: FloatArray, kind: str) -> FloatArray:
    """Do what is done to each sample by itself, in float64."""
    exact = array.astype(np.float64)
    if kind == "l2":
        # By the largest entry first: squares of very large or small ones leave the range of floats.
        _divide_rows(exact, np.abs(exact).max(axis=1))
        _divide_rows(exact, np.linalg.norm(exact, axis=1))
    elif kind == "sqrt":
        np.sqrt(np.maximum(exact, 0.0), out=exact)
    return exact


def _divide_rows(array: FloatArray, divisors: FloatArray) -> None:
    column = divisors[:, None]
    np.divide(array, column, out=array, where=column > 0)


def _learn(prepared: FloatArray, kind: str) -> tuple[FloatArray, FloatArray]:
    """Return mean and scale of prepared samples."""
    # As shares of the largest entry: then no square leaves the range of floats.
    peak = max(float(np.abs(prepared).max()), np.finfo(np.float64).tiny)
    shares = prepared / peak
    rounding = max(shares.shape) * np.finfo(np.float64).eps
    mean, scale = np.zeros(shares.shape[1]), np.ones(shares.shape[1])
    if kind in _CENTRING:
        mean = shares.mean(axis=0)
    if _root_mean_square(shares - mean) <= rounding:
        problem = "the same" if kind in _CENTRING else "zero"
        raise InvalidInputError(f"all samples are {problem}: there is nothing to learn from")
    if kind == "standard":
        deviation = shares.std(axis=0)
        is_constant = deviation <= rounding * np.abs(shares).max(axis=0)
        scale = np.where(is_constant, 0.0, 1.0 / np.where(is_constant, 1.0, deviation))
    if kind == "l2":
        return mean, scale
    return mean * peak, scale / _root_mean_square((shares - mean) * scale) / peak


def _root_mean_square(samples: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.sum(samples**2, axis=1))))
