import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import sklearn.cross_decomposition

from solver import CCA, Labels, MultiLabels, PairedRows, SignedPairs
from solver.datasets import SyntheticPairs
from solver.evaluation.metrics import mean_average_precision


@pytest.fixture
def paired() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((80, 3))
    X = shared @ rng.standard_normal((3, 6)) + rng.standard_normal((80, 6))
    Z = shared @ rng.standard_normal((3, 5)) + rng.standard_normal((80, 5)) + 4.0
    return X, Z


def test_correlations_solve_the_textbook_eigenproblem(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    C = np.cov(np.hstack([X, Z]).T)
    C_xx, C_xz, C_zz = C[:6, :6], C[:6, 6:], C[6:, 6:]
    squares = scipy.linalg.eigvals(C_xz @ np.linalg.solve(C_zz, C_xz.T), C_xx).real
    model = CCA(reg=0.0).fit(X, Z, PairedRows(80))
    np.testing.assert_allclose(model.correlations_, np.sqrt(np.sort(squares)[::-1][:5]), rtol=1e-9)


def test_variates_are_white_and_correlate_pairwise_alone(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    model = CCA(reg=0.0, metric="inner").fit(X, Z, PairedRows(80))
    x, z = model.project_x(X), model.project_z(Z)
    for each in (x, z):
        np.testing.assert_allclose(each.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(each.T @ each / 80, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(x.T @ z / 80, np.diag(model.correlations_), atol=1e-12)


def test_variates_are_those_of_scikit_learn(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    model = CCA(2, reg=0.0, metric="inner").fit(X, Z, PairedRows(80))
    theirs = (
        sklearn.cross_decomposition.CCA(2, scale=False, max_iter=10_000, tol=1e-13).fit(X, Z).transform(X, Z)
    )
    for ours, other in zip((model.project_x(X), model.project_z(Z)), theirs, strict=True):
        # Up to sign and length; scikit-learn stops by the weights' change, 1e-13 squared.
        unit = [each / np.linalg.norm(each, axis=0) for each in (ours, other)]
        np.testing.assert_allclose(np.abs(np.sum(unit[0] * unit[1], axis=0)), 1.0, atol=1e-6)


def test_ridge_is_a_share_of_the_mean_variance(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    reg = 0.3
    x, z = X - X.mean(axis=0), Z - Z.mean(axis=0)
    whitened = [
        scipy.linalg.fractional_matrix_power(C + reg * np.trace(C) / len(C) * np.eye(len(C)), -0.5)
        for C in (x.T @ x / 80, z.T @ z / 80)
    ]
    expected = np.linalg.svd(whitened[0] @ (x.T @ z / 80) @ whitened[1], compute_uv=False)
    np.testing.assert_allclose(CCA(reg=reg).fit(X, Z, PairedRows(80)).correlations_, expected, rtol=1e-9)


def test_similarity_is_invariant_to_invertible_affine_maps_without_ridge(
    paired: tuple[np.ndarray, np.ndarray],
) -> None:
    X, Z = paired
    rng = np.random.default_rng(1)
    P, Q = rng.standard_normal((6, 6)), rng.standard_normal((5, 5))
    before = CCA(3, reg=0.0).fit(X, Z, PairedRows(80)).similarity(X, Z)
    X, Z = X @ P + 3.0, Z @ Q - 1.0
    np.testing.assert_allclose(CCA(3, reg=0.0).fit(X, Z, PairedRows(80)).similarity(X, Z), before, atol=1e-9)
    assert np.abs(CCA(3, reg=1.0).fit(X, Z, PairedRows(80)).similarity(X, Z) - before).max() > 0.01


def test_similarity_is_invariant_to_units_with_a_ridge(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    before = CCA(3, reg=0.5).fit(X, Z, PairedRows(80)).similarity(X, Z)
    after = CCA(3, reg=0.5).fit(1e-6 * X, 1e4 * Z, PairedRows(80)).similarity(1e-6 * X, 1e4 * Z)
    np.testing.assert_allclose(after, before, atol=1e-10)


def test_singular_covariances_are_no_obstacle(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    # Features that repeat, sum to a constant or are constant add nothing.
    wide = np.hstack([X, X[:, :2], 1.0 - X.sum(axis=1, keepdims=True), np.ones((80, 1))])
    plain = CCA(reg=0.0).fit(X, Z, PairedRows(80))
    model = CCA(reg=0.0).fit(wide, Z, PairedRows(80))
    np.testing.assert_allclose(model.correlations_, plain.correlations_, rtol=1e-9)
    np.testing.assert_allclose(model.similarity(wide, Z), plain.similarity(X, Z), atol=1e-8)
    sums = np.exp(X) / np.exp(X).sum(axis=1, keepdims=True)
    for stored in (sums, sums.astype(np.float32)):
        assert len(CCA(reg=0.0).fit(stored, stored, PairedRows(80)).correlations_) == 5


def test_without_ridge_it_memorises_where_features_outnumber_samples() -> None:
    """Known since at least Hardoon et al., section 3: every correlation is 1, and means nothing."""
    rng = np.random.default_rng(2)
    labels = np.arange(200) % 4
    centres = rng.standard_normal((4, 60))
    X, Z = (centres[labels] + 1.5 * rng.standard_normal((200, 60)) for _ in range(2))
    train, test = slice(0, 50), slice(50, None)

    def held_out(model: CCA) -> float:
        model.fit(X[train], Z[train], PairedRows(50))
        return mean_average_precision(
            model.project_x(X[test]), model.project_z(Z[test]), labels[test], labels[test]
        )

    bare, ridge = CCA(3, reg=0.0), CCA(3, reg=1.0)
    without, with_ridge = held_out(bare), held_out(ridge)
    np.testing.assert_allclose(bare.correlations_, 1.0, atol=1e-9)
    # Chance is a quarter.
    assert without < 0.4
    assert with_ridge > without + 0.3


def test_large_ridge_gives_the_directions_of_pls(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    U, _, _ = np.linalg.svd((X - X.mean(axis=0)).T @ (Z - Z.mean(axis=0)), full_matrices=False)
    factors = CCA(3, reg=1e9).fit(X, Z, PairedRows(80)).x_factors_
    assert scipy.linalg.subspace_angles(factors, U[:, :3]).max() < 1e-6


def test_power_weights_variates_by_their_correlation(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    plain = CCA(metric="inner").fit(X, Z, PairedRows(80))
    weighted = CCA(metric="inner", correlation_power=2.0).fit(X, Z, PairedRows(80))
    np.testing.assert_allclose(weighted.x_factors_, plain.x_factors_ * plain.correlations_**2, rtol=1e-12)
    np.testing.assert_allclose(weighted.z_intercept_, plain.z_intercept_ * plain.correlations_**2, rtol=1e-12)


def test_components_are_the_leading_ones_and_no_more_than_there_are(
    paired: tuple[np.ndarray, np.ndarray],
) -> None:
    X, Z = paired
    every = CCA().fit(X, Z, PairedRows(80))
    assert every.x_factors_.shape == (6, 5)
    assert CCA(50).fit(X, Z, PairedRows(80)).x_factors_.shape == (6, 5)
    np.testing.assert_array_equal(CCA(2).fit(X, Z, PairedRows(80)).x_factors_, every.x_factors_[:, :2])


def test_labels_equal_row_by_row_make_rows_the_pairs(pairs: SyntheticPairs) -> None:
    X, Z, labels = pairs.X[:50], pairs.Z, pairs.x_labels[:50]
    by_rows = CCA(3).fit(X, Z, PairedRows(50)).similarity(X, Z)
    np.testing.assert_array_equal(CCA(3).fit(X, Z, Labels(labels)).similarity(X, Z), by_rows)
    indicators = np.eye(4, dtype=bool)[labels]
    np.testing.assert_array_equal(CCA(3).fit(X, Z, MultiLabels(indicators)).similarity(X, Z), by_rows)
    by_class = CCA(3, pairs="similar").fit(X, Z, Labels(labels)).similarity(X, Z)
    assert np.abs(by_class - by_rows).max() > 0.01


def test_similar_pairs_are_those_of_any_supervision(pairs: SyntheticPairs) -> None:
    signs = np.where(pairs.x_labels[:, None] == pairs.z_labels, 1, -1)
    indicators = (np.eye(4, dtype=bool)[each] for each in (pairs.x_labels, pairs.z_labels))
    supervisions = [
        Labels(pairs.x_labels, pairs.z_labels),
        MultiLabels(*indicators),
        SignedPairs(scipy.sparse.csr_array(signs)),
    ]
    first, *others = (
        CCA(3).fit(pairs.X, pairs.Z, each).similarity(pairs.X, pairs.Z) for each in supervisions
    )
    for other in others:
        np.testing.assert_allclose(other, first, atol=1e-9)


def test_similar_pairs_are_the_rows_of_the_list_of_pairs(pairs: SyntheticPairs) -> None:
    i, j = np.nonzero(pairs.x_labels[:, None] == pairs.z_labels)
    x, z = pairs.X - pairs.X.mean(axis=0), pairs.Z - pairs.Z.mean(axis=0)
    whitened = [scipy.linalg.fractional_matrix_power(each.T @ each / len(each), -0.5) for each in (x, z)]
    expected = np.linalg.svd(whitened[0] @ (x[i].T @ z[j] / len(i)) @ whitened[1], compute_uv=False)
    model = CCA(reg=0.0).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    np.testing.assert_allclose(model.correlations_, expected, rtol=1e-8, atol=1e-12)


def test_projection_of_zero_stays_zero_under_the_cosine(paired: tuple[np.ndarray, np.ndarray]) -> None:
    X, Z = paired
    model = CCA().fit(X, Z, PairedRows(80))
    model.x_intercept_ = np.zeros(5)
    np.testing.assert_array_equal(model.project_x(np.zeros((1, 6))), np.zeros((1, 5)))
