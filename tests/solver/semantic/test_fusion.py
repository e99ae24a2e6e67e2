"""Neighbour classifiers: compared with their formula, and out-of-fold predictions without leaks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver import Labels, MultiLabels, SemanticBilinear
from solver.logistic import LinearClassifier, Targets
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.ensemble import Branch, Ensemble, NeighbourClassifier, WeightedClassifier
from solver.semantic.learners import Posteriors
from solver.semantic.search import SearchOptions, Side, fit_posteriors, fuse
from solver.validation import InvalidInputError

PARAMETERS = SemanticBilinear(
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
OPTIONS = SearchOptions(**PARAMETERS.get_params())


def ignore() -> None:
    """A heartbeat without effect."""


def side(codes: np.ndarray, n_classes: int, seed: int) -> Side:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7 + seed).standard_normal((n_classes, 5)) * 2.0
    samples = centres[codes] + rng.standard_normal((len(codes), 5))
    targets = Targets(np.eye(n_classes)[codes], True)
    return Side(samples, targets, fit_posteriors(samples, targets, OPTIONS, ignore))


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
    for before, after in zip((x, z), fuse(x, z, supervision, OPTIONS, ignore), strict=True):
        assert sum(member.weight for member in after.ensemble.members) == pytest.approx(1.0)
        feature_map = before.posteriors.ensemble.heaviest_branch.feature_map
        linear = before.posteriors.predict(before.samples)
        votes = predict_by_formula(neighbours_of(after), feature_map.transform(before.samples))
        np.testing.assert_allclose(after.predict(before.samples), 0.75 * linear + 0.25 * votes, atol=1e-5)
        np.testing.assert_allclose(after.out_of_fold.sum(axis=1), 1.0, rtol=1e-6)
        assert after.log_loss == pytest.approx(before.targets.log_loss(after.out_of_fold))
    assert len(neighbours_of(after).anchors) == len(x.samples)  # samples of x vote on z


def test_a_sample_does_not_influence_its_own_out_of_fold_posterior() -> None:
    """Random labels are learned by heart, but cannot be predicted."""
    rng = np.random.default_rng(3)
    x, z = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    both = tuple(
        Side(samples, targets, fit_posteriors(samples, targets, OPTIONS, ignore))
        for samples, targets in ((rng.standard_normal((60, 40)), Targets(np.eye(3)[c], True)) for c in (x, z))
    )
    share = 0.999
    options = replace(OPTIONS, neighbour_share=share, inverse_temperature=8.0)
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
    options = replace(OPTIONS, neighbour_share=0.999, inverse_temperature=8.0, max_samples=max_samples)
    for after in fuse(sides[0], sides[1], supervision, options, ignore):
        assert (after.out_of_fold.argmax(axis=1) == codes).mean() < 0.08


def test_a_sample_of_anchors_votes_on_all_samples() -> None:
    x, z, supervision = two_sides()
    few = replace(OPTIONS, neighbour_share=0.5, inverse_temperature=4.0, max_samples=40)
    x_after, z_after = fuse(x, z, supervision, few, ignore)
    assert len(neighbours_of(x_after).anchors) == len(neighbours_of(z_after).anchors) == 40
    alone = (x_after.out_of_fold - 0.5 * x.posteriors.out_of_fold) / 0.5
    assert (alone.argmax(axis=1) == x.targets.indicators.argmax(axis=1)).mean() > 0.6


@pytest.mark.parametrize("case", ["no share", "no pair left", "no feature"])
def test_posteriors_are_unchanged_where_there_is_nothing_to_learn_from(case: str) -> None:
    x, z, supervision = two_sides()
    options = OPTIONS
    if case == "no share":
        options = replace(OPTIONS, neighbour_share=0.0)
    elif case == "no pair left":
        # The only similar pair: no fold can do without it.
        codes = np.array([0, 1, 1, 1, 1, 1]), np.array([0, 2, 2, 2, 2, 2])
        x, z = side(codes[0], 3, 1), side(codes[1], 3, 2)
        supervision = Labels(*codes)
    else:
        # Every class holds the same samples.
        codes_of_both, samples = np.tile([0, 0, 1, 1], 12), np.tile([[1.0], [-1.0]], (24, 1))
        targets = Targets(np.eye(2)[codes_of_both], True)
        x = z = Side(samples, targets, fit_posteriors(samples, targets, OPTIONS, ignore))
        supervision = Labels(codes_of_both)
    x_after, z_after = fuse(x, z, supervision, options, ignore)
    assert x_after is x.posteriors
    assert z_after is z.posteriors


def test_labels_may_be_many() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.random((80, 3)) < 0.4, rng.random((70, 3)) < 0.4
    X, Z = x @ rng.standard_normal((3, 6)) * 3, z @ rng.standard_normal((3, 5)) * 3
    X, Z = X + 0.3 * rng.standard_normal(X.shape), Z + 0.3 * rng.standard_normal(Z.shape)
    quick: dict[str, Any] = {"n_folds": 3, "n_kept": 1, "n_rounds": 1, "kernels": ("linear",), "n_jobs": 1}
    model = SemanticBilinear(neighbour_share=0.9, inverse_temperature=4.0, **quick).fit(
        X, Z, MultiLabels(x, z)
    )
    posteriors = model.x_posteriors_.predict(X)
    assert posteriors.min() >= 0.0
    assert posteriors.max() <= 1.0
    assert posteriors[x].mean() > posteriors[~x].mean() + 0.2


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
