import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from solver.logistic import Targets
from solver.scaling.feature_maps import FeatureMapConfig
from solver.semantic.learners import (
    ClassifierConfig,
    ClassifierPlan,
    LogisticLearner,
    Posteriors,
    fit_ensemble,
    make_folds,
    usable_folds,
)
from solver.semantic.search import SearchOptions, fit_posteriors
from solver.validation import InvalidInputError, SupervisionError

OPTIONS = SearchOptions(
    scalings=("standard", "sqrt"),
    kernels=("linear", "rbf"),
    n_landmarks=40,
    n_folds=4,
    n_kept=2,
    n_rounds=4,
    max_samples=1000,
    n_jobs=2,
)


def _rings(n: int = 240, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return samples whose classes are concentric rings: no linear function separates them."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    angles = rng.uniform(0, 2 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.3 * rng.standard_normal(n)
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]), codes


def _targets(codes: np.ndarray, n_classes: int = 3) -> Targets:
    return Targets(np.eye(n_classes)[codes], True)


def _fit(samples: np.ndarray, targets: Targets, **changed: object) -> Posteriors:
    return fit_posteriors(samples, targets, replace(OPTIONS, **changed), lambda: None)


@pytest.fixture(scope="module")
def of_rings() -> Posteriors:
    samples, codes = _rings()
    return _fit(samples, _targets(codes))


def _scalings(posteriors: Posteriors) -> set[str]:
    return {branch.feature_map.scaler.kind_ for branch in posteriors.ensemble.branches}


def test_a_kernel_is_chosen_where_classes_are_rings_and_no_kernel_where_they_are_halves(
    of_rings: Posteriors,
) -> None:
    assert {branch.feature_map.kernel for branch in of_rings.ensemble.branches} == {"rbf"}
    assert of_rings.log_loss < 0.2
    wide = np.random.default_rng(1).standard_normal((300, 15))
    linear = _fit(wide, _targets((wide.sum(axis=1) > 0).astype(int), 2))
    assert "linear" in {branch.feature_map.kernel for branch in linear.ensemble.branches}


def test_posteriors_are_distributions_and_weights_sum_to_one(of_rings: Posteriors) -> None:
    assert sum(member.weight for member in of_rings.ensemble.members) == pytest.approx(1.0)
    for predicted in (of_rings.predict(_rings()[0]), of_rings.out_of_fold):
        np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
        assert predicted.min() >= 0.0


def test_a_sample_does_not_influence_its_own_out_of_fold_posterior() -> None:
    # Random labels: unpredictable out of fold, nearly learned by heart in sample.
    rng = np.random.default_rng(0)
    samples, codes = rng.standard_normal((120, 60)), rng.integers(0, 2, 120)
    posteriors = _fit(samples, _targets(codes, 2), n_landmarks=100)
    truth = np.eye(2)[codes]
    in_sample = np.mean((posteriors.predict(samples) * truth).sum(axis=1))
    out_of_fold = np.mean((posteriors.out_of_fold * truth).sum(axis=1))
    assert out_of_fold < 0.55
    assert in_sample > out_of_fold + 0.05


def test_a_single_classifier_is_the_logistic_regression_of_scikit_learn() -> None:
    samples, codes = _rings()
    kind = FeatureMapConfig("standard", "rbf", 1.0)
    plan = ClassifierPlan(ClassifierConfig(kind, LogisticLearner(15.0), 1.0))
    maps, folds = {kind: kind.fit(samples, 20, 0)}, make_folds(_targets(codes), 3, np.random.default_rng(0))
    posteriors = fit_ensemble(samples, _targets(codes), maps, [plan], folds, 1, lambda: None)
    mapped = maps[kind].transform(samples)
    reference = LogisticRegression(C=15.0, tol=1e-4, max_iter=300).fit(mapped, codes)
    np.testing.assert_allclose(posteriors.predict(samples), reference.predict_proba(mapped), atol=1e-3)


def test_the_average_is_at_least_as_likely_as_its_best_classifier(of_rings: Posteriors) -> None:
    samples, codes = _rings()
    alone = _fit(samples, _targets(codes), n_rounds=1)
    assert of_rings.log_loss <= alone.log_loss + 1e-12


@pytest.mark.parametrize("n_classes_seen", [1, 2])
def test_a_class_without_samples_has_posterior_zero(n_classes_seen: int) -> None:
    samples, codes = _rings(n_classes=n_classes_seen)
    posteriors = _fit(samples, _targets(codes + 1, 4))
    predicted = posteriors.predict(samples)
    assert predicted[:, 0].max() == predicted[:, 3].max() == 0.0
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
    assert np.isfinite(posteriors.log_loss)


def test_labels_have_a_probability_each() -> None:
    samples, codes = _rings()
    indicators = np.column_stack([codes >= 1, codes >= 2, np.zeros_like(codes), np.ones_like(codes)])
    posteriors = _fit(samples, Targets(indicators.astype(float), False))
    predicted = posteriors.predict(samples)
    assert predicted[:, 2].max() == 0.0
    assert predicted[:, 3].min() == pytest.approx(1.0)
    assert np.mean((predicted[:, :2] > 0.5) == indicators[:, :2]) > 0.95


def test_classifiers_chosen_on_a_sample_are_fitted_on_all_samples() -> None:
    samples, codes = _rings(600)
    posteriors = _fit(samples, _targets(codes), max_samples=150)
    assert posteriors.out_of_fold.shape == (600, 3)
    np.testing.assert_allclose(posteriors.out_of_fold.sum(axis=1), 1.0)
    assert posteriors.log_loss < 0.3


def test_square_roots_are_not_taken_of_negative_features(of_rings: Posteriors) -> None:
    samples, codes = _rings()
    assert _scalings(of_rings) == {"standard"}
    assert _scalings(_fit(samples**2, _targets(codes), scalings=("sqrt",))) == {"sqrt"}
    with pytest.raises(InvalidInputError, match="none of the given scalings"):
        _fit(samples, _targets(codes), scalings=("sqrt",))


def test_folds_are_a_partition_stratified_by_class() -> None:
    codes = np.repeat([0, 1, 2], [50, 10, 3])
    folds = make_folds(_targets(codes), 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(63))
    for fold in folds:
        counts = np.bincount(codes[fold], minlength=3)
        assert abs(counts[0] - 10) <= 1
        assert abs(counts[1] - 2) <= 1
        assert counts[2] <= 1


@pytest.mark.parametrize(
    ("sizes", "expected"), [((2, 2), 2), ((3, 3, 3), 3), ((50, 10, 3), 4), ((50, 1, 1), 4), ((2, 2, 1), 2)]
)
def test_there_are_at_most_as_many_folds_as_the_typical_class_has_samples(
    sizes: tuple[int, ...], expected: int
) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    assert usable_folds(_targets(codes, len(sizes)), 4) == expected


def test_the_most_common_label_of_a_sample_counts_and_unlabelled_samples_do_not() -> None:
    has_label = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert usable_folds(Targets(has_label.astype(float), False), 5) == 3
    assert usable_folds(Targets(np.zeros((4, 2)), False), 5) == 4


@pytest.mark.parametrize("codes", [[0, 1, 2, 3], [0, 0, 1, 2, 3]])
def test_samples_that_are_mostly_the_only_one_of_their_class_are_rejected(codes: list[int]) -> None:
    with pytest.raises(SupervisionError, match="the only one of their class"):
        _fit(np.eye(len(codes)), _targets(np.array(codes), 4))


@pytest.mark.filterwarnings("ignore:The number of unique classes")  # is indeed suspicious
@pytest.mark.parametrize(("large", "alone", "most"), [(2, 2, 1000), (300, 250, 300)])
def test_up_to_half_of_them_may_be_the_only_one_of_their_class(large: int, alone: int, most: int) -> None:
    codes = np.concatenate([np.zeros(large), np.arange(1, alone + 1)]).astype(int)
    samples = np.random.default_rng(0).standard_normal((len(codes), 5))
    posteriors = _fit(samples, _targets(codes, alone + 1), max_samples=most, kernels=("linear",), n_kept=1)
    assert np.isfinite(posteriors.out_of_fold).all()


def test_out_of_fold_posteriors_of_few_samples_are_not_biased_to_the_other_class() -> None:
    rng = np.random.default_rng(0)
    codes, of_true_class = np.array([0, 0, 1, 1]), []
    for _ in range(20):  # samples are noise: with four folds the true class would average below one half
        posteriors = _fit(rng.standard_normal((4, 30)), _targets(codes, 2), kernels=("linear",), n_kept=1)
        of_true_class.append(posteriors.out_of_fold[np.arange(4), codes].mean())
    assert np.mean(of_true_class) > 0.45


def test_a_reused_choice_is_fitted_as_after_a_search(of_rings: Posteriors) -> None:
    samples, codes = _rings()
    beats: list[int] = []
    again = fit_posteriors(samples, _targets(codes), OPTIONS, lambda: beats.append(1), of_rings.configs)
    assert again.configs == of_rings.configs
    assert sum(config.weight for config in again.configs) == pytest.approx(1.0)
    np.testing.assert_allclose(again.out_of_fold, of_rings.out_of_fold, atol=0.05)
    np.testing.assert_allclose(again.predict(samples), of_rings.predict(samples), atol=0.05)
    assert len(beats) <= len(of_rings.configs) * (1 + OPTIONS.n_folds)


def test_a_choice_that_does_not_suit_the_samples_is_replaced() -> None:
    samples, codes = _rings()
    of_roots = _fit(samples**2, _targets(codes), scalings=("sqrt",)).configs
    assert {config.feature_map.scaling for config in of_roots} == {"sqrt"}
    again = fit_posteriors(samples, _targets(codes), OPTIONS, lambda: None, of_roots)
    assert {config.feature_map.scaling for config in again.configs} == {"standard"}


def test_a_choice_outside_the_options_is_replaced() -> None:
    samples, codes = _rings()
    of_kernels = _fit(samples, _targets(codes), kernels=("rbf",)).configs
    linear = replace(OPTIONS, kernels=("linear",))
    again = fit_posteriors(samples, _targets(codes), linear, lambda: None, of_kernels)
    assert {config.feature_map.kernel for config in again.configs} == {"linear"}


def test_a_laplacian_kernel_does_not_suit_many_features() -> None:
    kind = FeatureMapConfig("standard", "laplacian", 1.0)
    assert kind.suits(np.ones((3, 256)))
    assert not kind.suits(np.ones((3, 257)))


def test_a_branch_keeps_the_feature_map_of_the_screening(of_rings: Posteriors) -> None:
    branch = of_rings.ensemble.branches[0]
    assert branch.feature_map.landmarks.shape == (40, 2)


@pytest.mark.parametrize("n_samples", [301, 320, 450, 601])
def test_the_search_takes_about_max_samples_and_loses_no_class(n_samples: int) -> None:
    rng = np.random.default_rng(0)
    codes = np.concatenate([rng.integers(0, 2, n_samples), [2, 2, 3]])
    samples = rng.standard_normal((len(codes), 2)) + codes[:, None]
    sizes, classes = [], []

    class WatchedTargets(Targets):
        def subset(self, rows: np.ndarray) -> Targets:
            sizes.append(len(rows))
            classes.append(set(codes[rows]))
            return super().subset(rows)

    targets = WatchedTargets(np.eye(4)[codes], True)
    quick = replace(OPTIONS, scalings=("standard",), kernels=("linear",), n_kept=1, max_samples=300)
    fit_posteriors(samples, targets, quick, lambda: None)
    assert 300 <= sizes[0] <= 306
    assert classes[0] == {0, 1, 2, 3}


def test_warning_filters_are_restored() -> None:
    samples, codes = _rings(60)
    before = list(warnings.filters)
    for _ in range(10):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _fit(samples, _targets(codes), n_jobs=4, kernels=("linear",))
        assert warnings.filters == before
        assert caught == []


def test_every_step_runs_on_a_single_threaded_blas() -> None:
    samples, codes = _rings()
    thread_counts: set[int] = set()

    def count_threads() -> None:
        pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
        thread_counts.update(pool["num_threads"] for pool in pools)

    with threadpool_limits(2, user_api="blas"):
        fit_posteriors(samples, _targets(codes), OPTIONS, count_threads)
    assert thread_counts == {1}


def test_the_heartbeat_is_called_for_every_fold() -> None:
    samples, codes = _rings()
    beats: list[int] = []
    options = replace(OPTIONS, kernels=("linear",), scalings=("standard",), n_kept=1, n_rounds=1)
    fit_posteriors(samples, _targets(codes), options, lambda: beats.append(1))
    assert len(beats) >= 1 + options.n_folds + 2 * (1 + options.n_folds) + 1


def test_out_of_fold_predictions_of_a_plan_are_not_computed_again() -> None:
    samples, codes = _rings()
    kind = FeatureMapConfig("standard", "rbf", 1.0)
    config, uniform = ClassifierConfig(kind, LogisticLearner(3.0), 1.0), np.full((240, 3), 1 / 3)
    maps, folds = {kind: kind.fit(samples, 20, 0)}, make_folds(_targets(codes), 3, np.random.default_rng(0))
    beats: list[int] = []
    posteriors = fit_ensemble(
        samples, _targets(codes), maps, [ClassifierPlan(config, uniform)], folds, 1, lambda: beats.append(1)
    )
    np.testing.assert_array_equal(posteriors.out_of_fold, uniform)
    assert len(beats) == 1


def test_classifiers_of_one_kind_of_map_share_a_branch() -> None:
    samples, codes = _rings()
    rbf, linear = FeatureMapConfig("standard", "rbf", 1.0), FeatureMapConfig("standard", "linear", 1.0)
    maps = {kind: kind.fit(samples, 20, 0) for kind in (rbf, linear)}
    plans = [
        ClassifierPlan(ClassifierConfig(kind, LogisticLearner(inverse_penalty), weight))
        for kind, inverse_penalty, weight in ((rbf, 3.0, 0.2), (linear, 3.0, 0.5), (rbf, 75.0, 0.3))
    ]
    folds = make_folds(_targets(codes), 3, np.random.default_rng(0))
    ensemble = fit_ensemble(samples, _targets(codes), maps, plans, folds, 1, lambda: None).ensemble
    assert [branch.feature_map for branch in ensemble.branches] == [maps[rbf], maps[linear]]
    assert [[member.weight for member in branch.classifiers] for branch in ensemble.branches] == [
        [0.2, 0.3],
        [0.5],
    ]
    assert ensemble.heaviest_branch is ensemble.branches[0]
