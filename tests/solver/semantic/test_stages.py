"""What follows the search: votes of neighbours, kernel ridge regression, and M between posteriors."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax
from sklearn.kernel_ridge import KernelRidge

from solver import Labels, LowRankBilinear, MultiLabels, PosteriorProjector, RankWarning, SemanticBilinear
from solver.artifacts import load_projector, save_projector
from solver.linalg import Samples
from solver.logistic import LinearClassifier, Targets
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.ensemble import Branch, Ensemble, NeighbourClassifier, WeightedClassifier
from solver.semantic.learners import Posteriors
from solver.semantic.search import (
    ALPHA_FRACTIONS,
    SearchOptions,
    Side,
    blend_kernel_ridge,
    choose_alpha_fraction,
    fit_posteriors,
    fuse,
)
from solver.validation import InvalidInputError

FUSION = SearchOptions(
    scalings=("standard",),
    kernels=("linear",),
    n_landmarks=30,
    n_folds=3,
    n_kept=1,
    n_rounds=1,
    max_samples=1000,
    neighbour_share=0.25,
    n_jobs=1,
)


def ignore() -> None:
    """A heartbeat without effect."""


def side(codes: np.ndarray, n_classes: int, seed: int) -> Side:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7 + seed).standard_normal((n_classes, 5)) * 2.0
    samples = centres[codes] + rng.standard_normal((len(codes), 5))
    targets = Targets(np.eye(n_classes)[codes], True)
    return Side(samples, targets, fit_posteriors(samples, targets, FUSION, ignore))


def two_sides(n: int = 90, n_classes: int = 3) -> tuple[Side, Side, Labels]:
    rng = np.random.default_rng(0)
    x, z = rng.integers(0, n_classes, n), rng.integers(0, n_classes, n - 10)
    return side(x, n_classes, 1), side(z, n_classes, 2), Labels(x, z)


def neighbours_of(posteriors: Posteriors) -> NeighbourClassifier:
    (classifier,) = (
        member.classifier for member in posteriors.ensemble.members if member.kind == "neighbours"
    )
    assert isinstance(classifier, NeighbourClassifier)
    return classifier


def predict_by_formula(classifier: NeighbourClassifier, mapped: np.ndarray) -> np.ndarray:
    posteriors, t = np.zeros((len(mapped), classifier.n_classes)), classifier.inverse_temperature
    for i, sample in enumerate(mapped):
        projected = sample @ classifier.coefficients + classifier.intercepts
        weights = np.exp([t * float(projected @ anchor) for anchor in classifier.anchors])
        for weight, classes in zip(weights, classifier.indicators, strict=True):
            posteriors[i] += weight * classes
        posteriors[i] /= weights.sum()
    return posteriors


def test_a_neighbour_classifier_is_its_formula_written_out() -> None:
    rng = np.random.default_rng(0)
    indicators = rng.integers(0, 2, (9, 4)).astype(np.float32)
    factors, intercepts, anchors = (rng.standard_normal(shape) for shape in ((3, 2), 2, (9, 2)))
    classifier = NeighbourClassifier(factors, intercepts, anchors, indicators, 1.5, False)
    mapped = rng.standard_normal((5000, 3))
    posteriors = classifier.predict(mapped)
    np.testing.assert_allclose(posteriors[:20], predict_by_formula(classifier, mapped[:20]), rtol=1e-6)
    np.testing.assert_allclose(posteriors[-20:], predict_by_formula(classifier, mapped[-20:]), rtol=1e-6)


def test_the_share_is_mixed_in_and_weights_sum_to_one() -> None:
    x, z, supervision = two_sides()
    for before, after in zip((x, z), fuse(x, z, supervision, FUSION, ignore), strict=True):
        assert sum(member.weight for member in after.ensemble.members) == pytest.approx(1.0)
        feature_map = before.posteriors.ensemble.heaviest_branch.feature_map
        linear = before.posteriors.predict(before.samples)
        votes = predict_by_formula(neighbours_of(after), feature_map.transform(before.samples))
        np.testing.assert_allclose(after.predict(before.samples), 0.75 * linear + 0.25 * votes, atol=1e-5)
        np.testing.assert_allclose(after.out_of_fold.sum(axis=1), 1.0, rtol=1e-6)
        assert after.log_loss == pytest.approx(before.targets.log_loss(after.out_of_fold))
    assert len(neighbours_of(after).anchors) == len(x.samples)  # samples of x vote on z


def test_a_sample_does_not_influence_its_own_out_of_fold_vote() -> None:
    """Random labels are learned by heart, but cannot be predicted."""
    rng = np.random.default_rng(3)
    x, z = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    both = tuple(
        Side(samples, targets, fit_posteriors(samples, targets, FUSION, ignore))
        for samples, targets in ((rng.standard_normal((60, 40)), Targets(np.eye(3)[c], True)) for c in (x, z))
    )
    share = 0.999
    options = replace(FUSION, neighbour_share=share, inverse_temperature=8.0)
    x_after, _ = fuse(both[0], both[1], Labels(x, z), options, ignore)
    held_out = (x_after.out_of_fold.argmax(axis=1) == x).mean()
    seen = (x_after.predict(both[0].samples).argmax(axis=1) == x).mean()
    assert seen > 0.8
    assert held_out < 0.6


@pytest.mark.parametrize("max_samples", [1000, 120])
def test_a_paired_sample_does_not_influence_the_out_of_fold_posterior_of_the_other(max_samples: int) -> None:
    """Classes are random, but x[i] and z[i] share theirs: a fit on z[i] would reveal that of x[i]."""
    rng = np.random.default_rng(0)
    n, n_classes = 300, 60
    codes, hidden = rng.integers(0, n_classes, n), rng.standard_normal((n, 20))
    supervision, targets = Labels(codes), Targets(np.eye(n_classes)[codes], True)
    uniform, sides = np.full((n, n_classes), 1 / n_classes), []
    for seed in (1, 2):
        noise = np.random.default_rng(seed).standard_normal(hidden.shape)
        samples = hidden + 0.1 * noise
        feature_map = FeatureMap.fit(samples, "standard", "linear", 1.0, 10, 0)
        classifier = LinearClassifier(np.zeros((20, n_classes)), np.zeros(n_classes), True)
        ensemble = Ensemble((Branch(feature_map, (WeightedClassifier(classifier, 1.0),)),))
        sides.append(Side(samples, targets, Posteriors(ensemble, uniform, 0.0, ())))
    options = replace(FUSION, neighbour_share=0.999, inverse_temperature=8.0, max_samples=max_samples)
    for after in fuse(sides[0], sides[1], supervision, options, ignore):
        assert (after.out_of_fold.argmax(axis=1) == codes).mean() < 0.08


def test_a_sample_of_anchors_votes_on_all_samples() -> None:
    x, z, supervision = two_sides()
    few = replace(FUSION, neighbour_share=0.5, inverse_temperature=4.0, max_samples=40)
    x_after, z_after = fuse(x, z, supervision, few, ignore)
    assert len(neighbours_of(x_after).anchors) == len(neighbours_of(z_after).anchors) == 40
    alone = (x_after.out_of_fold - 0.5 * x.posteriors.out_of_fold) / 0.5
    assert (alone.argmax(axis=1) == x.targets.indicators.argmax(axis=1)).mean() > 0.6


@pytest.mark.parametrize("case", ["no share", "no pair left", "no feature"])
def test_posteriors_are_unchanged_where_there_is_nothing_to_learn_from(case: str) -> None:
    x, z, supervision = two_sides()
    options = FUSION
    if case == "no share":
        options = replace(FUSION, neighbour_share=0.0)
    elif case == "no pair left":
        # The only similar pair: no fold can do without it.
        codes = np.array([0, 1, 1, 1, 1, 1]), np.array([0, 2, 2, 2, 2, 2])
        x, z = side(codes[0], 3, 1), side(codes[1], 3, 2)
        supervision = Labels(*codes)
    else:
        # Every class holds the same samples.
        codes_of_both, samples = np.tile([0, 0, 1, 1], 12), np.tile([[1.0], [-1.0]], (24, 1))
        targets = Targets(np.eye(2)[codes_of_both], True)
        x = z = Side(samples, targets, fit_posteriors(samples, targets, FUSION, ignore))
        supervision = Labels(codes_of_both)
    x_after, z_after = fuse(x, z, supervision, options, ignore)
    assert x_after is x.posteriors
    assert z_after is z.posteriors


def test_parts_that_do_not_match_are_rejected() -> None:
    good: dict[str, Any] = {
        "coefficients": np.zeros((3, 2)),
        "intercepts": np.zeros(2),
        "anchors": np.zeros((4, 2)),
        "indicators": np.eye(4, 5),
        "inverse_temperature": 1.0,
        "is_exclusive": True,
    }
    assert NeighbourClassifier(**good).n_classes == 5
    for name, value in (
        ("coefficients", np.zeros(3)),
        ("intercepts", np.zeros(3)),
        ("anchors", np.zeros((4, 3))),
        ("anchors", np.zeros((0, 2))),
        ("indicators", np.zeros((3, 5))),
        ("indicators", np.zeros(4)),
        ("indicators", np.full((4, 5), 0.2)),
        ("indicators", np.ones((4, 5))),
        ("indicators", -np.eye(4, 5)),
        ("inverse_temperature", 0.0),
        ("inverse_temperature", 1e5),
        ("inverse_temperature", np.nan),
    ):
        with pytest.raises(InvalidInputError):
            NeighbourClassifier(**{**good, name: value})


RIDGE = SearchOptions(max_samples=1000, n_folds=3)


def rings(n: int = 150, n_classes: int = 3) -> tuple[np.ndarray, Targets]:
    rng = np.random.default_rng(0)
    codes, angles = np.arange(n) % n_classes, rng.uniform(0, 2 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.2 * rng.standard_normal(n)
    samples = np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])
    return samples, Targets(np.eye(n_classes)[codes], True)


def know_nothing(samples: Samples, targets: Targets, kernel: str = "rbf") -> Posteriors:
    """Return uniform posteriors, of a classifier on a map with five landmarks."""
    feature_map = FeatureMap.fit(samples, "standard", kernel, 3.0, 5, 0)
    n_classes = targets.indicators.shape[1]
    classifier = LinearClassifier(
        np.zeros((feature_map.n_mapped, n_classes)), np.zeros(n_classes), targets.is_exclusive
    )
    uniform = np.full(targets.indicators.shape, 1 / n_classes)
    ensemble = Ensemble((Branch(feature_map, (WeightedClassifier(classifier, 1.0),)),))
    return Posteriors(ensemble, uniform, targets.log_loss(uniform), ())


def test_the_blend_is_kernel_ridge_regression_on_all_samples() -> None:
    samples, targets = rings()
    before = know_nothing(samples, targets)
    after = blend_kernel_ridge(Side(samples, targets, before), RIDGE, ignore)
    first, exact = after.ensemble.branches
    assert first.weight + exact.weight == pytest.approx(1.0)
    assert after.log_loss < 0.3 < before.log_loss
    assert after.log_loss == pytest.approx(targets.log_loss(after.out_of_fold))
    scaled = np.asarray(exact.feature_map.landmarks, np.float64)
    kernel = np.exp(-exact.feature_map.gamma * ((scaled[:, None] - scaled) ** 2).sum(axis=2))
    classifier = exact.classifiers[0].classifier
    assert isinstance(classifier, LinearClassifier)
    scores = classifier.coefficients[0, 0] * np.stack(
        [
            KernelRidge(alpha=ridge, kernel="precomputed")
            .fit(kernel + 1, targets.indicators)
            .predict(kernel + 1)
            for ridge in (0.03, 0.3, 3.0)
        ]
    )
    predicted = classifier.predict(exact.feature_map.transform(samples))
    errors = [np.abs(softmax(each, axis=1) - predicted).max() for each in scores]
    assert min(errors) < 1e-4


def test_a_sample_does_not_influence_its_own_out_of_fold_regression() -> None:
    rng = np.random.default_rng(0)
    samples, codes = rng.standard_normal((120, 30)), rng.integers(0, 2, 120)
    targets = Targets(np.eye(2)[codes], True)
    after = blend_kernel_ridge(Side(samples, targets, know_nothing(samples, targets)), RIDGE, ignore)
    assert (after.out_of_fold * targets.indicators).sum(axis=1).mean() < 0.55


def test_a_sample_of_landmarks_predicts_all_samples() -> None:
    samples, targets = rings(300)
    few = replace(RIDGE, max_samples=100)
    after = blend_kernel_ridge(Side(samples, targets, know_nothing(samples, targets)), few, ignore)
    assert after.ensemble.branches[-1].feature_map.landmarks.shape[0] == 100
    assert (after.out_of_fold.argmax(axis=1) == targets.indicators.argmax(axis=1)).mean() > 0.95


def test_landmarks_of_sparse_samples_are_sparse() -> None:
    samples, targets = rings()
    sparse = scipy.sparse.csr_array(np.where(samples > 0.0, samples, 0.0))
    after = blend_kernel_ridge(Side(sparse, targets, know_nothing(sparse, targets)), RIDGE, ignore)
    assert scipy.sparse.issparse(after.ensemble.branches[-1].feature_map.landmarks)
    np.testing.assert_allclose(after.predict(sparse), after.predict(sparse.toarray()), atol=1e-5)


@pytest.mark.parametrize("case", ["no kernel", "several labels", "no help"])
def test_posteriors_are_unchanged_where_there_is_nothing_to_add(case: str) -> None:
    samples, targets = rings()
    if case == "several labels":
        targets = Targets(targets.indicators, False)
    before = know_nothing(samples, targets, "linear" if case == "no kernel" else "rbf")
    if case == "no help":
        before = replace(before, out_of_fold=targets.indicators)
    assert blend_kernel_ridge(Side(samples, targets, before), RIDGE, ignore) is before


def test_an_estimator_with_it_is_stored(tmp_path: Path) -> None:
    samples, targets = rings()
    codes = targets.indicators.argmax(axis=1)
    model = SemanticBilinear(
        kernels=("rbf",), scalings=("standard",), n_landmarks=8, n_folds=3, n_kept=1, n_rounds=2, n_jobs=1
    ).fit(samples, samples, Labels(codes))
    n_landmarks = [branch.feature_map.landmarks.shape[0] for branch in model.x_posteriors_.ensemble.branches]
    assert n_landmarks == [8, 150]
    projector = PosteriorProjector.of(model)
    save_projector(projector, tmp_path, {})
    again, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(again.project_x(samples), projector.project_x(samples))


CHOICE = SearchOptions(max_samples=1000, n_jobs=1)
RARE = np.repeat(np.arange(12), [120, 90] + [5] * 10)
"""Twelve classes, ten of which have five samples each."""


def posteriors_of(codes: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """Return posteriors of noisy scores, which are true but for the noise."""
    scores = 4.0 * np.eye(n_classes)[codes] + np.random.default_rng(seed).standard_normal(
        (len(codes), n_classes)
    )
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def choose(codes: np.ndarray, P: np.ndarray, Q: np.ndarray) -> float | None:
    targets = Targets(np.eye(P.shape[1])[codes], True)
    return choose_alpha_fraction((P, Q), (targets, targets), Labels(codes), CHOICE, ignore)


def test_rare_classes_are_kept_by_the_identity() -> None:
    P, Q = posteriors_of(RARE, 12, 1), posteriors_of(RARE, 12, 2)
    learned = LowRankBilinear(alpha_fraction=1e-2, loss="squared", fit_intercept=False)
    assert learned.fit(P, Q, Labels(RARE)).rank_ < 12
    assert choose(RARE, P, Q) is None


def test_a_matrix_is_learned_where_held_out_samples_prefer_it() -> None:
    codes = np.arange(200) % 4
    P, Q = posteriors_of(codes, 4, 1), posteriors_of(codes, 4, 2)
    assert (
        choose(codes, P, Q[:, [1, 0, 2, 3]]) in ALPHA_FRACTIONS
    )  # a modality that takes two classes for each other


def test_several_labels_may_be_chosen_by() -> None:
    rng = np.random.default_rng(0)
    has_label = rng.random((150, 4)) < 0.4
    targets = Targets(has_label.astype(np.float64), False)
    noisy = [np.clip(0.8 * has_label + 0.1 + 0.1 * rng.standard_normal((150, 4)), 0, 1) for _ in "xz"]
    supervision = MultiLabels(has_label, has_label)
    mixed = noisy[0], noisy[1][:, ::-1]
    chosen = choose_alpha_fraction(mixed, (targets, targets), supervision, CHOICE, ignore)
    assert chosen in ALPHA_FRACTIONS


@pytest.mark.parametrize("case", ["no pair left", "no difference"])
def test_the_identity_remains_where_nothing_can_be_learned(case: str) -> None:
    if case == "no pair left":
        x, z = np.array([0, 1, 1, 1, 1, 1]), np.array([0, 2, 2, 2, 2, 2])
    else:
        x = z = np.arange(12) % 3
    P, Q = (np.full((len(codes), 3), 1 / 3) for codes in (x, z))
    targets = Targets(np.eye(3)[x], True), Targets(np.eye(3)[z], True)
    assert choose_alpha_fraction((P, Q), targets, Labels(x, z), CHOICE, ignore) is None


def test_an_estimator_finds_rare_classes_and_warns_where_a_given_weight_drops_them() -> None:
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.standard_normal((12, 8))
    X, Z = (centres[RARE] + rng.standard_normal((len(RARE), 8)) for _ in "xz")
    quick: dict[str, Any] = {"kernels": ("linear",), "scalings": ("standard",), "n_folds": 3, "n_jobs": 1}
    with warnings.catch_warnings(action="error"):
        model = SemanticBilinear(**quick).fit(X, Z, Labels(RARE))
    assert model.bilinear_ is None
    assert model.rank_ == 12
    np.testing.assert_array_equal(model.singular_values_, np.ones(12))
    np.testing.assert_array_equal(model.project_x(X), model.x_posteriors_.predict(X))
    projector = PosteriorProjector.of(model)
    np.testing.assert_allclose(projector.project_z(Z), model.project_z(Z), atol=1e-6)
    similarities = np.array([0.0, 0.4, 1.0])
    np.testing.assert_allclose(projector.probability(similarities), similarities, atol=1e-6)
    with pytest.warns(RankWarning, match=r"M has rank \d+, below the number of classes, 12"):
        SemanticBilinear(**quick, alpha_fraction=0.1).fit(X, Z, Labels(RARE))
