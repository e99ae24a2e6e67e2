import numpy as np

from solver import CCA, SCM, Labels, SemanticMatching
from solver.datasets import SyntheticPairs


def test_it_is_semantic_matching_of_canonical_variates(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    cca = CCA(4, reg=0.3, metric="inner").fit(pairs.X, pairs.Z, supervision)
    x, z = cca.project_x(pairs.X), cca.project_z(pairs.Z)
    expected = SemanticMatching(2.0).fit(x, z, supervision)
    model = SCM(4, reg=0.3, C=2.0).fit(pairs.X, pairs.Z, supervision)
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
