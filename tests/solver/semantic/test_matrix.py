"""M between posteriors: the identity, unless held-out samples prefer a learned one."""

import warnings
from typing import Any

import numpy as np
import pytest

from solver import Labels, LowRankBilinear, MultiLabels, PosteriorProjector, RankWarning, SemanticBilinear
from solver.logistic import Targets
from solver.semantic.search import ALPHA_FRACTIONS, SearchOptions, choose_alpha_fraction

OPTIONS = SearchOptions(**SemanticBilinear(loss="squared", max_samples=1000, n_jobs=1).get_params())
RARE = np.repeat(np.arange(12), [120, 90] + [5] * 10)
"""Twelve classes, ten of which have five samples each."""


def ignore() -> None:
    """A heartbeat without effect."""


def posteriors_of(codes: np.ndarray, n_classes: int, seed: int) -> np.ndarray:
    """Return posteriors of noisy scores, which are true but for the noise."""
    scores = 4.0 * np.eye(n_classes)[codes] + np.random.default_rng(seed).standard_normal(
        (len(codes), n_classes)
    )
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def choose(codes: np.ndarray, P: np.ndarray, Q: np.ndarray) -> float | None:
    targets = Targets(np.eye(P.shape[1])[codes], True)
    return choose_alpha_fraction((P, Q), (targets, targets), Labels(codes), OPTIONS, ignore)


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
    chosen = choose_alpha_fraction(mixed, (targets, targets), supervision, OPTIONS, ignore)
    assert chosen in ALPHA_FRACTIONS


@pytest.mark.parametrize("case", ["no pair left", "no difference"])
def test_the_identity_remains_where_nothing_can_be_learned(case: str) -> None:
    if case == "no pair left":
        x, z = np.array([0, 1, 1, 1, 1, 1]), np.array([0, 2, 2, 2, 2, 2])
    else:
        x = z = np.arange(12) % 3
    P, Q = (np.full((len(codes), 3), 1 / 3) for codes in (x, z))
    targets = Targets(np.eye(3)[x], True), Targets(np.eye(3)[z], True)
    assert choose_alpha_fraction((P, Q), targets, Labels(x, z), OPTIONS, ignore) is None


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
