import numpy as np
import pytest
import scipy.sparse

from solver import PLS, Labels, MsAlg, PairedRows, SignedPairs
from solver.datasets import SyntheticPairs


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
