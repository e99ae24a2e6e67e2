import itertools
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import sklearn.cross_decomposition
from sklearn.cross_decomposition import PLSSVD, PLSCanonical

from solver import CCA, PLS, WMCA, Labels, MsAlg, MultiLabels, PairedRows, SignedPairs
from solver.datasets import SyntheticPairs
from solver.evaluation.metrics import mean_average_precision

Rows = tuple[np.ndarray, np.ndarray]
"""Samples of both modalities, paired row by row."""


@pytest.fixture
def paired() -> Rows:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((80, 3))
    X = shared @ rng.standard_normal((3, 6)) + rng.standard_normal((80, 6))
    Z = shared @ rng.standard_normal((3, 5)) + rng.standard_normal((80, 5)) + 4.0
    return X, Z


def test_correlations_solve_the_textbook_eigenproblem(paired: Rows) -> None:
    X, Z = paired
    C = np.cov(np.hstack([X, Z]).T)
    C_xx, C_xz, C_zz = C[:6, :6], C[:6, 6:], C[6:, 6:]
    squares = scipy.linalg.eigvals(C_xz @ np.linalg.solve(C_zz, C_xz.T), C_xx).real
    model = CCA(reg=0.0).fit(X, Z, PairedRows(80))
    np.testing.assert_allclose(model.correlations_, np.sqrt(np.sort(squares)[::-1][:5]), rtol=1e-9)


def test_variates_are_white_and_correlate_pairwise_alone(paired: Rows) -> None:
    X, Z = paired
    model = CCA(reg=0.0, metric="inner").fit(X, Z, PairedRows(80))
    x, z = model.project_x(X), model.project_z(Z)
    for each in (x, z):
        np.testing.assert_allclose(each.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(each.T @ each / 80, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(x.T @ z / 80, np.diag(model.correlations_), atol=1e-12)


def test_variates_are_those_of_scikit_learn(paired: Rows) -> None:
    X, Z = paired
    model = CCA(2, reg=0.0, metric="inner").fit(X, Z, PairedRows(80))
    theirs = (
        sklearn.cross_decomposition.CCA(2, scale=False, max_iter=10_000, tol=1e-13).fit(X, Z).transform(X, Z)
    )
    for ours, other in zip((model.project_x(X), model.project_z(Z)), theirs, strict=True):
        # Up to sign and length; scikit-learn stops by the weights' change, 1e-13 squared.
        unit = [each / np.linalg.norm(each, axis=0) for each in (ours, other)]
        np.testing.assert_allclose(np.abs(np.sum(unit[0] * unit[1], axis=0)), 1.0, atol=1e-6)


def test_ridge_is_a_share_of_the_mean_variance(paired: Rows) -> None:
    X, Z = paired
    reg = 0.3
    x, z = X - X.mean(axis=0), Z - Z.mean(axis=0)
    whitened = [
        scipy.linalg.fractional_matrix_power(C + reg * np.trace(C) / len(C) * np.eye(len(C)), -0.5)
        for C in (x.T @ x / 80, z.T @ z / 80)
    ]
    expected = np.linalg.svd(whitened[0] @ (x.T @ z / 80) @ whitened[1], compute_uv=False)
    np.testing.assert_allclose(CCA(reg=reg).fit(X, Z, PairedRows(80)).correlations_, expected, rtol=1e-9)


def test_similarity_is_invariant_to_invertible_affine_maps_without_ridge(paired: Rows) -> None:
    X, Z = paired
    rng = np.random.default_rng(1)
    P, Q = rng.standard_normal((6, 6)), rng.standard_normal((5, 5))
    before = CCA(3, reg=0.0).fit(X, Z, PairedRows(80)).similarity(X, Z)
    X, Z = X @ P + 3.0, Z @ Q - 1.0
    np.testing.assert_allclose(CCA(3, reg=0.0).fit(X, Z, PairedRows(80)).similarity(X, Z), before, atol=1e-9)
    assert np.abs(CCA(3, reg=1.0).fit(X, Z, PairedRows(80)).similarity(X, Z) - before).max() > 0.01


def test_singular_covariances_are_no_obstacle(paired: Rows) -> None:
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


def test_large_ridge_gives_the_directions_of_pls(paired: Rows) -> None:
    X, Z = paired
    U, _, _ = np.linalg.svd((X - X.mean(axis=0)).T @ (Z - Z.mean(axis=0)), full_matrices=False)
    factors = CCA(3, reg=1e9).fit(X, Z, PairedRows(80)).x_factors_
    assert scipy.linalg.subspace_angles(factors, U[:, :3]).max() < 1e-6


def test_power_weights_variates_by_their_correlation(paired: Rows) -> None:
    X, Z = paired
    plain = CCA(metric="inner").fit(X, Z, PairedRows(80))
    weighted = CCA(metric="inner", correlation_power=2.0).fit(X, Z, PairedRows(80))
    np.testing.assert_allclose(weighted.x_factors_, plain.x_factors_ * plain.correlations_**2, rtol=1e-12)
    np.testing.assert_allclose(weighted.z_intercept_, plain.z_intercept_ * plain.correlations_**2, rtol=1e-12)


def test_components_are_the_leading_ones_and_no_more_than_there_are(paired: Rows) -> None:
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


def test_projection_of_zero_stays_zero_under_the_cosine(paired: Rows) -> None:
    X, Z = paired
    model = CCA().fit(X, Z, PairedRows(80))
    model.x_intercept_ = np.zeros(5)
    np.testing.assert_array_equal(model.project_x(np.zeros((1, 6))), np.zeros((1, 5)))


@pytest.fixture
def rows(pairs: SyntheticPairs) -> Rows:
    return pairs.X[:50] + 2.0, pairs.Z - 1.0


def test_similarity_is_that_of_scikit_learns_svd(rows: Rows) -> None:
    X, Z = rows
    x, z = PLSSVD(4, scale=False).fit(X, Z).transform(X, Z)
    similarity = PLS(4, metric="inner").fit(X, Z, PairedRows(50)).similarity(X, Z)
    np.testing.assert_allclose(similarity, x @ z.T, rtol=1e-9, atol=1e-9)


def test_similarity_is_that_of_scikit_learns_canonical_mode(rows: Rows) -> None:
    X, Z = rows
    x, z = PLSCanonical(4, scale=False, max_iter=10_000).fit(X, Z).transform(X, Z)
    model = PLS(4, deflation="canonical", metric="inner").fit(X, Z, PairedRows(50))
    # Theirs stops by the change of the weights, here in another basis: 1e-6 squared.
    np.testing.assert_allclose(model.similarity(X, Z), x @ z.T, atol=1e-3 * np.abs(x @ z.T).max())


def test_deflations_share_the_first_direction(rows: Rows) -> None:
    X, Z = rows
    first, second = (PLS(1, deflation=each).fit(X, Z, PairedRows(50)) for each in ("cross", "canonical"))
    cosine = (first.x_factors_.T @ second.x_factors_).item() / np.linalg.norm(second.x_factors_)
    assert abs(cosine) == pytest.approx(1.0, abs=1e-4)


def test_factors_are_orthonormal_and_covariances_descend(rows: Rows) -> None:
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


def test_canonical_deflation_goes_on_to_the_last_direction(rows: Rows) -> None:
    X, Z = rows
    wide = np.hstack([X, X])  # of rank 8, no more than the other's 6
    model = PLS(deflation="canonical").fit(wide, Z, PairedRows(50))
    assert model.x_factors_.shape == (16, 6)
    assert np.isfinite(model.similarity(wide, Z)).all()


def test_maps_are_the_singular_vectors_of_the_similar_pairs(pairs: SyntheticPairs) -> None:
    i, j = np.nonzero(pairs.x_labels[:, None] == pairs.z_labels)
    U, s, Vt = np.linalg.svd(pairs.X[i].T @ pairs.Z[j] / len(i), full_matrices=False)
    model = MsAlg(3).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    np.testing.assert_allclose(model.singular_values_, s[:3], rtol=1e-9)
    np.testing.assert_allclose(model.x_factors_ @ model.z_factors_.T, U[:, :3] @ Vt[:3], atol=1e-9)


def test_no_orthonormal_maps_make_similar_pairs_more_similar(pairs: SyntheticPairs) -> None:
    similar = pairs.x_labels[:, None] == pairs.z_labels
    model = MsAlg(3).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    reached = model.similarity(pairs.X, pairs.Z)[similar].mean()
    assert reached == pytest.approx(model.singular_values_.sum(), rel=1e-9)
    rng = np.random.default_rng(0)
    for _ in range(20):
        left, _ = np.linalg.qr(model.x_factors_ + 0.1 * rng.standard_normal((8, 3)))
        right, _ = np.linalg.qr(model.z_factors_ + 0.1 * rng.standard_normal((6, 3)))
        assert (pairs.X @ left @ right.T @ pairs.Z.T)[similar].mean() < reached


def test_on_centred_rows_it_is_pls(pairs: SyntheticPairs) -> None:
    X, Z = pairs.X[:50] - pairs.X[:50].mean(axis=0), pairs.Z - pairs.Z.mean(axis=0)
    expected = PLS(3, metric="inner").fit(X, Z, PairedRows(50)).similarity(X, Z)
    np.testing.assert_allclose(MsAlg(3).fit(X, Z, PairedRows(50)).similarity(X, Z), expected, atol=1e-9)


def test_dissimilar_pairs_have_no_part(pairs: SyntheticPairs) -> None:
    signs = np.where(pairs.x_labels[:, None] == pairs.z_labels, 1, -1)
    fewer = signs * ((signs > 0) | (np.random.default_rng(0).random(signs.shape) < 0.1))
    first, second = (
        MsAlg(3).fit(pairs.X, pairs.Z, SignedPairs(scipy.sparse.csr_array(each))) for each in (signs, fewer)
    )
    np.testing.assert_array_equal(first.x_factors_, second.x_factors_)


def test_a_common_mean_comes_first(pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    model = MsAlg(1).fit(pairs.X + 100.0, pairs.Z + 100.0, supervision)
    # Against the constant direction: the samples' own size over 100 bounds the angle.
    assert abs(model.x_factors_.sum()) / np.sqrt(8) > 0.999


def _labels(pairs: SyntheticPairs) -> Labels:
    return Labels(pairs.x_labels, pairs.z_labels)


def _alternate(X: Any, Z: Any, labels: Any, count: int) -> tuple[Any, float]:
    """The method written down, with all pairings of every group tried; both modalities have these labels."""
    X, Z = X - X.mean(axis=0), Z - Z.mean(axis=0)
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    cross = sum(np.outer(X[rows].sum(axis=0), Z[rows].sum(axis=0)) / len(rows) for rows in groups)
    objective = -np.inf
    while True:
        U, s, Vt = np.linalg.svd(cross)
        if s[:count].sum() / len(X) <= objective + 1e-12:
            return X @ U[:, :count] @ Vt[:count] @ Z.T, objective
        objective = s[:count].sum() / len(X) if np.isfinite(objective) else -1.0
        similarity = X @ U[:, :count] @ Vt[:count] @ Z.T
        cross = 0.0
        for rows in groups:
            best = max(itertools.permutations(rows), key=lambda order: similarity[rows, list(order)].sum())
            cross = cross + X[rows].T @ Z[list(best)]


def test_it_is_the_alternation_of_the_paper() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1, 2], 4)
    X, Z = (rng.standard_normal((3, size))[labels] + rng.standard_normal((12, size)) for size in (4, 3))
    model = WMCA(2, metric="inner").fit(X, Z, Labels(labels))
    similarity, objective = _alternate(X, Z, labels, 2)
    assert model.objectives_[-1] == pytest.approx(objective, rel=1e-9)
    np.testing.assert_allclose(model.similarity(X, Z), similarity, atol=1e-9)


def test_no_step_lowers_the_objective_and_each_sample_is_in_one_pair(pairs: SyntheticPairs) -> None:
    model = WMCA(3).fit(pairs.X, pairs.Z, _labels(pairs))
    assert len(model.objectives_) > 1
    assert (np.diff(model.objectives_) > -1e-12).all()
    for rows, labels, others in (
        (model.x_pairs_, pairs.x_labels, pairs.z_labels),
        (model.z_pairs_, pairs.z_labels, pairs.x_labels),
    ):
        smaller = np.minimum(np.bincount(labels), np.bincount(others))
        assert len(set(rows)) == len(rows) == smaller.sum()
    np.testing.assert_array_equal(pairs.x_labels[model.x_pairs_], pairs.z_labels[model.z_pairs_])


def test_it_finds_the_rows_that_belong_together_within_their_class() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    latent = 3.0 * rng.standard_normal((3, 2))[labels] + rng.standard_normal((60, 2))
    X, Z = (latent @ np.linalg.qr(rng.standard_normal((4, 4)))[0][:2] for _ in range(2))
    order = rng.permutation(60)
    model = WMCA(2, metric="inner").fit(X, Z[order], Labels(labels, labels[order]))
    assert np.mean(order[model.z_pairs_] == model.x_pairs_) > 0.9  # chance is a twentieth
    known = PLS(2, metric="inner").fit(X, Z, PairedRows(60))
    assert model.objectives_[-1] == pytest.approx(known.covariances_.sum(), rel=0.02)


def test_groups_of_one_are_pairs(pairs: SyntheticPairs) -> None:
    X, Z = pairs.X[:50], pairs.Z
    expected = PLS(3, metric="inner").fit(X, Z, PairedRows(50)).similarity(X, Z)
    model = WMCA(3, metric="inner").fit(X, Z, Labels(np.arange(50)))
    np.testing.assert_allclose(model.similarity(X, Z), expected, atol=1e-9)


def test_samples_of_one_set_of_labels_are_a_group_and_those_without_belong_to_none(
    pairs: SyntheticPairs,
) -> None:
    x, z = (np.eye(4, dtype=bool)[side] for side in (pairs.x_labels, pairs.z_labels))
    x[:5, :] = False
    z[:7, :] = True
    x[5:8, :] = True
    model = WMCA(3).fit(pairs.X, pairs.Z, MultiLabels(x, z))
    assert model.x_pairs_.min() == 5
    assert set(model.x_pairs_[np.isin(model.z_pairs_, np.arange(7))]) == {5, 6, 7}
