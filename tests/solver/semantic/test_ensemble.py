import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_info, threadpool_limits

from solver.errors import SupervisionError
from solver.logistic import Targets
from solver.semantic.ensemble import FeatureMapConfig, deal_folds, usable_folds
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.search import SearchOptions, fit_posteriors

OPTIONS = SearchOptions(
    scalings=("standard", "sqrt"),
    kernels=("linear", "rbf"),
    n_landmarks=40,
    n_folds=4,
    n_kept=2,
    n_rounds=4,
    max_samples=1000,
    seed=0,
    n_jobs=2,
)


def _drawn(n: int = 240, n_classes: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return samples whose classes are rings: no linear function tells them apart."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    angles = rng.uniform(0, 2 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.3 * rng.standard_normal(n)
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]), codes


def _targets(codes: np.ndarray, n_classes: int = 3) -> Targets:
    return Targets(np.eye(n_classes)[codes], True)


def _fit(samples: np.ndarray, targets: Targets, **changed: object) -> object:
    return fit_posteriors(samples, targets, replace(OPTIONS, **changed), lambda: None)


def test_a_kernel_is_chosen_where_classes_are_rings_and_no_kernel_where_they_are_halves() -> None:
    samples, codes = _drawn()
    rings = _fit(samples, _targets(codes))
    assert {member.features.kernel for member in rings.members} == {"rbf"}
    assert rings.log_loss < 0.2
    wide = np.random.default_rng(1).standard_normal((300, 15))
    linear = _fit(wide, _targets((wide.sum(axis=1) > 0).astype(int), 2))
    assert "linear" in {member.features.kernel for member in linear.members}


def test_posteriors_are_distributions_and_weights_sum_to_one() -> None:
    samples, codes = _drawn()
    found = _fit(samples, _targets(codes))
    assert sum(member.weight for member in found.members) == pytest.approx(1.0)
    for each in (found.predict(samples), found.out_of_fold):
        np.testing.assert_allclose(each.sum(axis=1), 1.0)
        assert each.min() >= 0.0


def test_a_sample_has_no_part_in_its_own_out_of_fold_posterior() -> None:
    # Labels that say nothing: out of fold nothing can be known of them, in sample nearly everything.
    rng = np.random.default_rng(0)
    samples, codes = rng.standard_normal((120, 60)), rng.integers(0, 2, 120)
    found = _fit(samples, _targets(codes, 2), n_landmarks=100)
    truth = np.eye(2)[codes]
    in_sample = np.mean((found.predict(samples) * truth).sum(axis=1))
    out_of_fold = np.mean((found.out_of_fold * truth).sum(axis=1))
    assert out_of_fold < 0.55
    assert in_sample > out_of_fold + 0.05


def test_one_member_alone_is_the_logistic_regression_of_scikit_learn() -> None:
    samples, codes = _drawn()
    found = _fit(samples, _targets(codes), n_rounds=1, n_kept=1)
    (member,) = found.members
    assert member.weight == 1.0
    mapped = member.features.transform(samples)
    likeliest = [
        LogisticRegression(C=C, tol=1e-4, max_iter=300).fit(mapped, codes).predict_proba(mapped)
        for C in (3.0, 15.0, 75.0)
    ]
    differences = [np.abs(each - found.predict(samples)).max() for each in likeliest]
    assert min(differences) < 1e-3


def test_the_average_is_at_least_as_likely_as_its_best_member_alone() -> None:
    samples, codes = _drawn()
    alone = _fit(samples, _targets(codes), n_rounds=1)
    assert _fit(samples, _targets(codes), n_rounds=6).log_loss <= alone.log_loss + 1e-12


@pytest.mark.parametrize("n_classes_seen", [1, 2])
def test_a_class_that_was_not_seen_has_posterior_zero(n_classes_seen: int) -> None:
    samples, codes = _drawn(n_classes=n_classes_seen)
    found = _fit(samples, _targets(codes + 1, 4))
    posteriors = found.predict(samples)
    assert posteriors[:, 0].max() == posteriors[:, 3].max() == 0.0
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0)
    assert np.isfinite(found.log_loss)


def test_labels_have_a_probability_each() -> None:
    samples, codes = _drawn()
    indicators = np.column_stack([codes >= 1, codes >= 2, np.zeros_like(codes), np.ones_like(codes)])
    found = _fit(samples, Targets(indicators.astype(float), False))
    posteriors = found.predict(samples)
    assert posteriors[:, 2].max() == 0.0
    assert posteriors[:, 3].min() == 1.0
    assert np.mean((posteriors[:, :2] > 0.5) == indicators[:, :2]) > 0.95


def test_what_is_chosen_on_some_is_fitted_on_all() -> None:
    samples, codes = _drawn(600)
    found = _fit(samples, _targets(codes), max_samples=150)
    assert found.out_of_fold.shape == (600, 3)
    np.testing.assert_allclose(found.out_of_fold.sum(axis=1), 1.0)
    assert found.log_loss < 0.3


def test_the_number_of_jobs_changes_nothing() -> None:
    samples, codes = _drawn()
    one, two = (_fit(samples, _targets(codes), n_jobs=n) for n in (1, 3))
    np.testing.assert_array_equal(one.out_of_fold, two.out_of_fold)
    np.testing.assert_array_equal(one.predict(samples), two.predict(samples))


def test_square_roots_are_not_taken_of_negative_features() -> None:
    samples, codes = _drawn()
    assert all(m.features.scaler.kind_ == "standard" for m in _fit(samples, _targets(codes)).members)
    kinds = {m.features.scaler.kind_ for m in _fit(samples**2, _targets(codes), n_kept=4).members}
    assert kinds <= {"standard", "sqrt"}


def test_folds_are_disjoint_whole_and_hold_their_share_of_each_class() -> None:
    codes = np.repeat([0, 1, 2], [50, 10, 3])
    folds = deal_folds(_targets(codes), 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(63))
    for fold in folds:
        counts = np.bincount(codes[fold], minlength=3)
        assert abs(counts[0] - 10) <= 1
        assert abs(counts[1] - 2) <= 1
        assert counts[2] <= 1


@pytest.mark.parametrize(
    ("sizes", "expected"), [((2, 2), 2), ((3, 3, 3), 3), ((50, 10, 3), 4), ((50, 1, 1), 4), ((2, 2, 1), 2)]
)
def test_there_are_no_more_folds_than_the_typical_class_has_samples(
    sizes: tuple[int, ...], expected: int
) -> None:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    assert usable_folds(_targets(codes, len(sizes)), 4) == expected


def test_of_labels_the_most_common_one_of_a_sample_counts_and_none_at_all_does_not() -> None:
    carried = np.array([[1, 1, 0], [1, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert usable_folds(Targets(carried.astype(float), False), 5) == 3
    assert usable_folds(Targets(np.zeros((4, 2)), False), 5) == 4


@pytest.mark.parametrize("codes", [[0, 1, 2, 3], [0, 0, 1, 2, 3]])
def test_samples_that_are_mostly_the_only_one_of_their_class_are_refused(codes: list[int]) -> None:
    with pytest.raises(SupervisionError, match="the only one of their class"):
        _fit(np.eye(len(codes)), _targets(np.array(codes), 4))


@pytest.mark.filterwarnings("ignore:The number of unique classes")  # is indeed suspicious
@pytest.mark.parametrize(("large", "alone", "most"), [(2, 2, 1000), (300, 250, 300)])
def test_no_more_than_half_of_them_are_not(large: int, alone: int, most: int) -> None:
    codes = np.concatenate([np.zeros(large), np.arange(1, alone + 1)]).astype(int)
    samples = np.random.default_rng(0).standard_normal((len(codes), 5))
    found = _fit(samples, _targets(codes, alone + 1), max_samples=most, kernels=("linear",), n_kept=1)
    assert np.isfinite(found.out_of_fold).all()


def test_few_samples_out_of_fold_do_not_look_like_those_of_the_other_class() -> None:
    rng = np.random.default_rng(0)
    codes, likely = np.array([0, 0, 1, 1]), []
    for _ in range(20):  # of noise: with four folds the truth would be given less than a half on average
        found = _fit(rng.standard_normal((4, 30)), _targets(codes, 2), kernels=("linear",), n_kept=1)
        likely.append(found.out_of_fold[np.arange(4), codes].mean())
    assert np.mean(likely) > 0.45


def test_a_choice_that_is_made_is_fitted_as_it_would_be_after_a_search() -> None:
    samples, codes = _drawn()
    found = _fit(samples, _targets(codes))
    beats: list[int] = []
    again = fit_posteriors(samples, _targets(codes), OPTIONS, lambda: beats.append(1), found.recipes)
    assert again.recipes == found.recipes
    assert sum(recipe.weight for recipe in again.recipes) == pytest.approx(1.0)
    np.testing.assert_allclose(again.out_of_fold, found.out_of_fold, atol=0.05)
    np.testing.assert_allclose(again.predict(samples), found.predict(samples), atol=0.05)
    assert len(beats) <= len(found.recipes) * (1 + OPTIONS.n_folds)


def test_a_choice_that_does_not_suit_the_samples_is_made_anew() -> None:
    samples, codes = _drawn()
    of_roots = _fit(samples**2, _targets(codes), scalings=("sqrt",)).recipes
    assert {recipe.kind.scaling for recipe in of_roots} == {"sqrt"}
    again = fit_posteriors(samples, _targets(codes), OPTIONS, lambda: None, of_roots)
    assert {recipe.kind.scaling for recipe in again.recipes} == {"standard"}


def test_a_choice_that_the_options_do_not_allow_is_made_anew() -> None:
    samples, codes = _drawn()
    of_kernels = _fit(samples, _targets(codes), kernels=("rbf",)).recipes
    linear = replace(OPTIONS, kernels=("linear",))
    again = fit_posteriors(samples, _targets(codes), linear, lambda: None, of_kernels)
    assert {recipe.kind.kernel for recipe in again.recipes} == {"linear"}


def test_a_laplacian_kernel_does_not_suit_many_features() -> None:
    kind = FeatureMapConfig("standard", "laplacian", 1.0)
    assert kind.suits(np.ones((3, 256)))
    assert not kind.suits(np.ones((3, 257)))


def test_whatever_the_heartbeat_raises_ends_the_search() -> None:
    samples, codes = _drawn()
    calls = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit_posteriors(samples, _targets(codes), OPTIONS, stop)
    assert len(calls) == 5


def test_the_map_of_the_screening_is_of_the_scaled_samples() -> None:
    samples, codes = _drawn()
    (member, *_) = _fit(samples, _targets(codes)).members
    assert isinstance(member.features, FeatureMap)
    assert member.features.landmarks.shape == (40, 2)


@pytest.mark.parametrize("n_samples", [301, 320, 450, 601])
def test_of_many_samples_about_so_many_are_searched_and_no_class_is_lost(n_samples: int) -> None:
    rng = np.random.default_rng(0)
    codes = np.concatenate([rng.integers(0, 2, n_samples), [2, 2, 3]])
    samples = rng.standard_normal((len(codes), 2)) + codes[:, None]
    sizes, kinds = [], []

    class Watched(Targets):
        def rows(self, rows: np.ndarray) -> Targets:
            sizes.append(len(rows))
            kinds.append(set(codes[rows]))
            return super().rows(rows)

    fit_posteriors(samples, Watched(np.eye(4)[codes], True), replace(OPTIONS, max_samples=300), lambda: None)
    assert 300 <= sizes[0] <= 306
    assert kinds[0] == {0, 1, 2, 3}


def test_filters_of_warnings_are_afterwards_as_they_were() -> None:
    samples, codes = _drawn(60)
    before = list(warnings.filters)
    for _ in range(10):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _fit(samples, _targets(codes), n_jobs=4, kernels=("linear",))
        assert warnings.filters == before
        assert caught == []


def test_every_step_runs_on_a_blas_of_one_thread_whatever_the_machine() -> None:
    samples, codes = _drawn()
    found: set[int] = set()

    def look() -> None:
        found.update(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")

    with threadpool_limits(2, user_api="blas"):
        fit_posteriors(samples, _targets(codes), OPTIONS, look)
    assert found == {1}


def test_the_heart_beats_for_every_fold() -> None:
    samples, codes = _drawn()
    beats: list[int] = []
    options = replace(OPTIONS, kernels=("linear",), scalings=("standard",), n_kept=1, n_rounds=1)
    fit_posteriors(samples, _targets(codes), options, lambda: beats.append(1))
    assert len(beats) >= 1 + options.n_folds + 2 * (1 + options.n_folds) + 1
