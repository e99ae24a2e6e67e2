import numpy as np
import pytest
import scipy.optimize

from solver import Labels, LowRankBilinear, alpha_max, make_low_rank_pairs
from solver.datasets import SyntheticPairs
from solver.linalg import LowRankMatrix, from_factors, singular_triplets_above
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.convergence import Certificate, certify
from tests.solver.dense import DenseProblem


def _planted_optimum(n_classes: int, alpha: float) -> float:
    """Return the multiple of the planted M that is optimal for balanced classes without noise."""
    # Such a problem is symmetric under any permutation of the classes, so its optimum is a multiple a of the
    # planted M, whose scores are a for similar and -a / (n_classes - 1) for dissimilar pairs.
    others = n_classes - 1

    def derivative(a: float) -> float:
        similar = -1.0 / (1.0 + np.exp(a))
        dissimilar = -1.0 / (others * (1.0 + np.exp(a / others)))
        return float(similar + dissimilar + alpha * others)

    return float(scipy.optimize.brentq(derivative, 0.0, 100.0, xtol=1e-14, rtol=1e-14))


def test_gap_vanishes_at_the_closed_form_optimum() -> None:
    data = make_low_rank_pairs(20, 15, n_features_x=8, n_features_z=7, noise=0.0, random_state=0)
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = alpha_max(data.X, data.Z, supervision, fit_intercept=False) / 5
    M = singular_triplets_above(_planted_optimum(5, alpha) * data.M, 1e-10)
    certificate = certify(PairLogisticLoss(data.X, data.Z, supervision, np.float64), M, alpha)
    assert M.rank == 4
    # The gap's slope at the optimum is finite, so it is as exact as the root: 1e-14 and rounding.
    assert certificate.relative_gap < 1e-12


def test_gap_bounds_the_distance_to_a_long_reference_run(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    alpha = alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=False) / 10
    reference = LowRankBilinear(alpha, solver="paper", tol=1e-7, max_iter=20000, fit_intercept=False)
    optimum = reference.fit(pairs.X, pairs.Z, supervision).objective_
    loss = PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64)
    rng = np.random.default_rng(0)
    solution = reference.x_factors_ @ reference.z_factors_.T
    for noise in (0.0, 1e-6, 1e-3, 1e-1, 1.0, 10.0):
        M = singular_triplets_above(solution + noise * rng.standard_normal(solution.shape), 0.0)
        certificate = certify(loss, M, alpha)
        # The reference itself is known up to its tolerance.
        assert certificate.objective - certificate.dual_value >= (certificate.objective - optimum) - 1e-12
        assert certificate.dual_value <= optimum * (1 + 1e-12)
        dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
        assert certificate.objective == pytest.approx(dense.objective(M.dense(), alpha), rel=1e-12)
        assert certificate.dual_value == pytest.approx(dense.dual_value(M.dense(), alpha), rel=1e-9)


@pytest.mark.parametrize("factor", [1.0, 1.5, 100.0])
def test_zero_is_certified_optimal_from_alpha_max_on(pairs: SyntheticPairs, factor: float) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    alpha = factor * alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=False)
    zero = LowRankMatrix.zeros(8, 6, np.float64)
    certificate = certify(PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64), zero, alpha)
    assert certificate.objective == pytest.approx(2 * np.log(2.0), rel=1e-14)
    assert certificate.relative_gap < 1e-14  # rounding of two sums


def test_zero_is_not_certified_below_alpha_max(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    alpha = 0.9 * alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=False)
    loss = PairLogisticLoss(pairs.X, pairs.Z, supervision, np.float64)
    certificate = certify(loss, LowRankMatrix.zeros(8, 6, np.float64), alpha)
    # Closed form: log 2 - H(0.45) relative to log 2.
    entropy = -0.45 * np.log(0.45) - 0.55 * np.log(0.55)
    assert certificate.relative_gap == pytest.approx(1 - entropy / np.log(2.0), rel=1e-10)


def test_relative_gap_is_never_negative() -> None:
    assert Certificate(1.0, 1.0 + 1e-16).relative_gap == 0.0
    assert Certificate(2.0, 1.0).relative_gap == 0.5


FRACTIONS = [1 / 3, 1 / 10, 1 / 30, 1 / 100, 1 / 300, 1 / 1000]
NOISES, SHAPES = [0.5, 2.0, 6.0], [(80, 70, 12, 11), (40, 90, 70, 8)]
OFFSETS = [0.0, 30.0]  # far from centred, rounding matters most
# Any two of a fraction, a noise, a shape and an offset meet.
CASES = [
    (fraction, noise, SHAPES[(i + j) % 2], OFFSETS[(i // 2 + j) % 2])
    for i, fraction in enumerate(FRACTIONS)
    for j, noise in enumerate(NOISES)
]


@pytest.mark.parametrize(("fraction", "noise", "shape", "offset"), CASES)
def test_gap_reported_by_float32_work_holds_in_dense_float64(
    fraction: float,
    noise: float,
    shape: tuple[int, int, int, int],
    offset: float,
) -> None:
    m, n, d1, d2 = shape
    data = make_low_rank_pairs(m, n, n_features_x=d1, n_features_z=d2, noise=noise, random_state=0)
    X, Z = (data.X + offset * (np.arange(d1) == 0)).astype(np.float32), data.Z.astype(np.float32)
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = fraction * alpha_max(X, Z, supervision)
    model = LowRankBilinear(alpha, dtype=np.float32).fit(X, Z, supervision)
    dense = DenseProblem(X, Z, data.x_labels, data.z_labels, fit_intercept=True)
    assert model.converged_
    assert model.duality_gap_ <= 1e-3
    # The certificate is for the factors as stored, in float64; both sides sum the same numbers in another
    # order, and a shift of the scores in their last digits moves the gap by a thousand times as much.
    assert dense.relative_gap_of(model) == pytest.approx(model.duality_gap_, abs=1e-9)


@pytest.mark.parametrize("fraction", FRACTIONS)
def test_reported_gap_bounds_the_distance_to_a_run_of_a_thousand_times_smaller_tolerance(
    fraction: float,
) -> None:
    data = make_low_rank_pairs(80, 70, n_features_x=12, n_features_z=11, noise=2.0, random_state=1)
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = fraction * alpha_max(data.X, data.Z, supervision)
    exact = LowRankBilinear(alpha, dtype=np.float64, tol=1e-6).fit(data.X, data.Z, supervision)
    for tol in (0.1, 1e-2, 1e-3):
        model = LowRankBilinear(alpha, tol=tol).fit(data.X, data.Z, supervision)
        assert model.duality_gap_ <= tol
        lower = model.objective_ * (1 - model.duality_gap_)
        assert lower <= exact.objective_
        assert exact.objective_ * (1 - exact.duality_gap_) <= model.objective_


def test_bound_that_is_good_enough_saves_the_entropies(pairs: SyntheticPairs) -> None:
    loss = PairLogisticLoss(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), np.float64)
    alpha = 0.3 * alpha_max(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), fit_intercept=False)
    model = LowRankBilinear(alpha, tol=1e-2, fit_intercept=False, dtype=np.float64)
    model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    M = from_factors(model.x_factors_, model.z_factors_)
    sharp, loose = (certify(loss, M, 0.9 * alpha, enough) for enough in (0.0, 0.5))
    assert loose.objective == sharp.objective
    assert loose.dual_value < sharp.dual_value  # still a bound, though a weaker one
    assert certify(loss, M, 0.9 * alpha, 1e-9).dual_value == sharp.dual_value
