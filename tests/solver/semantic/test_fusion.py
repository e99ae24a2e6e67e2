"""Posteriors read out of a similarity: against the formula written out, and honest out of fold."""

from typing import Any

import numpy as np
import pytest

from solver import Labels, MultiLabels, SemanticBilinear
from solver.errors import InvalidInputError, InvalidParameterError
from solver.logistic import LinearClassifier, Targets
from solver.semantic.ensemble import Member, Posteriors
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.fusion import FusionOptions, Side, fuse
from solver.semantic.neighbours import NeighbourClassifier
from solver.semantic.search import SearchOptions, fit_posteriors

SEARCH = SearchOptions(
    scalings=("standard",),
    kernels=("linear",),
    n_landmarks=30,
    n_folds=3,
    n_kept=1,
    n_rounds=1,
    max_samples=1000,
    seed=0,
    n_jobs=1,
)
OPTIONS = FusionOptions(share=0.25, scale=2.0, max_samples=1000, seed=0, n_jobs=1)


def ignore() -> None:
    """Nobody listens."""


def side(codes: np.ndarray, n_classes: int, seed: int) -> Side:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7 + seed).standard_normal((n_classes, 5)) * 2.0
    samples = centres[codes] + rng.standard_normal((len(codes), 5))
    targets = Targets(np.eye(n_classes)[codes], True)
    return Side(samples, targets, fit_posteriors(samples, targets, SEARCH, ignore))


def two_sides(n: int = 90, n_classes: int = 3) -> tuple[Side, Side, Labels]:
    rng = np.random.default_rng(0)
    x, z = rng.integers(0, n_classes, n), rng.integers(0, n_classes, n - 10)
    return side(x, n_classes, 1), side(z, n_classes, 2), Labels(x, z)


def head_of(posteriors: Posteriors) -> NeighbourClassifier:
    head = posteriors.members[-1].head
    assert isinstance(head, NeighbourClassifier)
    return head


def written_out(head: NeighbourClassifier, mapped: np.ndarray) -> np.ndarray:
    found = np.zeros((len(mapped), head.n_classes))
    for i, sample in enumerate(mapped):
        projected = sample @ head.coefficients + head.intercepts
        weights = np.exp([head.scale * float(projected @ anchor) for anchor in head.anchors])
        for weight, classes in zip(weights, head.indicators, strict=True):
            found[i] += weight * classes
        found[i] /= weights.sum()
    return found


def test_a_read_out_is_the_formula_written_out() -> None:
    rng = np.random.default_rng(0)
    indicators = rng.integers(0, 2, (9, 4)).astype(np.float32)
    factors, intercepts, anchors = (rng.standard_normal(shape) for shape in ((3, 2), 2, (9, 2)))
    head = NeighbourClassifier(factors, intercepts, anchors, indicators, 1.5, False)
    mapped = rng.standard_normal((5000, 3))
    np.testing.assert_allclose(head.predict(mapped)[:20], written_out(head, mapped[:20]), rtol=1e-6)
    np.testing.assert_allclose(head.predict(mapped)[-20:], written_out(head, mapped[-20:]), rtol=1e-6)


def test_the_share_is_mixed_in_and_weights_sum_to_one() -> None:
    x, z, supervision = two_sides()
    for before, after in zip((x, z), fuse(x, z, supervision, OPTIONS, ignore), strict=True):
        assert sum(member.weight for member in after.members) == pytest.approx(1.0)
        head, features = head_of(after), after.members[-1].features
        there = before.posteriors.predict(before.samples)
        read = written_out(head, features.transform(before.samples))
        np.testing.assert_allclose(after.predict(before.samples), 0.75 * there + 0.25 * read, atol=1e-5)
        np.testing.assert_allclose(after.out_of_fold.sum(axis=1), 1.0, rtol=1e-6)
        assert after.log_loss == pytest.approx(before.targets.log_loss(after.out_of_fold))
    assert head_of(after).anchors.shape[0] == len(x.samples)  # of z: the samples of x


def test_a_sample_has_no_part_in_its_own_out_of_fold_posterior() -> None:
    """Labels that say nothing are learned by heart, but not foretold."""
    rng = np.random.default_rng(3)
    x, z = rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    both = tuple(
        Side(samples, targets, fit_posteriors(samples, targets, SEARCH, ignore))
        for samples, targets in ((rng.standard_normal((60, 40)), Targets(np.eye(3)[c], True)) for c in (x, z))
    )
    share = 0.999
    x_after, _ = fuse(both[0], both[1], Labels(x, z), FusionOptions(share, 8.0, 1000, 0, 1), ignore)
    held_out = (x_after.out_of_fold.argmax(axis=1) == x).mean()
    seen = (x_after.predict(both[0].samples).argmax(axis=1) == x).mean()
    assert seen > 0.8
    assert held_out < 0.6


@pytest.mark.parametrize("max_samples", [1000, 120])
def test_a_partner_has_no_part_in_the_out_of_fold_posterior_of_the_other(max_samples: int) -> None:
    """The classes say nothing, but x[i] and z[i] share theirs: who has learned z[i] knows that of x[i]."""
    rng = np.random.default_rng(0)
    n, n_classes = 300, 60
    codes, hidden = rng.integers(0, n_classes, n), rng.standard_normal((n, 20))
    supervision, targets = Labels(codes), Targets(np.eye(n_classes)[codes], True)
    uniform, sides = np.full((n, n_classes), 1 / n_classes), []
    for seed in (1, 2):
        noise = np.random.default_rng(seed).standard_normal(hidden.shape)
        samples = hidden + 0.1 * noise
        features = FeatureMap.fit(samples, "standard", "linear", 1.0, 10, 0)
        head = LinearClassifier(np.zeros((20, n_classes)), np.zeros(n_classes), True)
        posteriors = Posteriors((Member(features, head, 1.0),), uniform, 0.0, ())
        sides.append(Side(samples, targets, posteriors))
    options = FusionOptions(0.999, 8.0, max_samples, 0, 1)
    for after in fuse(sides[0], sides[1], supervision, options, ignore):
        assert (after.out_of_fold.argmax(axis=1) == codes).mean() < 0.08


def test_what_rests_on_some_samples_reads_out_all() -> None:
    x, z, supervision = two_sides()
    few = FusionOptions(share=0.5, scale=4.0, max_samples=40, seed=0, n_jobs=1)
    x_after, z_after = fuse(x, z, supervision, few, ignore)
    assert len(head_of(x_after).anchors) == len(head_of(z_after).anchors) == 40
    alone = (x_after.out_of_fold - 0.5 * x.posteriors.out_of_fold) / 0.5
    assert (alone.argmax(axis=1) == x.targets.indicators.argmax(axis=1)).mean() > 0.6


def test_the_number_of_jobs_changes_nothing() -> None:
    x, z, supervision = two_sides()
    one, two = (
        fuse(x, z, supervision, FusionOptions(0.25, 2.0, 1000, 0, n_jobs), ignore)[0] for n_jobs in (1, 2)
    )
    np.testing.assert_array_equal(one.out_of_fold, two.out_of_fold)


@pytest.mark.parametrize("case", ["no share", "no pair left", "no feature"])
def test_without_anything_to_learn_from_the_posteriors_stay(case: str) -> None:
    x, z, supervision = two_sides()
    options = OPTIONS
    if case == "no share":
        options = FusionOptions(0.0, 2.0, 1000, 0, 1)
    elif case == "no pair left":
        # The only pairs are of one sample each: without it there are none.
        codes = np.array([0, 1, 1, 1, 1, 1]), np.array([0, 2, 2, 2, 2, 2])
        x, z = side(codes[0], 3, 1), side(codes[1], 3, 2)
        supervision = Labels(*codes)
    else:
        # Every class holds the same samples.
        codes_of_both, samples = np.tile([0, 0, 1, 1], 12), np.tile([[1.0], [-1.0]], (24, 1))
        targets = Targets(np.eye(2)[codes_of_both], True)
        x = z = Side(samples, targets, fit_posteriors(samples, targets, SEARCH, ignore))
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
    model = SemanticBilinear(read_out=0.9, read_out_scale=4.0, **quick).fit(X, Z, MultiLabels(x, z))
    found = model.x_posteriors_.predict(X)
    assert found.min() >= 0.0
    assert found.max() <= 1.0
    assert found[x].mean() > found[~x].mean() + 0.2


def test_whatever_the_heartbeat_raises_ends_the_fit() -> None:
    x, z, supervision = two_sides()

    def stop() -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        fuse(x, z, supervision, OPTIONS, stop)


def test_parts_that_do_not_fit_are_refused() -> None:
    good: dict[str, Any] = {
        "coefficients": np.zeros((3, 2)),
        "intercepts": np.zeros(2),
        "anchors": np.zeros((4, 2)),
        "indicators": np.eye(4, 5),
        "scale": 1.0,
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
        ("scale", 0.0),
        ("scale", 1e5),
        ("scale", np.nan),
    ):
        with pytest.raises(InvalidInputError):
            NeighbourClassifier(**{**good, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("read_out", 1.0), ("read_out", -0.1), ("read_out_scale", 0.0), ("read_out_scale", 1e5)],
)
def test_parameters_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        SemanticBilinear(**{name: value}).fit(np.eye(3), np.eye(3), Labels([0, 1, 1]))
