"""What the baselines share: principal axes, pairs, scoring, and how a fit runs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
from typing_extensions import override

from solver.base import CrossModalEstimator, LinearCrossModalEstimator
from solver.linalg import FloatArray, Samples, Sides, check_samples, to_dense
from solver.logistic import class_targets
from solver.supervision.annotations import AnyLabels, BoolArray, check_sizes
from solver.supervision.kinds import AnySupervision, Indices
from solver.validation import COUNT, InvalidInputError, NumericalError, one_of, optional, parameter

METRIC = one_of("cosine", "inner")  # rule of the parameter `metric`
PAIRS = one_of("auto", "rows", "similar")  # rule of the parameter `pairs`


@dataclass(frozen=True, slots=True, eq=False)
class CentredBasis:
    """Centred samples in their principal axes: ``samples - mean = coordinates @ axes.T``."""

    # Directions in which the samples do not vary beyond the rounding of their own precision are left out, so
    # that nothing computed in these coordinates meets a covariance that is singular by construction.

    mean: FloatArray  # (n_features,), of the samples
    axes: FloatArray  # (n_features, rank), orthonormal columns
    lengths: FloatArray  # (rank,), singular values of the centred samples, positive, descending
    coordinates: FloatArray  # (n_samples, rank), orthogonal columns of these lengths

    @classmethod
    def of(cls, samples: npt.ArrayLike, name: str) -> CentredBasis:
        """Compute the basis of samples in float64; sparse ones are made dense.
        InvalidInputError, which says `name`, if they are unusable or all the same."""
        stored = to_dense(check_samples(samples, name))
        array, precision = stored.astype(np.float64, copy=False), float(np.finfo(stored.dtype).eps)
        mean = array.mean(axis=0)
        U, s, Vt = scipy.linalg.svd(array - mean, full_matrices=False, check_finite=False)
        # The decomposition's own rounding, and that of the samples as they were stored: features that sum
        # to one in float32 leave a direction of nothing but that.
        relative = max(max(array.shape) * np.finfo(np.float64).eps, precision)
        rounding = relative * float(np.linalg.norm(array))
        varies = s > rounding
        if not varies.any():
            raise InvalidInputError(f"{name} holds the same sample only: there is nothing to learn from")
        return cls(mean, Vt[varies].T, s[varies], U[:, varies] * s[varies])

    @property
    def n_bytes(self) -> int:
        return self.axes.nbytes + self.coordinates.nbytes

    def whitening(self, reg: float) -> FloatArray:
        """Return what each axis is multiplied by: (variance + ridge)^(-1/2), `reg` being the share of the
        mean variance."""
        variances = self.lengths**2 / len(self.coordinates)
        factors: FloatArray = 1.0 / np.sqrt(variances + reg * variances.mean())
        return factors

    def lift(self, directions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return factors and intercept that map raw samples along directions of these coordinates."""
        factors: FloatArray = self.axes @ directions
        return factors, -(self.mean @ factors)


Bases = tuple[CentredBasis, CentredBasis]  # those of both modalities


class LinearBaseline(LinearCrossModalEstimator):
    """A linear method scored by the inner product of its projections or by their cosine.
    With "cosine" each projection is divided by its norm; zero projections stay zero."""

    metric: str
    metric_: str

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        return self._scale(super()._project(samples, side), is_x=side == "x")

    def _scale(self, projections: FloatArray, *, is_x: bool) -> FloatArray:
        """Return what is compared by the inner product."""
        if self.metric_ != "cosine":
            return projections
        norms = np.linalg.norm(projections, axis=1, keepdims=True)
        return projections / np.where(norms > 0, norms, 1.0)

    def _keep(self, x: tuple[FloatArray, FloatArray], z: tuple[FloatArray, FloatArray]) -> None:
        if not all(np.isfinite(part).all() for part in (*x, *z)):
            raise NumericalError(f"the factors of {type(self).__name__} are not finite: scale the features")
        self.metric_ = self.metric
        (self.x_factors_, self.x_intercept_), (self.z_factors_, self.z_intercept_) = x, z


def class_indicators(supervision: AnySupervision, needed_by: str) -> Sides:
    """Return (n_samples, n_classes) arrays of 0 and 1; parameters and errors as in `class_targets`."""
    x_targets, z_targets = class_targets(supervision, needed_by)
    return x_targets.indicators, z_targets.indicators


@dataclass(eq=False, repr=False)
class BasisEstimator(CrossModalEstimator):
    """Base of the methods whose `fit` takes the bases of both modalities, if the caller already has them."""

    n_components: int | None = parameter(None, optional(COUNT))

    _needs_classes: ClassVar[bool] = False  # whether the supervision has to be `Labels` or `MultiLabels`

    @override
    def fit(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None, *, bases: Bases | None = None
    ) -> Self:
        """Learn the two projections.

        Parameters
        ----------
        X, Z, supervision
            As of `CrossModalEstimator.fit`; samples are made dense, and a method of classes needs labels.
        bases : tuple of CentredBasis, optional
            Bases of X and Z, if the caller already has them; computed if omitted.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        if self._needs_classes:
            class_targets(checked, type(self).__name__)  # now rather than after the bases
        self._fit(x, z, checked, bases)
        return self

    @abstractmethod
    def _fit(self, X: Samples, Z: Samples, supervision: AnySupervision, bases: Bases | None) -> None:
        """Learn the two projections with checked parameters."""


@dataclass(eq=False, repr=False, kw_only=True)
class BasisBaseline(BasisEstimator, LinearBaseline):
    """Base of the linear methods that look for directions among the principal axes of both modalities."""

    metric: str = parameter("cosine", METRIC)

    @override
    def _fit(self, X: Samples, Z: Samples, supervision: AnySupervision, bases: Bases | None) -> None:
        x, z = bases or (CentredBasis.of(X, "X"), CentredBasis.of(Z, "Z"))
        check_sizes(x.coordinates, z.coordinates, supervision)
        left, right = self._learn_directions(x, z, supervision)
        self._keep(x.lift(left), z.lift(right))

    @abstractmethod
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        """Return the directions of either modality, one a column, in the coordinates of its basis."""


def whitening(matrix: FloatArray, reg: float) -> FloatArray:
    """Return W, with orthogonal columns, such that ``W^T (matrix + ridge) W = I``.
    The ridge is the share `reg` of the mean eigenvalue; with 0, directions without any are left out."""
    values, vectors = scipy.linalg.eigh(matrix)
    rounding = len(matrix) * np.finfo(np.float64).eps * float(values[-1])
    values = np.maximum(values, 0.0) + reg * float(np.mean(values))
    is_positive = values > rounding
    scaled: FloatArray = vectors[:, is_positive] / np.sqrt(values[is_positive])
    return scaled


def smallest_allowed(values: FloatArray, allowed: BoolArray, count: int) -> tuple[Indices, BoolArray]:
    """Return the columns of the `count` smallest allowed values of each row, and which of them are allowed:
    a row with fewer allowed values is filled with others."""
    masked = np.where(allowed, values, np.inf)
    count = min(count, masked.shape[1])
    columns = np.argpartition(masked, count - 1, axis=1)[:, :count]
    return columns, np.take_along_axis(allowed, columns, axis=1)
