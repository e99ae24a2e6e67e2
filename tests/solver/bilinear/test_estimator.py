from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
import scipy.optimize

from solver import (
    Labels,
    LowRankBilinear,
    StopReason,
    alpha_max,
    make_low_rank_pairs,
)
from solver.bilinear.solving import BilinearProblem
from solver.datasets import SyntheticPairs, load_wikipedia
from solver.validation import ConvergenceWarning, InvalidParameterError, SupervisionError
from tests.solver.dense import DenseProblem


def _dense_solution(model: LowRankBilinear) -> npt.NDArray[np.float64]:
    left = np.vstack([model.x_factors_, model.x_intercept_]).astype(np.float64)
    right = np.vstack([model.z_factors_, model.z_intercept_]).astype(np.float64)
    product: npt.NDArray[np.float64] = left @ right.T
    return product


def _fit(pairs: SyntheticPairs, share: float = 0.1, **parameters: Any) -> LowRankBilinear:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    fit_intercept = parameters.get("fit_intercept", True)
    alpha = share * alpha_max(pairs.X, pairs.Z, supervision, fit_intercept=fit_intercept)
    return LowRankBilinear(alpha, **parameters).fit(pairs.X, pairs.Z, supervision)


def _assert_apg_agrees_with_paper(X: Any, Z: Any, x_labels: Any, z_labels: Any, share: float) -> None:
    supervision = Labels(x_labels, z_labels)
    alpha = share * alpha_max(X, Z, supervision)
    paper = LowRankBilinear(alpha, solver="paper", tol=5e-4, max_iter=20000).fit(X, Z, supervision)
    apg = LowRankBilinear(alpha, tol=5e-4).fit(X, Z, supervision)
    assert paper.converged_
    assert apg.converged_
    dense = DenseProblem(X, Z, x_labels, z_labels, fit_intercept=True)
    for model in (paper, apg):
        M = _dense_solution(model)
        # The certificate is for the stored factors, in float64; the gap is a difference of numbers near one.
        assert dense.objective(M, alpha) == pytest.approx(model.objective_, rel=1e-12)
        assert dense.relative_gap(M, alpha) == pytest.approx(model.duality_gap_, abs=1e-10)
        assert dense.relative_gap(M, alpha) <= 5e-4
    # Both lie within tol of the optimum, hence of each other.
    assert apg.objective_ == pytest.approx(paper.objective_, rel=1e-3)


@pytest.mark.data
def test_apg_reaches_the_paper_objective_on_wikipedia(test_data: Path) -> None:
    data = load_wikipedia(test_data / "wikipedia")
    rows = np.flatnonzero(data.is_train)[::10]
    X, Z = (features[rows] - features[rows].mean(0) for features in (data.X, data.Z))
    X, Z = (features / np.sqrt(np.mean(np.sum(features**2, axis=1))) for features in (X, Z))
    _assert_apg_agrees_with_paper(X, Z, data.labels[rows], data.labels[rows], 0.2)


# More features than samples; unequal numbers of samples.
@pytest.mark.parametrize("sizes", [(40, 45, 70, 9), (200, 33, 12, 10)])
def test_apg_reaches_the_paper_objective(sizes: tuple[int, ...]) -> None:
    m, n, d1, d2 = sizes
    data = make_low_rank_pairs(m, n, n_features_x=d1, n_features_z=d2, noise=0.8, random_state=1)
    _assert_apg_agrees_with_paper(data.X, data.Z, data.x_labels, data.z_labels, 0.05)


@pytest.mark.parametrize("solver", ["apg", "paper"])
def test_reported_gap_and_objective_equal_the_dense_formula(pairs: SyntheticPairs, solver: str) -> None:
    model = _fit(pairs, solver=solver, dtype=np.float64)
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels, fit_intercept=True)
    # Float64 throughout; the gap is a difference of numbers near one.
    assert model.objective_ == pytest.approx(dense.objective(_dense_solution(model), model.alpha), rel=1e-12)
    assert model.duality_gap_ == pytest.approx(
        dense.relative_gap(_dense_solution(model), model.alpha), abs=1e-11
    )
    assert (
        model.converged_ == (model.stop_reason_ is StopReason.CONVERGED) == (model.duality_gap_ <= model.tol)
    )


@pytest.mark.parametrize("solver", ["apg", "paper"])
@pytest.mark.parametrize("factor", [1.0 + 1e-9, 2.0])
def test_solution_is_zero_from_alpha_max_on(pairs: SyntheticPairs, solver: str, factor: float) -> None:
    model = _fit(pairs, factor, solver=solver, dtype=np.float64)
    assert model.rank_ == 0
    assert model.duality_gap_ < 1e-14  # rounding of two sums
    assert model.objective_ == pytest.approx(2 * np.log(2.0), rel=1e-12)
    assert model.project_x(pairs.X).shape == (60, 0)
    np.testing.assert_array_equal(model.similarity(pairs.X, pairs.Z), np.zeros((60, 50)))


@pytest.mark.parametrize("solver", ["apg", "paper"])
def test_solution_is_not_zero_just_below_alpha_max(pairs: SyntheticPairs, solver: str) -> None:
    model = _fit(pairs, 0.99, solver=solver, tol=1e-7, max_iter=20000)
    assert model.rank_ >= 1
    assert model.objective_ < 2 * np.log(2.0)


def test_solution_without_noise_is_the_closed_form_multiple_of_the_planted_matrix() -> None:
    data = make_low_rank_pairs(40, 35, n_features_x=9, n_features_z=8, noise=0.0, random_state=3)
    model = _fit(data, 0.2, fit_intercept=False, dtype=np.float64, tol=1e-7)

    def derivative(a: float) -> float:
        # Scores are a for similar and -a/4 for dissimilar pairs, the nuclear norm is 4 a.
        return -1 / (1 + np.exp(a)) - 0.25 / (1 + np.exp(a / 4)) + 4 * model.alpha

    multiple = scipy.optimize.brentq(derivative, 0.0, 100.0)
    assert model.rank_ == 4
    # The objective is locally quadratic, so that M is known to the root of the gap: 3e-4.
    np.testing.assert_allclose(model.singular_values_, multiple, rtol=1e-3)
    np.testing.assert_allclose(model.x_factors_ @ model.z_factors_.T, multiple * data.M, atol=1e-3 * multiple)


def test_factors_are_balanced_and_carry_the_singular_values(pairs: SyntheticPairs) -> None:
    model = _fit(pairs, dtype=np.float64)
    left = np.vstack([model.x_factors_, model.x_intercept_])
    right = np.vstack([model.z_factors_, model.z_intercept_])
    for factors in (left, right):
        np.testing.assert_allclose(factors.T @ factors, np.diag(model.singular_values_), atol=1e-10)
    assert np.all(np.diff(model.singular_values_) <= 0)
    assert model.rank_ == len(model.singular_values_)


def test_intercept_is_the_constant_feature(pairs: SyntheticPairs) -> None:
    with_constant = SyntheticPairs(
        np.column_stack([pairs.X, np.ones(60)]),
        np.column_stack([pairs.Z, np.ones(50)]),
        pairs.x_labels,
        pairs.z_labels,
        pairs.M,
    )
    by_hand = _fit(with_constant, fit_intercept=False, dtype=np.float64)
    built_in = _fit(pairs, dtype=np.float64)
    # The size of the samples is summed up in another order: eps, which the iterations may multiply.
    np.testing.assert_allclose(
        by_hand.x_factors_ @ by_hand.z_factors_.T, _dense_solution(built_in), rtol=1e-8, atol=1e-8
    )
    assert by_hand.objective_ == pytest.approx(built_in.objective_, rel=1e-12)


def test_intercepts_are_zero_without_fit_intercept(pairs: SyntheticPairs) -> None:
    model = _fit(pairs, fit_intercept=False)
    np.testing.assert_array_equal(model.x_intercept_, np.zeros(model.rank_))
    np.testing.assert_array_equal(model.z_intercept_, np.zeros(model.rank_))


@pytest.mark.parametrize("solver", ["apg", "paper"])
def test_iteration_limit_is_a_convergence_warning(pairs: SyntheticPairs, solver: str) -> None:
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        model = _fit(pairs, solver=solver, max_iter=2, tol=1e-8)
    assert model.stop_reason_ is StopReason.MAX_ITER
    assert not model.converged_
    assert model.n_iter_ == 2
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels, fit_intercept=True)
    gap = dense.relative_gap(_dense_solution(model), model.alpha)
    assert gap > 1e-8
    assert model.duality_gap_ == pytest.approx(gap, rel=1e-10)


def test_warm_start_at_the_solution_takes_no_more_iterations(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model = _fit(pairs, warm_start=True)
    cold = model.n_iter_
    model.fit(pairs.X, pairs.Z, supervision)
    assert model.n_iter_ <= cold
    assert model.history_[0].objective <= model.objective_ * (1 + 1e-3)  # already there, up to tol


def test_warm_start_follows_a_path_to_the_same_optimum(pairs: SyntheticPairs) -> None:
    model = _fit(pairs, 0.3, warm_start=True)
    cold = _fit(pairs, 0.1)
    model.set_params(alpha=cold.alpha).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    assert model.n_iter_ <= cold.n_iter_
    assert model.objective_ == pytest.approx(cold.objective_, rel=1e-3)  # both within tol


def test_warm_start_on_other_dimensions_begins_at_zero(pairs: SyntheticPairs) -> None:
    model = _fit(pairs, warm_start=True)
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model.fit(pairs.X[:, :5], pairs.Z, supervision)
    cold = LowRankBilinear(model.alpha).fit(pairs.X[:, :5], pairs.Z, supervision)
    np.testing.assert_array_equal(model.x_factors_, cold.x_factors_)


def test_history_is_consistent_with_the_result(pairs: SyntheticPairs) -> None:
    model = _fit(pairs)
    assert [entry.iteration for entry in model.history_] == list(range(1, model.n_iter_ + 1))
    assert model.history_[-1].rank == model.rank_
    assert model.history_[-1].objective == pytest.approx(model.objective_, rel=1e-5)  # float32 sums
    seconds = [entry.seconds for entry in model.history_]
    assert seconds == sorted(seconds)
    for entry in model.history_:
        # A valid bound at every step: nothing is further from the optimum than its gap says.
        assert entry.gap is None or entry.objective * (1 - entry.gap) <= model.objective_ * (1 + 1e-5)


@pytest.mark.parametrize("solver", ["apg", "paper"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha_fraction", [1.0, 0.05])
def test_alpha_fraction_gives_the_factors_of_that_share_of_alpha_max(
    pairs: SyntheticPairs, solver: str, fit_intercept: bool, alpha_fraction: float
) -> None:
    X, Z, supervision = 3e4 * pairs.X, 1e-3 * pairs.Z, Labels(pairs.x_labels, pairs.z_labels)
    largest = alpha_max(X, Z, supervision, fit_intercept=fit_intercept)
    options = {"solver": solver, "fit_intercept": fit_intercept, "tol": 1e-2}
    by_alpha = LowRankBilinear(alpha_fraction * largest, **options).fit(X, Z, supervision)
    by_fraction = LowRankBilinear(alpha_fraction=alpha_fraction, **options).fit(X, Z, supervision)
    assert (by_fraction.alpha, by_fraction.alpha_fraction) == (None, alpha_fraction)
    assert by_fraction.alpha_ == by_alpha.alpha_ == alpha_fraction * largest
    assert by_fraction.alpha_max_ == by_alpha.alpha_max_ == largest
    np.testing.assert_array_equal(by_fraction.x_factors_, by_alpha.x_factors_)
    np.testing.assert_array_equal(by_fraction.z_factors_, by_alpha.z_factors_)


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_alpha_fraction_is_of_the_chosen_loss(pairs: SyntheticPairs, loss: str) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model = LowRankBilinear(alpha_fraction=0.1, loss=loss).fit(pairs.X, pairs.Z, supervision)
    assert model.alpha_ == 0.1 * alpha_max(pairs.X, pairs.Z, supervision, loss=loss)


def test_weight_without_alpha_and_alpha_fraction_is_a_thousandth(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model = LowRankBilinear().fit(pairs.X, pairs.Z, supervision)
    assert model.alpha_ == 1e-3
    same = LowRankBilinear(1e-3).fit(pairs.X, pairs.Z, supervision)
    np.testing.assert_array_equal(model.x_factors_, same.x_factors_)


def test_alpha_and_alpha_fraction_exclude_each_other(pairs: SyntheticPairs) -> None:
    model = LowRankBilinear(0.01, alpha_fraction=0.1)
    with pytest.raises(
        InvalidParameterError, match="alpha_fraction must be None where alpha is given"
    ) as error:
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    assert (error.value.name, error.value.value) == ("alpha_fraction", 0.1)


def test_alpha_fraction_of_samples_without_information_is_a_supervision_error(pairs: SyntheticPairs) -> None:
    model = LowRankBilinear(alpha_fraction=0.1, fit_intercept=False)
    with pytest.raises(SupervisionError, match="alpha_max is zero"):
        model.fit(np.zeros_like(pairs.X), pairs.Z, Labels(pairs.x_labels, pairs.z_labels))


def test_the_problem_is_prepared_once(pairs: SyntheticPairs, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[BilinearProblem] = []

    def prepare(*arguments: Any) -> BilinearProblem:
        prepared.append(BilinearProblem(*arguments))
        return prepared[-1]

    monkeypatch.setattr("solver.bilinear.estimator.BilinearProblem", prepare)
    LowRankBilinear(alpha_fraction=0.1).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    assert len(prepared) == 1
