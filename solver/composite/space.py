"""Samples of one modality in the principal coordinates of a feature map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.semantic.feature_maps import FeatureMap, FeatureMapConfig
from solver.validation.errors import InvalidInputError

_BLOCK_ROWS = 4096
"""Rows made dense in one block: 8192 features of them take 256 MiB in float64."""
_ROUNDING = 1e-6
"""Axes along which samples vary less, relative to the longest, are rounding of float32 features."""


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalSpace:
    """A feature map and the principal axes of the mapped samples.

    Parameters
    ----------
    feature_map : FeatureMap
        From raw samples to those that the axes belong to.
    mean : ndarray of shape (n_mapped,)
        Mean of the mapped samples.
    axes : ndarray of shape (n_mapped, rank)
        Orthonormal columns.
    variances : ndarray of shape (rank,)
        Variance of the fitting samples along each axis, in descending order.
    """

    feature_map: FeatureMap
    mean: FloatArray
    axes: FloatArray
    variances: FloatArray

    @classmethod
    def fit(
        cls, samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
    ) -> tuple[PrincipalSpace, FloatArray]:
        """Fit map and axes; return also the (n_samples, rank) coordinates of the samples, in float64.

        Parameters
        ----------
        samples : ndarray or CSR array of shape (n_samples, n_features)
            Raw features.
        config : FeatureMapConfig
            Kind of the map.
        n_landmarks : int
            Landmarks of a kernel map.
        n_components : int
            Most axes; they are those of this many samples, drawn at random, where there are more.
        seed : int
            Seed of both draws.

        Raises
        ------
        InvalidInputError
            If all samples are the same.
        """
        feature_map = config.fit(samples, n_landmarks, seed)
        mapped = feature_map.transform(samples)
        mean, n_samples = _mean(mapped), mapped.shape[0]
        rows = np.random.default_rng(seed).permutation(n_samples)[:n_components]
        axes = _row_space(_dense(mapped, np.sort(rows)) - mean, n_components)
        coordinates = np.empty((n_samples, axes.shape[1]))
        for start in range(0, n_samples, _BLOCK_ROWS):
            block = np.arange(start, min(start + _BLOCK_ROWS, n_samples))
            coordinates[block] = (_dense(mapped, block) - mean) @ axes
        variances = np.mean(coordinates**2, axis=0)
        if len(rows) < n_samples:
            # The axes are those of a part: turn them to those of all samples.
            moments = coordinates.T @ coordinates / n_samples
            variances, rotation = scipy.linalg.eigh(moments, check_finite=False)
            axes, coordinates = axes @ rotation, coordinates @ rotation
        order = np.argsort(-variances)
        order = order[variances[order] > _ROUNDING**2 * variances[order[0]]]
        return cls(feature_map, mean, axes[:, order], variances[order]), coordinates[:, order]

    @property
    def total_variance(self) -> float:
        """Sum of the variances."""
        return float(self.variances.sum())

    def coordinates(self, samples: Samples) -> FloatArray:
        """Return the (n_samples, rank) coordinates of raw samples, in float64."""
        mapped = self.feature_map.transform(samples)
        coordinates: FloatArray = (_dense(mapped, np.arange(mapped.shape[0])) - self.mean) @ self.axes
        return coordinates

    def lift(self, coefficients: FloatArray, intercepts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients and intercepts for mapped samples of those for coordinates.

        Parameters
        ----------
        coefficients : ndarray of shape (rank, n_scores)
            Of linear scores of coordinates.
        intercepts : ndarray of shape (n_scores,)
            Added to them.
        """
        lifted: FloatArray = self.axes @ coefficients
        return lifted, intercepts - self.mean @ lifted


def _row_space(centred: FloatArray, n_components: int) -> FloatArray:
    """Return orthonormal axes, (n_features, at most n_components), of the space that samples span."""
    n_samples, n_features = centred.shape
    is_wide = n_features > n_samples
    moments = centred @ centred.T if is_wide else centred.T @ centred
    values, vectors = scipy.linalg.eigh(moments, check_finite=False)
    if not values[-1] > 0.0:
        raise InvalidInputError("all samples are the same: there is nothing to learn from")
    order = np.flatnonzero(values > _ROUNDING**2 * values[-1])[::-1][:n_components]
    if not is_wide:
        leading: FloatArray = vectors[:, order]
        return leading
    axes: FloatArray = centred.T @ (vectors[:, order] / np.sqrt(values[order]))
    return axes


def _mean(mapped: Samples) -> FloatArray:
    if isinstance(mapped, Centered):
        return np.asarray(mapped.sparse.mean(axis=0), np.float64).ravel() - mapped.shift.astype(np.float64)
    return np.asarray(mapped.mean(axis=0), np.float64).ravel()


def _dense(mapped: Samples, rows: np.ndarray) -> FloatArray:
    """Return some rows, dense and in float64."""
    if isinstance(mapped, Centered):
        dense: FloatArray = mapped.sparse[rows].toarray().astype(np.float64) - mapped.shift
        return dense
    chosen = mapped[rows]
    if is_sparse(chosen):
        chosen = chosen.toarray()
    return np.asarray(chosen, np.float64)
