"""A prepared instance of problem (4): samples of unit size with a constant feature, in a small basis."""

from __future__ import annotations

import math
import os
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples, from_factors, is_sparse, spectral_norm
from solver.linalg.row_space import RowSpaceBasis, lift_factors, lower_factors
from solver.linalg.samples import check_samples
from solver.losses.base import CertifiableLoss, FactoredPoint
from solver.losses.pair_blocks import current_engine
from solver.losses.pair_losses import ListedPairLoss, PairLogisticLoss, PairSoftmaxLoss, PairSquaredLoss
from solver.optimisation.preconditioner import GramSpectrum
from solver.optimisation.subsample import PairSubsample, assign_blocks
from solver.supervision.base import Indices
from solver.supervision.conversion import AnyLabels, check_sizes, supervision_of
from solver.supervision.signed_pairs import AnySupervision, SignedPairs
from solver.threads import single_threaded_blas
from solver.validation.errors import SupervisionError

_MOST_REDUCED_SPARSE_SAMPLES = 5000
"""Sparse samples up to which they are reduced to a dense basis, of 200 MB in float64."""
_ROWS_AT_ONCE = 4096  # rows of which a float64 copy is made at a time


class BilinearProblem:
    """Samples and supervision, prepared for any solver; `SignedPairs` support the logistic loss only.
    `n_features` counts constants; the power of two `penalty_scale` is a weight of 1 in the user's units."""

    # Each modality is divided by the root-mean-square norm of its samples, rounded to a power of two so that
    # the division is exact; this multiplies M and divides the penalty weight by both norms. A modality with
    # more features than samples is then expressed in a basis of the span of its samples, in float64. Neither
    # changes scores or penalty, hence not the optimum; `lift` undoes both.

    def __init__(
        self,
        X: Samples,
        Z: Samples,
        supervision: AnySupervision,
        fit_intercept: bool,
        n_threads: int | None,
        loss: str = "logistic",
    ) -> None:
        check_sizes(X, Z, supervision)
        if isinstance(supervision, SignedPairs) and loss != "logistic":
            raise SupervisionError(f"SignedPairs need loss='logistic', not {loss!r}")
        self._loss_name = loss
        self._n_threads = n_threads or os.cpu_count() or 1
        self.supervision = supervision
        self._losses: dict[type, CertifiableLoss] = {}
        self.n_features = X.shape[1] + fit_intercept, Z.shape[1] + fit_intercept
        x_norm, z_norm = _typical_norm(X, fit_intercept), _typical_norm(Z, fit_intercept)
        x_size, z_size = _power_of_two(x_norm, X.dtype), _power_of_two(z_norm, Z.dtype)
        self.penalty_scale = x_size * z_size
        self._typical_score = (x_norm / x_size) * (z_norm / z_size)
        self.X, self._x_basis = self._smallest_basis(
            _of_unit_size(X, x_size, fit_intercept), supervision.x_order
        )
        self.Z, self._z_basis = self._smallest_basis(
            _of_unit_size(Z, z_size, fit_intercept), supervision.z_order
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the bilinear matrix in the basis of this problem."""
        return self.X.shape[1], self.Z.shape[1]

    def loss(self, dtype: type) -> CertifiableLoss:
        """Return the smooth term in the given precision; created on first use."""
        if dtype not in self._losses:
            self._losses[dtype] = self._make_loss(dtype)
        return self._losses[dtype]

    def _gradient_at_zero(self) -> FloatArray:
        """Return l'(0) in float64; from sums alone for the logistic loss, whose derivatives there are 1/2."""
        if isinstance(self.supervision, SignedPairs) or self._loss_name != "logistic":
            zero = LowRankMatrix.zeros(*self.shape, dtype=np.float64)
            return self.loss(np.float64).value_and_gradient(FactoredPoint.of(zero))[1]
        similar, dissimilar = 1.0 / self.supervision.n_similar, 1.0 / self.supervision.n_dissimilar
        of_similar = self.supervision.sum_over_similar(self.X, self.Z)
        sums = (np.asarray(samples.sum(axis=0, dtype=np.float64)) for samples in (self.X, self.Z))
        gradient: FloatArray = 0.5 * dissimilar * np.outer(*sums) - 0.5 * (similar + dissimilar) * of_similar
        return gradient

    def _make_loss(self, dtype: type) -> CertifiableLoss:
        if isinstance(self.supervision, SignedPairs):
            return ListedPairLoss(self.X, self.Z, self.supervision, dtype)
        if self._loss_name == "squared":
            return PairSquaredLoss(self.X, self.Z, self.supervision, dtype)
        if self._loss_name == "softmax":
            return PairSoftmaxLoss(self.X, self.Z, self.supervision, dtype)
        return PairLogisticLoss(self.X, self.Z, self.supervision, dtype, self._n_threads, current_engine())

    @cached_property
    def subsample(self) -> PairSubsample | None:
        """A subsample of the pairs for the first steps; None for a small problem."""
        if isinstance(self.supervision, SignedPairs) or self._loss_name != "logistic":
            return None
        blocks, n_assigned = assign_blocks(self.supervision)
        return PairSubsample(self.X, self.Z, blocks, n_assigned, self._n_threads) if len(blocks) > 1 else None

    @cached_property
    def spectra(self) -> tuple[GramSpectrum, GramSpectrum]:
        """Leading eigenvectors of both modalities' Gram matrices, for preconditioning."""
        with single_threaded_blas():
            return GramSpectrum.of(self.X), GramSpectrum.of(self.Z)

    @cached_property
    def alpha_max(self) -> float:
        """``||l'(0)||_2`` in the units of this problem, computed in float64."""
        with single_threaded_blas():
            return spectral_norm(self._gradient_at_zero())

    @property
    def largest_alpha(self) -> float:
        """`alpha_max` in the user's units, as the function of that name returns it."""
        return self.alpha_max * self.penalty_scale

    def to_problem_units(self, alpha: float) -> float:
        """Convert a penalty weight from the user's units to those of this problem, without rounding error."""
        return float(alpha) / self.penalty_scale

    @property
    def first_step(self) -> float:
        """Initial step size: with it the first step changes a typical score by about 1."""
        return 1.0 / (self.alpha_max * self._typical_score) if self.alpha_max > 0 else 1.0

    @property
    def fingerprint(self) -> float:
        """A number that differs, almost surely, for other samples or labels."""
        return self.alpha_max * self._typical_score

    def lift(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return `M` in the original features and units; the constant features, if any, come last."""
        U, V = lift_factors(self._x_basis, M.U), lift_factors(self._z_basis, M.V)
        with np.errstate(over="ignore"):  # infinite where float64 overflows
            return LowRankMatrix(U, M.s.astype(np.float64) / self.penalty_scale, V)

    def lower(self, left: FloatArray, right: FloatArray) -> LowRankMatrix:
        """Return ``left @ right.T``, given in the original features and units, as a point of this problem."""
        left, right = lower_factors(self._x_basis, left), lower_factors(self._z_basis, right)
        M = from_factors(left.astype(np.float64), right.astype(np.float64))
        return LowRankMatrix(M.U, M.s * self.penalty_scale, M.V)

    def _smallest_basis(self, samples: Samples, order: Indices) -> tuple[Samples, RowSpaceBasis | None]:
        n_samples, n_features = samples.shape
        # A few features more than samples are not worth a decomposition.
        too_many = is_sparse(samples) and n_samples > _MOST_REDUCED_SPARSE_SAMPLES
        if n_features <= 1.1 * n_samples or too_many:
            return samples, None
        # In the order in which the loss visits the samples, so that the loss gets a triangular factor.
        with single_threaded_blas():
            basis = RowSpaceBasis(samples[order], self._n_threads)
        reduced = np.empty_like(basis.reduced)
        reduced[order] = basis.reduced
        return reduced, basis


def alpha_max(
    X: npt.ArrayLike,
    Z: npt.ArrayLike,
    supervision: AnyLabels = None,
    *,
    fit_intercept: bool = True,
    loss: str = "logistic",
) -> float:
    """Return the smallest penalty weight at which the solution is zero.

    Parameters
    ----------
    X, Z, supervision
        As of `LowRankBilinear.fit`.
    fit_intercept, loss
        As of the estimator that will use the value.

    Returns
    -------
    float
        ``||l'(0)||_2``: zero is optimal exactly when the gradient there is a subgradient of
        ``alpha ||.||_*``, that is when no singular value of it exceeds alpha.
    """
    x, z = check_samples(X, "X"), check_samples(Z, "Z")
    return BilinearProblem(x, z, supervision_of(supervision, x, z), fit_intercept, None, loss).largest_alpha


def _typical_norm(samples: Samples, with_constant: bool) -> float:
    """Return the root-mean-square norm of the samples, without overflow; 1 if all are zero."""
    entries = samples.data if is_sparse(samples) else samples
    largest = max(
        float(np.max(entries, initial=0.0)), -float(np.min(entries, initial=0.0)), float(with_constant)
    )
    if largest == 0.0:
        return 1.0
    total = float(with_constant) * samples.shape[0] / largest / largest
    for row in range(0, entries.shape[0], _ROWS_AT_ONCE):
        scaled = np.asarray(entries[row : row + _ROWS_AT_ONCE], np.float64) / largest
        total += float(np.vdot(scaled, scaled))
    return largest * float(np.sqrt(total / samples.shape[0]))


def _power_of_two(size: float, dtype: npt.DTypeLike) -> float:
    mantissa, exponent = math.frexp(size)
    limits = np.finfo(np.dtype(dtype))
    return math.ldexp(1.0, min(max(exponent - (mantissa < math.sqrt(0.5)), limits.minexp), limits.maxexp - 1))


def _of_unit_size(samples: Samples, size: float, with_constant: bool) -> Samples:
    """Return the samples over `size`, with the constant feature over `size` as the last column."""
    if is_sparse(samples):
        scaled = scipy.sparse.csr_array(samples, copy=True)
        scaled.data = scaled.data / samples.dtype.type(size)
        if not with_constant:
            return scaled
        constant = np.full((samples.shape[0], 1), 1.0 / size, samples.dtype)
        widened: Samples = scipy.sparse.hstack([scaled, scipy.sparse.csr_array(constant)], format="csr")
        return widened
    wide = np.empty((samples.shape[0], samples.shape[1] + with_constant), samples.dtype)
    np.divide(samples, samples.dtype.type(size), out=wide[:, : samples.shape[1]])
    wide[:, samples.shape[1] :] = 1.0 / size
    return wide
