import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from solver import CCA, SCM, Labels, MultiLabels, SemanticMatching
from solver.datasets import SyntheticPairs


@pytest.mark.parametrize("n_classes", [2, 4])
def test_projections_are_scikit_learns_posteriors(n_classes: int, pairs: SyntheticPairs) -> None:
    x_labels, z_labels = pairs.x_labels % n_classes, pairs.z_labels % n_classes
    model = SemanticMatching(C=3.0).fit(pairs.X, pairs.Z, Labels(x_labels, z_labels))
    expected = LogisticRegression(C=3.0, max_iter=5000).fit(pairs.X, x_labels).predict_proba(pairs.X)
    np.testing.assert_allclose(model.project_x(pairs.X), expected, atol=1e-12)
    expected = LogisticRegression(C=3.0, max_iter=5000).fit(pairs.Z, z_labels).predict_proba(pairs.Z)
    np.testing.assert_allclose(model.project_z(pairs.Z), expected, atol=1e-12)


def test_posteriors_are_stationary_points_of_the_stated_problem(pairs: SyntheticPairs) -> None:
    C = 0.5
    model = SemanticMatching(C=C, tol=1e-9).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    residual = model.project_x(pairs.X) - np.eye(4)[pairs.x_labels]
    # Gradient of 1/2 |W|^2 + C * loss in W and b.
    np.testing.assert_allclose(model.x_classifier_.coefficients + C * pairs.X.T @ residual, 0.0, atol=1e-5)
    np.testing.assert_allclose(residual.sum(axis=0), 0.0, atol=1e-5)


def test_posteriors_sum_to_one_however_far_the_sample(pairs: SyntheticPairs) -> None:
    model = SemanticMatching(C=100.0).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    for samples in (pairs.X, 1e6 * pairs.X):
        posteriors = model.project_x(samples)
        assert (posteriors >= 0).all()
        np.testing.assert_allclose(posteriors.sum(axis=1), 1.0, rtol=1e-12)


def test_strong_penalty_leaves_the_shares_of_the_classes(pairs: SyntheticPairs) -> None:
    model = SemanticMatching(C=1e-9, tol=1e-9).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    shares = np.bincount(pairs.x_labels) / len(pairs.x_labels)
    np.testing.assert_allclose(model.project_x(pairs.X), np.tile(shares, (60, 1)), atol=1e-5)


def test_modalities_may_have_penalties_of_their_own(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model = SemanticMatching(C=0.1, z_C=10.0).fit(pairs.X, pairs.Z, supervision)
    for C, project in ((0.1, "project_x"), (10.0, "project_z")):
        samples = pairs.X if project == "project_x" else pairs.Z
        alone = SemanticMatching(C=C).fit(pairs.X, pairs.Z, supervision)
        np.testing.assert_array_equal(getattr(model, project)(samples), getattr(alone, project)(samples))


def test_class_that_one_modality_never_shows_has_posterior_zero_there(pairs: SyntheticPairs) -> None:
    kept = pairs.z_labels != 1
    model = SemanticMatching().fit(pairs.X, pairs.Z[kept], Labels(pairs.x_labels, pairs.z_labels[kept]))
    x, z = model.project_x(pairs.X), model.project_z(pairs.Z)
    assert x.shape[1] == z.shape[1] == 4
    assert (x[:, 1] > 0).all()
    np.testing.assert_array_equal(z[:, 1], 0.0)
    np.testing.assert_allclose(z.sum(axis=1), 1.0, rtol=1e-12)


def test_modality_of_one_class_is_sure_of_it(pairs: SyntheticPairs) -> None:
    kept = pairs.z_labels == 2
    model = SemanticMatching().fit(pairs.X, pairs.Z[kept], Labels(pairs.x_labels, pairs.z_labels[kept]))
    np.testing.assert_array_equal(model.project_z(pairs.Z), np.eye(4)[np.full(50, 2)])


def test_multi_labels_have_a_logistic_regression_each(pairs: SyntheticPairs) -> None:
    rng = np.random.default_rng(0)
    x_indicators, z_indicators = rng.random((60, 5)) < 0.4, rng.random((50, 5)) < 0.4
    x_indicators[:, 3], x_indicators[:, 4] = True, False
    model = SemanticMatching(C=2.0).fit(pairs.X, pairs.Z, MultiLabels(x_indicators, z_indicators))
    posteriors = model.project_x(pairs.X)
    for label in range(3):
        alone = LogisticRegression(C=2.0, max_iter=5000).fit(pairs.X, x_indicators[:, label])
        np.testing.assert_allclose(posteriors[:, label], alone.predict_proba(pairs.X)[:, 1], atol=1e-12)
    np.testing.assert_array_equal(posteriors[:, 3], 1.0)
    np.testing.assert_array_equal(posteriors[:, 4], 0.0)


def test_iteration_limit_gives_a_warning(pairs: SyntheticPairs) -> None:
    with warnings.catch_warnings(), pytest.warns(ConvergenceWarning):
        SemanticMatching(C=1e6, max_iter=2).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))


def test_it_is_semantic_matching_of_canonical_variates(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    cca = CCA(4, reg=0.3, metric="inner").fit(pairs.X, pairs.Z, supervision)
    x, z = cca.project_x(pairs.X), cca.project_z(pairs.Z)
    expected = SemanticMatching(2.0, z_C=0.1).fit(x, z, supervision)
    model = SCM(4, reg=0.3, C=2.0, z_C=0.1).fit(pairs.X, pairs.Z, supervision)
    np.testing.assert_array_equal(model.project_x(pairs.X), expected.project_x(x))
    np.testing.assert_array_equal(model.project_z(pairs.Z), expected.project_z(z))


def test_all_canonical_variates_without_penalty_give_the_posteriors_of_the_features(
    pairs: SyntheticPairs,
) -> None:
    """An invertible map changes nothing where nothing is penalised."""
    labels = np.random.default_rng(0).integers(0, 3, 60), np.random.default_rng(1).integers(0, 3, 50)
    X, Z, supervision = pairs.X[:, :6], pairs.Z, Labels(*labels)
    plain = SemanticMatching(1e6, tol=1e-8).fit(X, Z, supervision)
    model = SCM(reg=0.0, C=1e6, tol=1e-8).fit(X, Z, supervision)
    np.testing.assert_allclose(model.project_x(X), plain.project_x(X), atol=1e-3)
    np.testing.assert_allclose(model.project_z(Z), plain.project_z(Z), atol=1e-3)
