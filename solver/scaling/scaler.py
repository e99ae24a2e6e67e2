"""Scaling of raw features before a similarity is learned.

Under every kind the scaled training samples have a root-mean-square norm of 1, so that one range of penalty
weights suits every data set. (Under "l2", which scales each sample separately, this holds for the nonzero
samples; zero samples stay zero.)
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg import Centered, FloatArray, Samples, check_samples, is_sparse
from solver.validation import InvalidInputError, NotFittedError, OutOfRangeError, one_of

SCALINGS = ("none", "center", "standard", "l2", "sqrt")
_CENTRING = ("center", "standard", "sqrt")


class Scaler:
    """Scale features; one of five kinds, described by `FeatureScaler`.
    It needs NumPy and SciPy only, as a search does."""

    kind_: str
    mean_: FloatArray
    scale_: FloatArray

    def __init__(self, kind: str = "center") -> None:
        self.kind = kind

    def fit(self, samples: Samples) -> Self:
        """Learn mean and scale of training samples; sparse ones are not made dense.

        Raises
        ------
        InvalidParameterError
            If `kind` is unknown.
        InvalidInputError
            If a feature is negative under "sqrt", or nothing remains to be scaled: all samples are equal
            under a kind that subtracts the mean, or zero under "none" and "l2".
        """
        _check_kind(self.kind)
        array = check_samples(samples, "the array of samples")
        if self.kind == "sqrt" and array.min() < 0:
            raise InvalidInputError("scaling 'sqrt' needs features >= 0")
        if is_sparse(array):
            mean, scale = _learn_sparse(array, self.kind)
        else:
            mean, scale = _learn(_prepare(array, self.kind), self.kind)
        self.kind_, self.mean_, self.scale_ = self.kind, mean, scale
        return self

    @classmethod
    def restore(cls, kind: str, mean: FloatArray, scale: FloatArray) -> Self:
        """Restore a fitted scaler from its `kind_`, `mean_` and `scale_`.

        InvalidParameterError if the kind is unknown, InvalidInputError unless the others are finite vectors
        of one length.
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

    def transform(self, samples: Samples) -> Samples:
        """Return scaled samples as float32.

        Sparse samples stay sparse: as a CSR array, or as `Centered` where a mean is subtracted. `Centered`
        rounds features and mean to float32 separately, while dense features are rounded after the
        subtraction. A feature whose mean is r times its standard deviation therefore has an error of up to
        about 1e-7 r standard deviations, which matters only for features that are nonzero in almost every
        sample.

        Parameters
        ----------
        samples : array-like or sparse array of shape (n_samples, n_features)
            Raw features. Negative ones count as 0 under "sqrt".

        Raises
        ------
        NotFittedError
            If the scaler is not fitted.
        InvalidInputError
            If the number of features differs from that of the training samples.
        OutOfRangeError
            If a scaled feature exceeds the range of float32; `is_outside` marks the samples.
        """
        if not hasattr(self, "scale_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        array = check_samples(samples, "the array of samples", n_features=len(self.scale_))
        if is_sparse(array):
            entries = self.scale_entries(array), array.indices, array.indptr
            sparse = scipy.sparse.csr_array(entries, shape=array.shape)
            return Centered(sparse, self.shift) if self.kind_ in _CENTRING else sparse
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (_prepare(array, self.kind_) - self.mean_) * self.scale_
            result: FloatArray = scaled.astype(np.float32)
        is_finite = np.asarray(np.isfinite(result).all(axis=1), np.bool)
        if not is_finite.all():
            largest = np.abs(array).max()
            raise OutOfRangeError(f"samples reach {largest:g}: scaling them overflows float32", ~is_finite)
        return result

    @property
    def shift(self) -> FloatArray:
        """What is subtracted from scaled features, of shape (n_features,), float32."""
        return (self.mean_ * self.scale_).astype(np.float32)

    def scale_entries(self, array: Samples) -> FloatArray:
        """Return the scaled entries of a checked CSR array, less no `shift`; raises as `transform`."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = _prepare_sparse(array, self.kind_)
            values *= self.scale_[array.indices]
            scaled: FloatArray = values.astype(np.float32)
        is_finite = np.isfinite(scaled)
        if not is_finite.all():
            is_outside = np.zeros(array.shape[0], np.bool)
            is_outside[_row_numbers(array)[~is_finite]] = True
            largest = np.abs(array.data).max()
            raise OutOfRangeError(f"samples reach {largest:g}: scaling them overflows float32", is_outside)
        return scaled


def _check_kind(kind: object) -> None:
    one_of(*SCALINGS).check("kind", kind)


def _prepare(array: FloatArray, kind: str) -> FloatArray:
    """Apply the part of a scaling that acts on each sample separately, in float64."""
    exact = array.astype(np.float64)
    if kind == "l2":
        # Divide by the largest entry first: squares of very large or small entries overflow or underflow.
        _divide_rows(exact, np.abs(exact).max(axis=1))
        _divide_rows(exact, np.linalg.norm(exact, axis=1))
    elif kind == "sqrt":
        np.sqrt(np.maximum(exact, 0.0), out=exact)
    return exact


def _divide_rows(array: FloatArray, divisors: FloatArray) -> None:
    column = divisors[:, None]
    np.divide(array, column, out=array, where=column > 0)


def _learn(prepared: FloatArray, kind: str) -> tuple[FloatArray, FloatArray]:
    # Relative to the largest entry: then no square overflows or underflows.
    peak = max(float(np.abs(prepared).max()), np.finfo(np.float64).tiny)
    shares = prepared / peak
    rounding = max(shares.shape) * np.finfo(np.float64).eps
    mean, scale = np.zeros(shares.shape[1]), np.ones(shares.shape[1])
    if kind in _CENTRING:
        mean = shares.mean(axis=0)
    _check_spread(_root_mean_square(shares - mean), rounding, kind)
    if kind == "standard":
        scale = _inverse(shares.std(axis=0), rounding * np.abs(shares).max(axis=0))
    if kind == "l2":
        return mean, scale
    return mean * peak, scale / _root_mean_square((shares - mean) * scale) / peak


def _prepare_sparse(array: Samples, kind: str) -> FloatArray:
    """Return what `_prepare` makes of the entries that are stored."""
    exact: FloatArray = array.data.astype(np.float64)  # a copy, also of float64
    if kind == "l2":
        rows, n_samples = _row_numbers(array), array.shape[0]
        peaks = np.zeros(n_samples)
        np.maximum.at(peaks, rows, np.abs(exact))
        exact /= np.where(peaks > 0, peaks, 1.0)[rows]
        norms = np.sqrt(np.bincount(rows, exact**2, n_samples))
        exact /= np.where(norms > 0, norms, 1.0)[rows]
    elif kind == "sqrt":
        np.sqrt(np.maximum(exact, 0.0), out=exact)
    return exact


def _learn_sparse(array: Samples, kind: str) -> tuple[FloatArray, FloatArray]:
    n_samples, n_features = array.shape
    prepared, columns = _prepare_sparse(array, kind), array.indices
    peak = max(float(np.abs(prepared).max(initial=0.0)), np.finfo(np.float64).tiny)
    shares = prepared / peak
    rounding = max(array.shape) * np.finfo(np.float64).eps
    mean, scale = np.zeros(n_features), np.ones(n_features)
    if kind in _CENTRING:
        mean = np.bincount(columns, shares, n_features) / n_samples
    n_zeros = n_samples - np.bincount(columns, minlength=n_features)
    squares = np.bincount(columns, (shares - mean[columns]) ** 2, n_features) + n_zeros * mean**2
    variances = squares / n_samples
    _check_spread(float(np.sqrt(variances.sum())), rounding, kind)
    if kind == "standard":
        largest = np.zeros(n_features)
        np.maximum.at(largest, columns, np.abs(shares))
        scale = _inverse(np.sqrt(variances), rounding * largest)
    if kind == "l2":
        return mean, scale
    return mean * peak, scale / float(np.sqrt((variances * scale**2).sum())) / peak


def _check_spread(size: float, rounding: float, kind: str) -> None:
    if size <= rounding:
        problem = "the same" if kind in _CENTRING else "zero"
        raise InvalidInputError(f"all samples are {problem}: there is nothing to learn from")


def _inverse(deviations: FloatArray, rounding: FloatArray) -> FloatArray:
    """Return one over each standard deviation, 0 where it is nothing but rounding."""
    is_constant = deviations <= rounding
    return np.where(is_constant, 0.0, 1.0 / np.where(is_constant, 1.0, deviations))


def _row_numbers(array: Samples) -> npt.NDArray[np.intp]:
    return np.repeat(np.arange(array.shape[0]), np.diff(array.indptr))


def _root_mean_square(samples: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.sum(samples**2, axis=1))))
