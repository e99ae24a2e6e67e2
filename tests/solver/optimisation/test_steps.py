from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from solver import Labels, LowRankBilinear, make_low_rank_pairs
from solver.datasets import SyntheticPairs
from solver.linalg import FloatArray, LowRankMatrix, from_factors, singular_triplets_above
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.descent import (
    FactorPreconditioner,
    GramSpectrum,
    NuclearNorm,
    proximal_step,
    refine_factors,
)
from solver.validation import InvalidParameterError, NumericalError
from tests.solver.dense import DenseProblem

MATRICES = arrays(np.float64, (5, 4), elements=st.floats(-10.0, 10.0, allow_subnormal=False))


@given(
    A=MATRICES,
    alpha=st.just(0.0) | st.floats(0.01, 5.0),
    step=st.floats(0.01, 5.0),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_prox_satisfies_its_optimality_condition(
    A: npt.NDArray[np.float64], alpha: float, step: float, dtype: type
) -> None:
    A = A.astype(dtype)
    P = NuclearNorm(alpha).prox(A, step)
    rest = (A.astype(np.float64) - P.astype(np.float64).dense()) / step
    # The rest over alpha is a subgradient at P: U V^T on P's own subspaces, no longer than one elsewhere.
    tolerance = 100 * float(np.finfo(dtype).eps) * (1.0 + float(np.linalg.norm(A))) / step
    assert np.linalg.norm(rest, 2) <= alpha + tolerance
    assert np.vdot(rest, P.dense()) == pytest.approx(alpha * P.nuclear_norm, abs=40 * tolerance)
    np.testing.assert_allclose(rest @ P.V, alpha * P.U, atol=tolerance)
    np.testing.assert_allclose(rest.T @ P.U, alpha * P.V, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(9, 6), (6, 9), (330, 340)])
def test_prox_keeps_singular_vectors_and_shrinks_values_by_step_times_alpha(
    dtype: type, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((shape[0], 6)))[0]
    V = np.linalg.qr(rng.standard_normal((shape[1], 6)))[0]
    s = np.array([9.0, 7.0, 5.0, 3.0, 0.9, 0.2])
    A = ((U * s) @ V.T).astype(dtype)
    P = NuclearNorm(2.0).prox(A, 0.5)
    tolerance = 100 * float(np.finfo(dtype).eps)  # backward error eps * s[0] over gaps of 2
    assert P.s.dtype == dtype
    np.testing.assert_allclose(P.s, [8.0, 6.0, 4.0, 2.0], atol=9 * tolerance)
    np.testing.assert_allclose(np.abs(np.diag(U[:, :4].T @ P.U)), 1.0, atol=tolerance)
    np.testing.assert_allclose(np.abs(np.diag(V[:, :4].T @ P.V)), 1.0, atol=tolerance)
    np.testing.assert_allclose(P.dense(), (U[:, :4] * (s[:4] - 1)) @ V[:, :4].T, atol=9 * tolerance)


def test_prox_is_zero_from_the_spectral_norm_on() -> None:
    A = np.random.default_rng(1).standard_normal((6, 5))
    norm = float(np.linalg.norm(A, 2))
    assert NuclearNorm(norm * (1 + 1e-12)).prox(A, 1.0).rank == 0
    assert NuclearNorm(norm * (1 - 1e-12)).prox(A, 1.0).rank == 1


def test_prox_does_not_depend_on_the_rank_guess() -> None:
    A = np.random.default_rng(3).standard_normal((340, 330))
    penalty = NuclearNorm(30.0)
    reference = penalty.prox(A, 1.0).dense()
    for guess in (1, 40, 400):
        # Lanczos and the full SVD are both accurate to a small multiple of eps * ||A||, ||A|| = 37.
        np.testing.assert_allclose(penalty.prox(A, 1.0, guess).dense(), reference, atol=1e-11)


def test_a_weight_or_a_step_that_is_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="alpha"):
        NuclearNorm(-1.0)
    with pytest.raises(InvalidParameterError, match="step_size"):
        NuclearNorm(1.0).prox(np.eye(2), 0.0)


class Quadratic:
    """``sum_ij h_ij (M_ij - target_ij)^2 / 2``; with h = 1 the penalised minimum is a shrunken target."""

    def __init__(self, target: FloatArray, curvature: npt.ArrayLike = 1.0) -> None:
        self.target = target
        self.curvature = np.asarray(curvature, target.dtype)

    def value(self, M: LowRankMatrix) -> float:
        return float(np.sum(self.curvature * (M.dense() - self.target) ** 2, dtype=np.float64)) / 2

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        rest = point.dense() - self.target
        value = float(np.sum(self.curvature * rest**2, dtype=np.float64)) / 2
        return value, self.curvature * rest


class Poisoned(Quadratic):
    """Turns into NaN away from zero."""

    def value(self, M: LowRankMatrix) -> float:
        return float("nan") if M.rank else super().value(M)


class Undecreasable(Quadratic):
    """Promises less than any point has, so that no step keeps the promise."""

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        value, gradient = super().value_and_gradient(point)
        return value / 2, gradient


def _target(dtype: type = np.float64) -> FloatArray:
    target: FloatArray = np.random.default_rng(0).standard_normal((9, 6)).astype(dtype)
    return target


@dataclass(frozen=True)
class Step:
    """One accepted step: from a search point to M."""

    search_point: FactoredPoint
    M: LowRankMatrix
    value: float
    step_size: float


def _take_steps(smooth: Quadratic, n_steps: int, start: LowRankMatrix | None = None) -> list[Step]:
    """Take proximal gradient steps, each from the point before it and with a larger first trial."""
    penalty, step_size, steps = NuclearNorm(1.5), 0.01, []
    M = LowRankMatrix.zeros(*smooth.target.shape, smooth.target.dtype) if start is None else start
    for _ in range(n_steps):
        point = FactoredPoint.of(M)
        M, value, step_size = proximal_step(
            smooth, penalty, point, *smooth.value_and_gradient(point), 1.5 * step_size, M.rank
        )
        steps.append(Step(point, M, value, step_size))
    return steps


@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        np.float64,
    ],
)
def test_quadratic_reaches_its_closed_form_minimum_within_sixty_steps(dtype: type) -> None:
    target = _target(dtype)
    U, s, Vt = np.linalg.svd(target.astype(np.float64), full_matrices=False)
    last = _take_steps(Quadratic(target), 60)[-1]
    assert last.M.U.dtype == last.M.s.dtype == dtype
    assert last.M.rank == np.count_nonzero(s > 1.5)
    # Accepted steps fall short of 1/L by the growth and shrinkage factors only; float32 allows
    # moves below sqrt(4 eps * value) = 3e-3 to be accepted whatever their size.
    tolerance = 3e-3 if dtype == np.float32 else 1e-7
    np.testing.assert_allclose(last.M.dense(), (U * np.maximum(s - 1.5, 0)) @ Vt, atol=tolerance)


def test_badly_conditioned_quadratic_agrees_with_steps_of_fixed_size() -> None:
    curvature = np.geomspace(1.0, 10.0, 54).reshape(9, 6)
    smooth, penalty = Quadratic(_target(), curvature), NuclearNorm(1.5)
    M = LowRankMatrix.zeros(9, 6, np.float64)
    for _ in range(600):
        _, gradient = smooth.value_and_gradient(FactoredPoint.of(M))
        M = penalty.prox(M.dense() - 0.1 * gradient, 0.1)
    last = _take_steps(smooth, 600)[-1]
    # Linear rate 1 - 1/10 of the plain method: exp(-60) after 600 steps; at half its step size exp(-30).
    expected = smooth.value(M) + penalty.alpha * M.nuclear_norm
    assert last.value + penalty.alpha * last.M.nuclear_norm == pytest.approx(expected, rel=1e-10)


def test_accepted_step_satisfies_the_quadratic_model() -> None:
    smooth = Quadratic(_target(), np.geomspace(1.0, 100.0, 54).reshape(9, 6))
    for step in _take_steps(smooth, 50):
        value, gradient = smooth.value_and_gradient(step.search_point)
        move = step.M.dense() - step.search_point.dense()
        model = value + np.vdot(gradient, move) + np.sum(move**2) / (2 * step.step_size)
        assert step.value == pytest.approx(smooth.value(step.M), rel=1e-14)
        assert step.value <= model + 1e-12 * (1 + abs(value))  # rounding


def test_a_larger_first_trial_is_accepted_as_far_as_the_curvature_allows() -> None:
    assert _take_steps(Quadratic(_target()), 30)[-1].step_size > 0.3  # L = 1 allows 1, halved at worst twice


def test_nan_loss_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="the loss became nan"):
        _take_steps(Poisoned(10 * _target()), 5)


def test_unreachable_model_is_a_numerical_error() -> None:
    with pytest.raises(NumericalError, match="no step decreased the objective"):
        _take_steps(Undecreasable(10 * _target()), 5)


def test_solution_is_a_fixed_point_of_the_step_and_satisfies_the_optimality_condition(
    pairs: SyntheticPairs,
) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    loss = PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64)
    model = LowRankBilinear(alpha_fraction=0.1, fit_intercept=False, dtype=np.float64, tol=1e-12)
    model.fit(pairs.X, pairs.Z, supervision)
    M, alpha = from_factors(model.x_factors_, model.z_factors_), model.alpha_
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    moved, _, _ = proximal_step(loss, NuclearNorm(alpha), point, value, gradient, 1.0, M.rank)
    np.testing.assert_allclose(moved.dense(), M.dense(), atol=1e-5)
    # -l'(M) / alpha = U V^T + W with ||W||_2 <= 1; 1e-5 allows for the gap.
    np.testing.assert_allclose(-gradient @ M.V / alpha, M.U, atol=1e-5)
    np.testing.assert_allclose(-gradient.T @ M.U / alpha, M.V, atol=1e-5)
    assert np.linalg.norm(gradient, 2) <= alpha * (1 + 1e-5)


ALPHA = 0.01


def _loss(pairs: SyntheticPairs, dtype: type = np.float64) -> PairLogisticLoss:
    return PairLogisticLoss(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), dtype)


class _CountingLoss(PairLogisticLoss):
    n_evaluations = 0

    def value_and_factor_gradients(
        self, A: FloatArray, B: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        self.n_evaluations += 1
        return super().value_and_factor_gradients(A, B)


def _point(rank: int, seed: int = 0) -> LowRankMatrix:
    rng = np.random.default_rng(seed)
    return singular_triplets_above(rng.standard_normal((8, rank)) @ rng.standard_normal((rank, 6)), 1e-8)


def _refine(pairs: SyntheticPairs, M: LowRankMatrix, **options: Any) -> tuple[LowRankMatrix, float]:
    loss = _loss(pairs, M.s.dtype.type)
    spectra = GramSpectrum.of(pairs.X), GramSpectrum.of(pairs.Z)
    return refine_factors(loss, spectra, ALPHA, M, **{"max_evaluations": 1000, "reduction": 0.0, **options})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_evaluations", [1, 3, 150])
def test_refinement_never_raises_the_objective_nor_the_rank(
    pairs: SyntheticPairs, dtype: type, max_evaluations: int
) -> None:
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    for rank in (1, 3, 6):
        M = _point(rank).astype(dtype)
        refined = _refine(pairs, M, max_evaluations=max_evaluations, relative_tolerance=1e-9)[0]
        before, after = dense.objective(M.dense(), ALPHA), dense.objective(refined.dense(), ALPHA)
        assert after <= before * (1 + 10 * float(np.finfo(dtype).eps))  # rounding of one evaluation
        assert refined.rank <= rank
        assert refined.U.dtype == refined.s.dtype == refined.V.dtype == dtype


def test_refined_point_is_stationary_on_its_own_subspaces(pairs: SyntheticPairs) -> None:
    refined = _refine(pairs, _point(2), max_evaluations=5000)[0]
    gradient = _loss(pairs).value_and_gradient(FactoredPoint.of(refined))[1]
    # l' V = -alpha U and l'^T U = -alpha V; float64 hides decreases of 1e-15, the square of this.
    np.testing.assert_allclose(gradient @ refined.V, -ALPHA * refined.U, atol=1e-6)
    np.testing.assert_allclose(gradient.T @ refined.U, -ALPHA * refined.V, atol=1e-6)


def test_neither_modality_is_preferred_where_one_has_features_of_very_different_sizes() -> None:
    data = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=4, random_state=0)
    sizes = np.geomspace(1.0, 0.01, 8)
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((8, 2)) / sizes[:, None], rng.standard_normal((6, 2))
    sides = (data.X * sizes, data.x_labels, A), (data.Z, data.z_labels, B)
    counts, points = [], []
    for (X, x_labels, left), (Z, z_labels, right) in (sides, sides[::-1]):
        loss = _CountingLoss(X, Z, Labels(x_labels, z_labels), np.float64)
        spectra = GramSpectrum.of(X), GramSpectrum.of(Z)
        start = from_factors(left, right)
        points.append(refine_factors(loss, spectra, 1e-4, start, max_evaluations=500, reduction=0.01)[0])
        counts.append(loss.n_evaluations)
    # The two descents mirror each other, up to rounding: a scaling of one side alone would differ by itself.
    assert counts[0] == counts[1]
    assert counts[0] < 20  # 9 were counted, 25 without a change of variables
    np.testing.assert_allclose(points[0].dense(), points[1].dense().T, rtol=1e-6, atol=1e-6)


def _decaying(n_samples: int, n_features: int, rate: float = 1.5) -> npt.NDArray[np.float64]:
    """Return samples with singular values that fall like a power, in a random basis."""
    rng = np.random.default_rng(0)
    k = min(n_samples, n_features)
    U = np.linalg.qr(rng.standard_normal((n_samples, k)))[0]
    V = np.linalg.qr(rng.standard_normal((n_features, k)))[0]
    X: npt.NDArray[np.float64] = (U * np.arange(1, k + 1.0) ** -rate) @ V.T
    return X


def _model_gram(spectrum: GramSpectrum) -> FloatArray:
    """Return the dense matrix that a spectrum stands for."""
    n_features = len(spectrum.vectors)
    dense: FloatArray = spectrum.quadratic_form(np.eye(n_features))
    return dense


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("shape", [(50, 8), (8, 50), (1, 3), (30, 30)])
def test_spectrum_of_few_features_is_the_whole_gram_matrix(shape: tuple[int, int], as_sparse: bool) -> None:
    X = np.random.default_rng(1).standard_normal(shape)
    spectrum = GramSpectrum.of(scipy.sparse.csr_array(X) if as_sparse else X)
    assert spectrum.rest == 0.0
    assert (spectrum.values >= 0).all()
    tolerance = 1e-12 * np.linalg.norm(X.T @ X, 2)  # eps times a few
    np.testing.assert_allclose(_model_gram(spectrum), X.T @ X, atol=tolerance)
    np.testing.assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(shape[1]), atol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_spectrum_of_many_features_has_the_leading_eigenvalues_and_the_mean_of_the_rest(
    as_sparse: bool,
) -> None:
    X = _decaying(500, 450)
    spectrum = GramSpectrum.of(scipy.sparse.csr_array(X) if as_sparse else X)
    exact = np.linalg.eigvalsh(X.T @ X)
    q = len(spectrum.values)
    assert q < 450
    assert spectrum.vectors.shape == (450, q)
    np.testing.assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(q), atol=1e-12)
    # The error of two power iterations is (192 / 160)^(-6 * 5) for the last value, far less for the leading.
    np.testing.assert_allclose(spectrum.values[-100:], exact[-100:], rtol=1e-3)
    assert spectrum.values.sum() + (450 - q) * spectrum.rest == pytest.approx(exact.sum(), rel=1e-12)
    assert spectrum.rest >= 0.0


def test_quadratic_form_of_a_truncated_spectrum_is_that_of_its_matrix() -> None:
    spectrum = GramSpectrum.of(_decaying(500, 450, rate=0.5))
    dense = spectrum.rest * (np.eye(450) - spectrum.vectors @ spectrum.vectors.T)
    dense += (spectrum.vectors * spectrum.values) @ spectrum.vectors.T
    B = np.random.default_rng(2).standard_normal((450, 3))
    np.testing.assert_allclose(spectrum.quadratic_form(B), B.T @ dense @ B, rtol=1e-10, atol=1e-12)


def test_spectrum_of_very_many_samples_is_estimated_from_some_of_them() -> None:
    X = np.random.default_rng(3).standard_normal((20_000, 5)) * [5.0, 4.0, 3.0, 2.0, 1.0]
    spectrum = GramSpectrum.of(X)
    # 4000 of the samples give each eigenvalue within sqrt(2 / 4000) = 2.2 %, five times that is allowed.
    np.testing.assert_allclose(spectrum.values, np.linalg.eigvalsh(X.T @ X), rtol=0.11)


def _scaling(n_features: int, k: int) -> tuple[FactorPreconditioner, FloatArray, FloatArray, FloatArray]:
    """Return a scaling, the model's Gram matrix, the inner matrix and a factor."""
    rng = np.random.default_rng(4)
    spectrum = GramSpectrum.of(_decaying(n_features + 20, n_features, rate=0.8))
    ZB = rng.standard_normal((40, k)) * np.arange(1, k + 1.0)
    inner: FloatArray = ZB.T @ ZB
    scaling = FactorPreconditioner(spectrum, inner, curvature=0.2, alpha=0.03)
    return scaling, _model_gram(spectrum), inner, rng.standard_normal((n_features, k))


SIZES = [(7, 3), (7, 1), (3, 5), (420, 2)]  # the last with a truncated spectrum


@pytest.mark.parametrize(("n_features", "k"), SIZES)
def test_a_scaling_makes_the_model_hessian_the_identity(n_features: int, k: int) -> None:
    scaling, gram, inner, A = _scaling(n_features, k)
    np.testing.assert_allclose(scaling.factor(scaling.scale(A)), A, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(scaling.scale(scaling.factor(A)), A, rtol=1e-10, atol=1e-11)
    # The scaled gradient is the adjoint of the inverse.
    gradient = np.random.default_rng(5).standard_normal(A.shape)
    direct = np.vdot(scaling.factor(A), gradient)
    assert np.vdot(A, scaling.scale_gradient(gradient)) == pytest.approx(direct, rel=1e-10)

    def hessian(direction: Any) -> Any:
        return 0.2 * gram @ direction @ inner + 0.03 * direction

    np.testing.assert_allclose(scaling.scale_gradient(hessian(scaling.factor(A))), A, rtol=1e-9, atol=1e-10)


def test_scaling_without_curvature_is_the_root_of_alpha() -> None:
    spectrum = GramSpectrum.of(np.random.default_rng(6).standard_normal((9, 4)))
    scaling = FactorPreconditioner(spectrum, np.eye(2), curvature=0.0, alpha=0.25)
    A = np.random.default_rng(7).standard_normal((4, 2))
    scaled = scaling.scale(A)
    # A rotation within the rank is all that may happen besides.
    np.testing.assert_allclose(scaled @ scaled.T, 0.25 * A @ A.T, atol=1e-14)
    np.testing.assert_allclose(scaling.factor(scaled), A, atol=1e-14)
