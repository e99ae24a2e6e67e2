from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone

from solver import (
    CandidateProgress,
    IterationProgress,
    Labels,
    LowRankBilinear,
    LowRankBilinearCV,
    MultiLabels,
    PairedRows,
    Progress,
    SignedPairs,
    alpha_max,
    make_low_rank_pairs,
    mean_average_precision,
)
from solver.bilinear.estimator import fit_projector, select_on
from solver.bilinear.solving import BilinearProblem, regularisation_path
from solver.datasets import SyntheticPairs
from solver.evaluation.splits import LabelledPair, stratified_folds
from solver.scaling.estimator import FeatureScaler
from solver.validation import InvalidInputError, InvalidParameterError, SupervisionError


def _related(noise: float = 0.5, seed: int = 0) -> LabelledPair:
    data = make_low_rank_pairs(120, 100, n_classes=4, noise=noise, random_state=seed)
    names = np.array(["ant", "bee", "cat", "dog"])
    return LabelledPair(data.X, data.Z, names[data.x_labels], names[data.z_labels])


def _unrelated(seed: int) -> LabelledPair:
    """Return samples that say nothing of their classes, which stand class by class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(list("abcdefghij"), 60)
    return LabelledPair(rng.standard_normal((600, 20)), rng.standard_normal((600, 15)), labels, labels)


def _split(data: LabelledPair, seed: int = 0) -> tuple[LabelledPair, LabelledPair]:
    """Return four fifths of each class to fit, and one fifth to hold out in random order."""
    rng = np.random.default_rng(seed)
    sides = ((data.X, data.x_labels), (data.Z, data.z_labels))
    folds = [[rng.permutation(fold) for fold in stratified_folds(labels, 5, rng)] for _, labels in sides]
    rows = [(np.concatenate(rest), held_out) for held_out, *rest in folds]
    fitting, held_out = (
        LabelledPair(data.X[x], data.Z[z], data.x_labels[x], data.z_labels[z])
        for x, z in zip(*rows, strict=True)
    )
    return fitting, held_out


def _random_average_precision(n_relevant: int, n_gallery: int) -> float:
    """Return the expected AveP of a random order: P(r) rel(r) averaged in closed form."""
    harmonic = float(np.sum(1.0 / np.arange(1, n_gallery + 1)))
    return (harmonic + (n_relevant - 1) / (n_gallery - 1) * (n_gallery - harmonic)) / n_gallery


def test_model_of_rank_zero_scores_as_a_random_order_does() -> None:
    # All its scores are equal, so its ranking is the order of the held-out rows: 12 of 120 are relevant.
    scores = []
    for seed in range(5):
        parts = _split(_unrelated(seed), seed)
        (candidate,) = select_on(*parts, scalings=("center",), alpha_fractions=(2.0,))
        assert candidate.rank == 0
        scores += [candidate.map_x_to_z, candidate.map_z_to_x]
    expected = _random_average_precision(12, 120)
    # One order gives ten values of AveP with a spread of about 0.04, so 0.013 each, and ten orders 0.004.
    assert np.mean(scores) == pytest.approx(expected, abs=0.015)
    assert max(scores) < expected + 0.05


def test_model_that_learned_wins_over_one_of_rank_zero() -> None:
    best, *others = select_on(*_split(_related()), scalings=("center",), alpha_fractions=(2.0, 0.05))
    assert best.alpha_fraction == 0.05
    assert best.rank >= 3
    assert best.mean > others[-1].mean + 0.3


def test_candidates_come_best_first_and_each_is_reported_once() -> None:
    seen: list[Progress] = []
    found = select_on(
        *_split(_related()),
        scalings=("l2", "center"),
        alpha_fractions=(0.01, 0.3),
        callback=seen.append,
    )
    scored = [progress for progress in seen if isinstance(progress, CandidateProgress)]
    assert len(scored) < len(seen)
    assert [each.mean for each in found] == sorted((each.mean for each in found), reverse=True)
    assert [(progress.number, progress.total) for progress in scored] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {progress.candidate for progress in scored} == set(found)
    assert [progress.candidate.alpha_fraction for progress in scored] == [0.3, 0.01] * 2
    assert {(each.scaling, each.alpha_fraction) for each in found} == {
        (scaling, share) for scaling in ("l2", "center") for share in (0.01, 0.3)
    }


def test_of_equal_candidates_the_stronger_penalty_comes_first() -> None:
    found = select_on(*_split(_related()), scalings=("center",), alpha_fractions=(2.0, 3.0))
    assert [each.alpha_fraction for each in found] == [3.0, 2.0]


def test_wide_samples_score_as_their_rotation_does() -> None:
    data = _related()
    rng = np.random.default_rng(0)
    wide = LabelledPair(
        data.X @ np.linalg.qr(rng.standard_normal((400, 20)))[0].T, data.Z, data.x_labels, data.z_labels
    )
    narrow, rotated = (
        select_on(*_split(each), scalings=("center",), alpha_fractions=(0.05,))[0] for each in (data, wide)
    )
    assert rotated.rank == narrow.rank
    assert rotated.mean == pytest.approx(narrow.mean, abs=0.02)  # both stop at a loose tolerance


def test_exception_of_the_callback_ends_the_selection() -> None:
    class StopHereError(Exception):
        pass

    def stop(progress: IterationProgress) -> None:
        raise StopHereError

    with pytest.raises(StopHereError):
        select_on(*_split(_related()), callback=stop)


@pytest.mark.parametrize(("name", "value"), [("scalings", ("whiten",)), ("alpha_fractions", (0.1, 0.0))])
def test_invalid_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
        select_on(*_split(_related()), **{name: value})


def test_held_out_parts_without_a_common_class_are_refused() -> None:
    rng = np.random.default_rng(0)
    held_out = LabelledPair(
        rng.random((2, 20)), rng.random((2, 15)), np.repeat("ant", 2), np.repeat("bee", 2)
    )
    with pytest.raises(InvalidInputError, match="no class in common"):
        select_on(_related(), held_out, scalings=("center",), alpha_fractions=(0.1,))


@pytest.mark.parametrize("scaling", ["center", "l2"])
def test_projector_is_the_scaled_estimator(scaling: str) -> None:
    data = _related()
    estimator = LowRankBilinear()
    projector = fit_projector(data, scaling, estimator, 0.05)
    x_scaler, z_scaler = FeatureScaler(scaling).fit(data.X), FeatureScaler(scaling).fit(data.Z)
    X, Z = x_scaler.transform(data.X), z_scaler.transform(data.Z)
    assert estimator.alpha_ == 0.05 * alpha_max(X, Z, Labels(data.x_labels, data.z_labels))
    assert (projector.x_scaling, projector.z_scaling) == (scaling, scaling)
    np.testing.assert_array_equal(projector.project_x(data.X), estimator.project_x(X))
    np.testing.assert_array_equal(projector.project_z(data.Z), estimator.project_z(Z))


def test_penalty_of_the_estimator_is_kept_without_a_fraction() -> None:
    estimator = LowRankBilinear(alpha=0.02)
    seen: list[IterationProgress] = []
    fit_projector(_related(), "center", estimator, None, seen.append)
    assert (estimator.alpha, estimator.alpha_) == (0.02, 0.02)
    assert seen == estimator.history_


def _noisy(seed: int = 0) -> SyntheticPairs:
    return make_low_rank_pairs(
        90, 80, n_features_x=14, n_features_z=11, n_classes=4, noise=2.0, random_state=seed
    )


def _fit(data: SyntheticPairs, **parameters: Any) -> LowRankBilinearCV:
    quick = {"n_alphas": 6, "n_folds": 3, **parameters}
    return LowRankBilinearCV(**quick).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))


@cache
def _fitted() -> LowRankBilinearCV:
    """Return one fitted on `_noisy()`, for tests that leave it as it is."""
    return _fit(_noisy())


def test_default_path_falls_from_alpha_max_to_a_thousandth() -> None:
    data, model = _noisy(), _fitted()
    largest = alpha_max(data.X, data.Z, Labels(data.x_labels, data.z_labels))
    assert model.cv_results_["alpha"][0] == pytest.approx(largest, rel=1e-12)
    assert model.cv_results_["alpha"][-1] == pytest.approx(largest / 1000, rel=1e-12)


def test_results_are_consistent_and_the_best_mean_is_chosen() -> None:
    results = (model := _fitted()).cv_results_
    both = (results["map_x_to_z"] + results["map_z_to_x"]) / 2
    assert both.shape == (6, 3)
    np.testing.assert_allclose(results["mean_map"], both.mean(axis=1))
    np.testing.assert_allclose(results["standard_error"], both.std(axis=1, ddof=1) / np.sqrt(3))
    assert model.alpha_ == results["alpha"][np.argmax(results["mean_map"])]
    assert (results["duality_gap"] <= 1e-2).all()
    assert (results["rank"][0] <= results["rank"][-1]).all()


def test_one_standard_error_chooses_the_strongest_penalty_that_is_nearly_best() -> None:
    excluded = set()
    for seed in (2, 4, 5):
        data = _noisy(seed)
        alphas = alpha_max(data.X, data.Z, Labels(data.x_labels, data.z_labels)) * np.geomspace(0.9, 0.1, 10)
        simple = _fit(data, alphas=alphas, one_standard_error=True)
        mean, error = simple.cv_results_["mean_map"], simple.cv_results_["standard_error"]
        top = int(np.argmax(mean))
        admissible = simple.cv_results_["alpha"][mean >= mean[top] - error[top]]
        assert simple.alpha_ == admissible.max()
        # What a rule that is wrong would have chosen here.
        others = {
            "the best": alphas[top],
            "the weakest": admissible.min(),
            "within its own error": alphas[mean + error >= mean[top]].max(),
            "within one standard deviation": alphas[mean >= mean[top] - np.sqrt(3) * error[top]].max(),
        }
        excluded |= {name for name, alpha in others.items() if alpha != simple.alpha_}
    assert len(excluded) == 4


def test_each_direction_is_scored_by_its_own_queries() -> None:
    data = make_low_rank_pairs(200, 200, n_classes=4, noise=0.5, random_state=0)
    X, rng = data.X.copy(), np.random.default_rng(1)
    X[::20] = 20.0 * rng.standard_normal(X[::20].shape)
    model = LowRankBilinearCV(n_alphas=6, n_folds=2).fit(X, data.Z, Labels(data.x_labels, data.z_labels))
    results, best = model.cv_results_, int(np.argmax(model.cv_results_["mean_map"]))
    # The odd samples are a twentieth of the queries, but half of them stand before all others in a ranking.
    assert results["map_x_to_z"][best].min() > 0.93
    assert results["map_z_to_x"][best].max() < 0.90


def test_swapping_the_modalities_swaps_the_directions() -> None:
    data = make_low_rank_pairs(80, 80, n_classes=4, noise=2.0, random_state=0)
    order_x, order_z = np.argsort(data.x_labels), np.argsort(data.z_labels)
    X, Z, labels = data.X[order_x], data.Z[order_z], data.x_labels[order_x]  # equal classes row by row
    alphas = alpha_max(X, Z, Labels(labels)) * np.array([0.5, 0.2, 0.05])
    model = LowRankBilinearCV(alphas=alphas, n_folds=3, path_tol=1e-5)
    there = clone(model).fit(X, Z, Labels(labels)).cv_results_
    back = clone(model).fit(Z, X, Labels(labels)).cv_results_
    # Both paths are within 1e-5 of the optimum: hardly a pair of near equals changes places.
    np.testing.assert_allclose(there["map_x_to_z"], back["map_z_to_x"], atol=1e-3)
    np.testing.assert_allclose(there["map_z_to_x"], back["map_x_to_z"], atol=1e-3)
    assert np.abs(there["map_x_to_z"] - there["map_z_to_x"]).max() > 0.01


def test_final_fit_is_that_of_the_chosen_weight_on_all_samples() -> None:
    data, model = _noisy(), _fitted()
    alone = LowRankBilinear(model.alpha_).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
    np.testing.assert_array_equal(model.x_factors_, alone.x_factors_)
    assert model.best_estimator_.converged_


def test_zero_model_scores_as_a_random_order_does() -> None:
    data = make_low_rank_pairs(400, 400, n_classes=4, random_state=0)
    supervision = Labels(data.x_labels, data.z_labels)
    largest = alpha_max(data.X, data.Z, supervision)
    model = LowRankBilinearCV(alphas=[2 * largest], n_folds=2).fit(data.X, data.Z, supervision)
    assert (model.cv_results_["rank"] == 0).all()
    # A quarter of 200 is relevant; a random ranking's average precision is near a quarter, with
    # a standard deviation of about 0.03 (one order serves all queries of a class).
    np.testing.assert_allclose(model.cv_results_["mean_map"], 0.25, atol=0.06)


def test_several_labels_and_pairs_can_be_cross_validated() -> None:
    data = make_low_rank_pairs(80, 80, n_classes=4, noise=0.5, random_state=0)
    order_x, order_z = np.argsort(data.x_labels), np.argsort(data.z_labels)
    X, Z, labels = data.X[order_x], data.Z[order_z], data.x_labels[order_x]
    indicators = labels[:, None] == np.arange(4)
    by_label = LowRankBilinearCV(n_alphas=4, n_folds=2).fit(X, Z, Labels(labels))
    by_indicator = LowRankBilinearCV(n_alphas=4, n_folds=2).fit(X, Z, MultiLabels(indicators))
    np.testing.assert_allclose(
        by_indicator.cv_results_["mean_map"], by_label.cv_results_["mean_map"], atol=0.1
    )
    paired = LowRankBilinearCV(n_alphas=4, n_folds=2).fit(X, Z, PairedRows(80))
    assert paired.cv_results_["mean_map"].max() > 0.1  # chance: one in forty, on average 0.11 at random
    assert paired.cv_results_["mean_map"].shape == (4,)


def test_lists_of_pairs_are_refused_with_a_reason(pairs: SyntheticPairs) -> None:
    table = scipy.sparse.coo_array(([1, -1], ([0, 1], [0, 1])), shape=(60, 50))
    with pytest.raises(SupervisionError, match="SignedPairs does not define which held-out items"):
        LowRankBilinearCV().fit(pairs.X, pairs.Z, SignedPairs(table))


class _Watched(Labels):
    """Labels that record the samples of each subset."""

    def __init__(self, *labels: Any) -> None:
        super().__init__(*labels)
        self.subsets: list[tuple[Any, Any]] = []

    def subset(self, x_rows: Any, z_rows: Any) -> "_Watched":
        self.subsets.append((x_rows, z_rows))
        return super().subset(x_rows, z_rows)


def _held_out(labels: _Watched, X: Any, Z: Any, n_folds: int) -> list[tuple[Any, Any]]:
    """Return the rows of both modalities that each fold was trained without."""
    LowRankBilinearCV(alphas=[0.1], n_folds=n_folds, n_jobs=1).fit(X, Z, labels)
    assert len(labels.subsets) == n_folds
    return [
        (np.setdiff1d(np.arange(len(X)), x_rows), np.setdiff1d(np.arange(len(Z)), z_rows))
        for x_rows, z_rows in labels.subsets
    ]


def test_each_sample_is_held_out_once_and_each_fold_has_its_share_of_each_class() -> None:
    data = _noisy()
    x_labels, z_labels = data.x_labels.copy(), data.z_labels.copy()
    x_labels[:5], z_labels[:6] = 7, 7  # few of another class
    folds = _held_out(_Watched(x_labels, z_labels), data.X, data.Z, 5)
    for side, labels in enumerate((x_labels, z_labels)):
        rows = [fold[side] for fold in folds]
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(labels)))
        for each in np.unique(labels):
            counts = [np.count_nonzero(labels[some] == each) for some in rows]
            assert max(counts) - min(counts) <= 1


def test_rows_that_are_paired_are_held_out_as_pairs_and_others_are_not() -> None:
    data = make_low_rank_pairs(80, 80, n_classes=4, random_state=0)
    labels = np.arange(80) % 4
    for x_rows, z_rows in _held_out(_Watched(labels), data.X, data.Z, 4):
        np.testing.assert_array_equal(x_rows, z_rows)
    unpaired = _held_out(_Watched(data.x_labels, data.z_labels), data.X, data.Z, 4)
    assert all(not np.array_equal(x_rows, z_rows) for x_rows, z_rows in unpaired)


def test_what_is_held_out_has_no_say_in_what_is_learned() -> None:
    rng = np.random.default_rng(0)
    # Labels without any relation to the samples, and features enough to learn all of them by heart.
    X, Z = rng.standard_normal((120, 150)), rng.standard_normal((120, 150))
    supervision = Labels(np.arange(120) % 3)
    alpha = alpha_max(X, Z, supervision) / 30
    by_heart = LowRankBilinear(alpha).fit(X, Z, supervision)
    x, z, labels = by_heart.project_x(X), by_heart.project_z(Z), supervision.x_targets
    assert mean_average_precision(x, z, labels, labels) > 0.99
    results = LowRankBilinearCV(alphas=[alpha], n_folds=3).fit(X, Z, supervision).cv_results_
    # A third is relevant; a random order of forty scores .38 on average.
    np.testing.assert_allclose(results["mean_map"], 0.38, atol=0.06)


def test_each_solution_of_a_path_is_begun_at_the_one_before() -> None:
    data = _noisy()
    problem = BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), True, 1)
    alphas = (problem.alpha_max * problem.penalty_scale * np.geomspace(0.5, 0.05, 10)).tolist()
    options: dict[str, Any] = {"tol": 1e-4, "max_iter": 100}

    def first_over_last(alphas: list[float]) -> list[float]:
        """Return, for each penalty weight but the first, the objective after one step over the last one."""
        seen: list[IterationProgress] = []
        list(regularisation_path(problem, alphas, callback=seen.append, **options))
        begun = [number for number, entry in enumerate(seen) if entry.iteration == 1]
        ended = [*(number - 1 for number in begun[1:]), len(seen) - 1]
        return [seen[i].objective / seen[j].objective for i, j in zip(begun, ended, strict=True)][-9:]

    # One descent within the rank of the solution before is nearly all that is left to do.
    assert max(first_over_last(alphas)) < 1.005
    assert max(ratio for alpha in alphas[1:] for ratio in first_over_last([alpha])) > 1.02


def test_path_is_walked_in_the_order_given_and_certified() -> None:
    data = _noisy()
    problem = BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), True, 1)
    largest = problem.alpha_max * problem.penalty_scale
    alphas = [0.1 * largest, largest, 0.3 * largest]
    path = list(regularisation_path(problem, alphas, tol=1e-3, max_iter=50))
    assert all(point.duality_gap <= 1e-3 for point in path)
    norms = [point.M.nuclear_norm for point in path]
    assert norms[1] < norms[2] < norms[0]
    for alpha, point in zip(alphas, path, strict=True):
        model = LowRankBilinear(alpha).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
        x, z = point.project(data.X, data.Z)
        # Both within 1e-3 of the optimal objective; scores differ by the root of that at most.
        np.testing.assert_allclose(x @ z.T, model.similarity(data.X, data.Z), atol=0.3)
