"""Samples of one modality in the principal coordinates of a feature map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.scaling.feature_maps import (
    MIN_RELATIVE_EIGENVALUE,
    FeatureMap,
    FeatureMapConfig,
    draw_landmarks,
    gamma_of,
    kernel_distances,
)
from solver.scaling.scaler import Scaler
from solver.validation.errors import InvalidInputError

ROUNDING = 1e-6
"""Axes along which samples vary less, relative to the longest, are rounding of float32 features."""


def centre(products: FloatArray) -> FloatArray:
    """Return the inner products of the centred samples; the symmetric ones of the samples are overwritten."""
    means = products.mean(axis=0)
    products -= means
    products -= (means - means.mean())[:, None]
    return products


def principal_axes(moments: FloatArray, n_axes: int, floor: float) -> tuple[FloatArray, FloatArray]:
    """Return the leading eigenvectors, as columns, and eigenvalues in descending order; overwrites `moments`.
    Those below the share `floor` of the largest are left out. InvalidInputError if all are zero."""
    values, vectors = scipy.linalg.eigh(moments, check_finite=False, overwrite_a=True)
    if not values[-1] > 0.0:
        raise InvalidInputError("all samples are the same: there is nothing to learn from")
    order = np.flatnonzero(values > floor * values[-1])[::-1][:n_axes]
    return vectors[:, order], values[order]


_BLOCK_ROWS = 4096  # rows made dense in one block: 8192 features of them take 256 MiB in float64


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalSpace:
    """A feature map and the principal axes of the mapped samples."""

    feature_map: FeatureMap
    mean: FloatArray  # (n_mapped,), of the mapped samples
    axes: FloatArray  # (n_mapped, rank), orthonormal columns
    variances: FloatArray  # (rank,), of the fitting samples, in descending order

    @classmethod
    def fit(
        cls, samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
    ) -> tuple[PrincipalSpace, FloatArray]:
        """Fit map and axes; return also the (n_samples, rank) coordinates of the samples, in float64.
        InvalidInputError if all samples are the same."""
        # At most `n_components` axes; they are those of this many samples, drawn at random, where there are
        # more.
        fit = _fit_linear if config.kernel == "linear" else _fit_kernel
        feature_map, mean, axes, coordinates = fit(samples, config, n_landmarks, n_components, seed)
        n_samples = len(coordinates)
        variances = np.mean(coordinates**2, axis=0)
        if min(n_components, n_samples if config.kernel == "linear" else n_landmarks) < n_samples:
            # The axes are those of a part: turn them to those of all samples.
            rotation, variances = principal_axes(coordinates.T @ coordinates / n_samples, n_components, 0.0)
            axes, coordinates = axes @ rotation, coordinates @ rotation
        order = np.argsort(-variances)
        order = order[variances[order] > ROUNDING**2 * variances[order[0]]]
        return cls(feature_map, mean, axes[:, order], variances[order]), coordinates[:, order]

    def coordinates(self, samples: Samples) -> FloatArray:
        """Return the (n_samples, rank) coordinates of raw samples, in float64."""
        mapped = self.feature_map.transform(samples)
        coordinates: FloatArray = (_dense(mapped, np.arange(mapped.shape[0])) - self.mean) @ self.axes
        return coordinates

    def lift(self, coefficients: FloatArray, intercepts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients, of shape (rank, n_scores), and intercepts for mapped samples of those for
        coordinates."""
        lifted: FloatArray = self.axes @ coefficients
        return lifted, intercepts - self.mean @ lifted


_Fit = tuple[FeatureMap, FloatArray, FloatArray, FloatArray]
"""Map, mean and axes of the mapped samples, and the coordinates of all samples."""


def _fit_linear(
    samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
) -> _Fit:
    feature_map = config.fit(samples, n_landmarks, seed)
    mapped = feature_map.transform(samples)
    mean, n_samples = _mean(mapped), mapped.shape[0]
    rows = np.sort(np.random.default_rng(seed).permutation(n_samples)[:n_components])
    drawn = _dense(mapped, rows) - mean
    if drawn.shape[1] <= len(rows):
        axes, _ = principal_axes(drawn.T @ drawn, n_components, ROUNDING**2)
    else:
        vectors, values = principal_axes(drawn @ drawn.T, n_components, ROUNDING**2)
        axes = drawn.T @ (vectors / np.sqrt(values))
        if len(rows) == n_samples:
            return feature_map, mean, axes, vectors * np.sqrt(values)
    return feature_map, mean, axes, _coordinates(mapped, mean, axes)


def _fit_kernel(
    samples: Samples, config: FeatureMapConfig, n_landmarks: int, n_components: int, seed: int
) -> _Fit:
    """Return the space of a kernel, whose map ends in the principal coordinates of its landmarks."""
    # So one decomposition gives both the map and the axes. What the landmarks have in common, and the centred
    # kernel lacks, distinguishes none of them.
    scaler = Scaler(config.scaling).fit(samples)
    landmarks, rows = draw_landmarks(samples, scaler, n_landmarks, seed)
    distances = kernel_distances(config.kernel, landmarks, landmarks)
    gamma = gamma_of(distances, config.width)
    kernel = np.exp(-gamma * distances)
    common = kernel.mean(axis=0)
    vectors, values = principal_axes(centre(kernel), n_components, MIN_RELATIVE_EIGENVALUE)
    whitening = vectors / np.sqrt(values)
    feature_map = FeatureMap(
        scaler, config.kernel, gamma, landmarks, np.ascontiguousarray(whitening, np.float32)
    )
    mapped = np.empty((samples.shape[0], len(values)))
    mapped[rows] = vectors * np.sqrt(values) + common @ whitening
    others = np.setdiff1d(np.arange(len(mapped)), rows)
    if len(others):
        mapped[others] = feature_map.transform(samples[others])
    mean = mapped.mean(axis=0)
    return feature_map, mean, np.eye(len(values)), mapped - mean


def _coordinates(mapped: Samples, mean: FloatArray, axes: FloatArray) -> FloatArray:
    """Return the coordinates of mapped samples, a block of rows at a time."""
    n_samples = mapped.shape[0]
    coordinates = np.empty((n_samples, axes.shape[1]))
    for start in range(0, n_samples, _BLOCK_ROWS):
        block = np.arange(start, min(start + _BLOCK_ROWS, n_samples))
        coordinates[block] = (_dense(mapped, block) - mean) @ axes
    return coordinates


def _mean(mapped: Samples) -> FloatArray:
    if isinstance(mapped, Centered):
        return np.asarray(mapped.sparse.mean(axis=0), np.float64).ravel() - mapped.shift.astype(np.float64)
    return np.asarray(mapped.mean(axis=0), np.float64).ravel()


def _dense(mapped: Samples, rows: np.ndarray) -> FloatArray:
    if isinstance(mapped, Centered):
        dense: FloatArray = mapped.sparse[rows].toarray().astype(np.float64) - mapped.shift
        return dense
    chosen = mapped[rows]
    if is_sparse(chosen):
        chosen = chosen.toarray()
    return np.asarray(chosen, np.float64)
