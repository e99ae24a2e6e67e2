"""Explicit feature maps of kernels: what a linear method needs to see what is not linear."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Self

import numpy as np
import scipy.linalg
import scipy.sparse

from solver.errors import InvalidInputError, OutOfRangeError
from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.parameters import one_of
from solver.scaling import Scaler

KERNELS = ("linear", "rbf", "laplacian")
_ROWS_AT_ONCE, _ENTRIES_AT_ONCE = 4096, 2**23
_MOST_DENSE_FEATURES = 8192
"""Of sparse samples: landmarks with more features stay sparse."""
_SMALLEST_EIGENVALUE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMap:
    """Scales samples, and maps them to the features of a kernel.

    "linear" keeps the scaled features. "rbf", ``exp(-gamma ||x - y||^2)``, and "laplacian",
    ``exp(-gamma ||x - y||_1)``, take the Nystroem map: kernel values with a few landmarks, whitened, so that
    inner products of mapped samples are those of the kernel, exactly so among landmarks [1]_.

    Parameters
    ----------
    scaler : Scaler
        Fitted.
    kernel : {"linear", "rbf", "laplacian"}
        Kind of kernel.
    gamma : float
        Its width; 0 for "linear".
    landmarks : ndarray or CSR array of shape (n_landmarks, n_features)
        Scaled samples; none for "linear". Sparse ones have no mean subtracted: distances do not depend on it.
    whitening : ndarray of shape (n_landmarks, n_mapped)
        Maps kernel values to features.

    References
    ----------
    .. [1] C. Williams, M. Seeger, "Using the Nystroem Method to Speed Up Kernel Machines", NIPS 2000.
    """

    scaler: Scaler
    kernel: str
    gamma: float
    landmarks: Samples
    whitening: FloatArray

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        one_of(*KERNELS).check("kernel", self.kernel)
        if self.kernel != "linear":
            _pairwise_metrics()  # the first search should not wait for the import
        n_features = len(self.scaler.mean_)
        if self.landmarks.ndim != 2 or self.landmarks.shape[1] != n_features:
            raise InvalidInputError(f"landmarks {self.landmarks.shape} do not have {n_features} features")
        if self.whitening.ndim != 2 or len(self.whitening) != self.landmarks.shape[0]:
            raise InvalidInputError(
                f"whitening {self.whitening.shape} is not of {self.landmarks.shape[0]} landmarks"
            )

    @classmethod
    def fit(
        cls, samples: Samples, scaling: str, kernel: str, width: float, n_landmarks: int, seed: int
    ) -> Self:
        """Learn scaling and landmarks from samples; labels have no part in it.

        Parameters
        ----------
        samples : ndarray or CSR array of shape (n_samples, n_features)
            Not modified.
        scaling : str
            Kind of `Scaler`.
        kernel : str
            Kind of kernel.
        width : float, > 0
            The kernel's exponent at the median distance between landmarks; not used for "linear".
        n_landmarks : int, >= 1
            Landmarks at most, drawn from the samples.
        seed : int
            Of the draw.
        """
        scaler = Scaler(scaling).fit(samples)
        n_features = len(scaler.mean_)
        if kernel == "linear":
            return cls(scaler, kernel, 0.0, np.zeros((0, n_features)), np.zeros((0, n_features)))
        drawn = np.random.default_rng(seed).permutation(samples.shape[0])[:n_landmarks]
        chosen = samples[np.sort(drawn)]
        landmarks = scaler.transform(chosen.toarray() if _is_dense_enough(chosen) else chosen)
        if isinstance(landmarks, Centered):
            landmarks = landmarks.sparse
        distances = _distances(kernel, landmarks, landmarks)
        apart = distances[distances > 0]
        gamma = width / float(np.median(apart)) if len(apart) else 0.0
        values, vectors = scipy.linalg.eigh(np.exp(-gamma * distances), check_finite=False)
        kept = values > _SMALLEST_EIGENVALUE * values[-1]
        whitening = np.ascontiguousarray(vectors[:, kept] / np.sqrt(values[kept]), np.float32)
        return cls(scaler, kernel, gamma, landmarks, whitening)

    @property
    def n_mapped(self) -> int:
        """Number of features after the map."""
        return len(self.scaler.mean_) if self.kernel == "linear" else int(self.whitening.shape[1])

    def transform(self, samples: Samples) -> Samples:
        """Return the mapped samples, of shape (n_samples, n_mapped), in float32.

        Those of "linear" are as `Scaler.transform` gives them, others dense; of sparse samples only so
        many are made dense at once as fit into a few megabytes.
        """
        if self.kernel == "linear":
            return self.scaler.transform(samples)
        n_samples, n_features = samples.shape
        is_expanded = is_sparse(samples) and not is_sparse(self.landmarks)
        step = min(max(_ENTRIES_AT_ONCE // n_features, 1), _ROWS_AT_ONCE) if is_expanded else _ROWS_AT_ONCE
        mapped = np.empty((n_samples, self.n_mapped), np.float32)
        for start in range(0, n_samples, step):
            rows = slice(start, start + step)
            try:
                mapped[rows] = self._similar(samples[rows]) @ self.whitening
            except OutOfRangeError as error:
                is_outside = np.zeros(n_samples, np.bool)
                is_outside[rows] = error.is_outside
                raise OutOfRangeError(str(error), is_outside) from None
        return mapped

    def _similar(self, samples: Samples) -> FloatArray:
        """Return kernel values with the landmarks."""
        if is_sparse(self.landmarks):
            scaled = self.scaler.transform(scipy.sparse.csr_array(samples))
            scaled = scaled.sparse if isinstance(scaled, Centered) else scaled
        else:
            scaled = self.scaler.transform(samples.toarray() if is_sparse(samples) else samples)
        similar = np.exp(-self.gamma * _distances(self.kernel, scaled, self.landmarks))
        return similar.astype(np.float32)


def _is_dense_enough(samples: Samples) -> bool:
    """Return whether landmarks are kept as dense arrays."""
    return is_sparse(samples) and samples.shape[1] <= _MOST_DENSE_FEATURES


def _distances(kernel: str, left: Samples, right: Samples) -> FloatArray:
    """Return what the kernel's exponent is proportional to."""
    metrics = _pairwise_metrics()
    distances: FloatArray = (
        metrics.euclidean_distances(left, right, squared=True)
        if kernel == "rbf"
        else metrics.manhattan_distances(left, right)
    )
    return distances


def _pairwise_metrics() -> ModuleType:
    """Return scikit-learn's distances, whose import takes longer than all else that a linear map needs."""
    return importlib.import_module("sklearn.metrics.pairwise")
