import numpy as np
import pytest
from sklearn.cross_decomposition import PLSSVD, PLSCanonical

from solver import PLS, Labels, PairedRows
from solver.datasets import SyntheticPairs


@pytest.fixture
def rows(pairs: SyntheticPairs) -> tuple[np.ndarray, np.ndarray]:
    return pairs.X[:50] + 2.0, pairs.Z - 1.0


def test_similarity_is_that_of_scikit_learns_svd(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = rows
    x, z = PLSSVD(4, scale=False).fit(X, Z).transform(X, Z)
    similarity = PLS(4, metric="inner").fit(X, Z, PairedRows(50)).similarity(X, Z)
    np.testing.assert_allclose(similarity, x @ z.T, rtol=1e-9, atol=1e-9)


def test_similarity_is_that_of_scikit_learns_canonical_mode(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = rows
    x, z = PLSCanonical(4, scale=False, max_iter=10_000).fit(X, Z).transform(X, Z)
    model = PLS(4, deflation="canonical", metric="inner").fit(X, Z, PairedRows(50))
    # Theirs stops by the change of the weights, here in another basis: 1e-6 squared.
    np.testing.assert_allclose(model.similarity(X, Z), x @ z.T, atol=1e-3 * np.abs(x @ z.T).max())


def test_deflations_share_the_first_direction(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = rows
    first, second = (PLS(1, deflation=each).fit(X, Z, PairedRows(50)) for each in ("cross", "canonical"))
    cosine = (first.x_factors_.T @ second.x_factors_).item() / np.linalg.norm(second.x_factors_)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-4)


def test_factors_are_orthonormal_and_covariances_descend(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = rows
    model = PLS(metric="inner").fit(X, Z, PairedRows(50))
    np.testing.assert_allclose(model.x_factors_.T @ model.x_factors_, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(model.z_factors_.T @ model.z_factors_, np.eye(6), atol=1e-12)
    x, z = model.project_x(X), model.project_z(Z)
    np.testing.assert_allclose(x.T @ z / 50, np.diag(model.covariances_), atol=1e-12)
    assert (np.diff(model.covariances_) <= 0).all()


def test_similar_pairs_are_all_pairs_of_a_class(pairs: SyntheticPairs) -> None:
    i, j = np.nonzero(pairs.x_labels[:, None] == pairs.z_labels)
    x, z = pairs.X - pairs.X.mean(axis=0), pairs.Z - pairs.Z.mean(axis=0)
    expected = np.linalg.svd(x[i].T @ z[j] / len(i), compute_uv=False)
    model = PLS().fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    np.testing.assert_allclose(model.covariances_, expected, rtol=1e-9, atol=1e-12)


def test_canonical_deflation_goes_on_to_the_last_direction(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = rows
    wide = np.hstack([X, X])  # of rank 8, no more than the other's 6
    model = PLS(deflation="canonical").fit(wide, Z, PairedRows(50))
    assert model.x_factors_.shape == (16, 6)
    assert np.isfinite(model.similarity(wide, Z)).all()
