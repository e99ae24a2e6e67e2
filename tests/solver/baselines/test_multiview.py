from typing import Any

import numpy as np
import pytest
import scipy.linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from solver import CCA, GMLDA, GMMFA, Labels, MultiLabels, MvDA, mean_average_precision
from solver.baselines._common import LinearBaseline
from solver.datasets import SyntheticPairs

METHODS = [GMLDA, GMMFA]


def _labels(pairs: SyntheticPairs) -> Labels:
    return Labels(pairs.x_labels, pairs.z_labels)


def _scatters(samples: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Scatter between and within classes, and class means times the root of their sizes."""
    centred = samples - samples.mean(axis=0)
    groups = [centred[labels == label] for label in np.unique(labels)]
    anchors = np.array([np.sqrt(len(group)) * group.mean(axis=0) for group in groups])
    within = sum((group - group.mean(axis=0)).T @ (group - group.mean(axis=0)) for group in groups)
    return anchors.T @ anchors, within, anchors


def _graph_scatter(samples: Any, is_edge: Any) -> Any:
    differences = samples[:, None, :] - samples[None, :, :]
    return np.einsum("ij,ijk,ijl->kl", is_edge / 2.0, differences, differences)


def _marginal_scatters(samples: Any, labels: Any, n_intrinsic: int, n_penalty: int) -> tuple[Any, Any, Any]:
    distances = np.linalg.norm(samples[:, None] - samples[None], axis=2)
    same = labels[:, None] == labels[None]
    edges = []
    for allowed, count in ((same & ~np.eye(len(labels), dtype=bool), n_intrinsic), (~same, n_penalty)):
        near = np.zeros(same.shape, bool)
        for i in range(len(labels)):
            candidates = np.flatnonzero(allowed[i])
            near[i, candidates[np.argsort(distances[i, candidates])[:count]]] = True
        edges.append(near | near.T)
    return _graph_scatter(samples, edges[1]), _graph_scatter(samples, edges[0]), _scatters(samples, labels)[2]


def _solution(x: Any, z: Any, coupling: float, mu: float, gamma: float, reg: float, count: int) -> Any:
    """The whole eigenproblem written down; the ridge is a share of the mean eigenvalue."""
    (A_x, B_x, a_x), (A_z, B_z, a_z) = x, z
    mu *= np.trace(A_x) / np.trace(A_z)
    gamma *= np.trace(B_x) / np.trace(B_z)
    shares = np.trace(A_x) / (np.linalg.norm(a_x) * np.linalg.norm(a_z))
    cross = coupling * shares * a_x.T @ a_z
    A = np.block([[A_x, cross], [cross.T, mu * A_z]])
    B_x, B_z = (B + reg * np.trace(B) / len(B) * np.eye(len(B)) for B in (B_x, B_z))
    values, vectors = scipy.linalg.eigh(A, scipy.linalg.block_diag(B_x, gamma * B_z))
    return values[::-1][:count], vectors[: len(B_x), ::-1][:, :count], vectors[len(B_x) :, ::-1][:, :count]


def _assert_solves(model: LinearBaseline, expected: Any, scale: float) -> None:
    values, left, right = expected
    np.testing.assert_allclose(model.eigenvalues_, values * scale, rtol=1e-8)
    # Each direction has a free sign, the same in both modalities, and all have one free length.
    length = np.linalg.norm(model.x_factors_) / np.linalg.norm(left)
    for ours, theirs in ((model.x_factors_, left), (model.z_factors_, right)):
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs) * length, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        model.x_factors_ @ model.z_factors_.T, left @ right.T * length**2, rtol=1e-6, atol=1e-9
    )


def test_gmlda_solves_the_stated_eigenproblem(pairs: SyntheticPairs) -> None:
    x, z = _scatters(pairs.X, pairs.x_labels), _scatters(pairs.Z, pairs.z_labels)
    model = GMLDA(3, coupling=2.0, mu=0.5, gamma=3.0, reg=0.2).fit(pairs.X, pairs.Z, _labels(pairs))
    scale = np.trace(x[1]) / np.trace(x[0])
    _assert_solves(model, _solution(x, z, 2.0, 0.5, 3.0, 0.2, 3), scale)


def test_gmmfa_solves_the_stated_eigenproblem(pairs: SyntheticPairs) -> None:
    x = _marginal_scatters(pairs.X, pairs.x_labels, 4, 7)
    z = _marginal_scatters(pairs.Z, pairs.z_labels, 4, 7)
    model = GMMFA(3, coupling=2.0, mu=0.5, gamma=3.0, reg=0.2, n_intrinsic=4, n_penalty=7)
    model.fit(pairs.X, pairs.Z, _labels(pairs))
    scale = np.trace(x[1]) / np.trace(x[0])
    _assert_solves(model, _solution(x, z, 2.0, 0.5, 3.0, 0.2, 3), scale)


def test_equal_views_give_linear_discriminant_analysis(pairs: SyntheticPairs) -> None:
    X, labels = pairs.X, pairs.x_labels
    model = GMLDA(3, reg=0.0, metric="inner").fit(X, X, Labels(labels))
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, labels)
    assert scipy.linalg.subspace_angles(model.x_factors_, lda.scalings_[:, :3]).max() < 1e-6
    np.testing.assert_allclose(model.project_x(X), model.project_z(X), atol=1e-9)


def test_without_coupling_each_direction_is_of_one_modality(pairs: SyntheticPairs) -> None:
    model = GMLDA(6, coupling=0.0).fit(pairs.X, pairs.Z, _labels(pairs))
    lengths = np.array([np.linalg.norm(each, axis=0) for each in (model.x_factors_, model.z_factors_)])
    np.testing.assert_allclose(lengths.min(axis=0), 0.0, atol=1e-9)
    assert lengths.max(axis=0).min() > 1e-3


@pytest.mark.parametrize("Method", [*METHODS, MvDA, CCA])
@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_units_do_not_matter(Method: type[Any], reg: float, pairs: SyntheticPairs) -> None:
    before = Method(3, reg=reg).fit(pairs.X, pairs.Z, _labels(pairs)).similarity(pairs.X, pairs.Z)
    X, Z = 1e-5 * pairs.X + 1.0, 1e3 * pairs.Z
    after = Method(3, reg=reg).fit(X, Z, _labels(pairs)).similarity(X, Z)
    np.testing.assert_allclose(after, before, atol=1e-6)


@pytest.mark.parametrize("Method", [*METHODS, MvDA])
@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_features_that_repeat_are_no_obstacle(Method: type[Any], reg: float, pairs: SyntheticPairs) -> None:
    wide = np.hstack([pairs.X, 1.0 - pairs.X.sum(axis=1, keepdims=True), np.ones((60, 1))])
    similarity = Method(3, reg=reg).fit(wide, pairs.Z, _labels(pairs)).similarity(wide, pairs.Z)
    assert np.isfinite(similarity).all()
    similar = pairs.x_labels[:, None] == pairs.z_labels
    assert similarity[similar].mean() > similarity[~similar].mean() + 0.5


@pytest.mark.parametrize("Method", [*METHODS, MvDA])
def test_more_features_than_samples_are_no_obstacle(Method: type[Any]) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 3
    X, Z = (rng.standard_normal((3, 50))[labels] + 0.3 * rng.standard_normal((30, 50)) for _ in range(2))
    similarity = Method().fit(X[:15], Z[:15], Labels(labels[:15])).similarity(X[15:], Z[15:])
    similar = labels[15:, None] == labels[15:]
    assert similarity[similar].min() > similarity[~similar].max()


@pytest.mark.parametrize("Method", METHODS)
def test_there_is_one_direction_less_than_classes_unless_asked(
    Method: type[Any], pairs: SyntheticPairs
) -> None:
    assert Method().fit(pairs.X, pairs.Z, _labels(pairs)).x_factors_.shape == (8, 3)
    assert Method(50).fit(pairs.X, pairs.Z, _labels(pairs)).z_factors_.shape == (6, 14)


@pytest.mark.parametrize("Method", [*METHODS, MvDA])
def test_power_weights_directions_by_their_eigenvalue(Method: type[Any], pairs: SyntheticPairs) -> None:
    plain = Method(14).fit(pairs.X, pairs.Z, _labels(pairs))
    weighted = Method(14, eigenvalue_power=0.5).fit(pairs.X, pairs.Z, _labels(pairs))
    weights = np.sqrt(np.maximum(plain.eigenvalues_, 0.0))
    assert (plain.eigenvalues_.min() < 0) == (Method is not MvDA)  # the last contradict each other, and go
    np.testing.assert_allclose(weighted.x_factors_, plain.x_factors_ * weights, rtol=1e-12)
    np.testing.assert_allclose(weighted.z_factors_, plain.z_factors_ * weights, rtol=1e-12)


@pytest.mark.parametrize("Method", METHODS)
def test_sample_of_two_labels_counts_in_both_and_one_of_none_in_neither(
    Method: type[Any], pairs: SyntheticPairs
) -> None:
    indicators = [np.eye(4, dtype=bool)[each] for each in (pairs.x_labels, pairs.z_labels)]
    indicators[0][:20, 1] = True
    indicators[1][0] = False
    model = Method(reg=0.5).fit(pairs.X, pairs.Z, MultiLabels(*indicators))
    similar = indicators[0].astype(int) @ indicators[1].T.astype(int) > 0
    similarity = model.similarity(pairs.X, pairs.Z)
    assert similarity[similar].mean() > similarity[~similar].mean() + 0.3


def _prepared(samples: Any) -> Any:
    centred = samples - samples.mean(axis=0)
    return centred / np.sqrt((centred**2).mean())


def _blocks(views: Any, labels: Any) -> tuple[Any, Any]:
    """D and S of the paper, block by block from the class means of each view."""
    classes = np.unique(np.concatenate(labels))
    counts = np.array([[np.sum(side == label) for label in classes] for side in labels])
    means = [
        np.array([view[side == label].mean(axis=0) for label in classes])
        for view, side in zip(views, labels, strict=True)
    ]
    D: list[list[Any]] = [[0.0, 0.0], [0.0, 0.0]]
    S: list[list[Any]] = [[0.0, 0.0], [0.0, 0.0]]
    for j in range(2):
        for r in range(2):
            for i in range(len(classes)):
                share = counts[j, i] * counts[r, i] / counts[:, i].sum()
                outer = share * np.outer(means[j][i], means[r][i])
                D[j][r] = D[j][r] + outer
                S[j][r] = S[j][r] - outer
            sums = [counts[k] @ means[k] for k in (j, r)]
            D[j][r] = D[j][r] - np.outer(*sums) / counts.sum()
        S[j][j] = S[j][j] + views[j].T @ views[j]
    return np.block(D), np.block(S)


def test_directions_solve_the_eigenproblem_of_the_paper(pairs: SyntheticPairs) -> None:
    views = _prepared(pairs.X), _prepared(pairs.Z)
    D, S = _blocks(views, (pairs.x_labels, pairs.z_labels))
    S += 0.2 * np.trace(S) / len(S) * np.eye(len(S))
    values, vectors = scipy.linalg.eigh(D, S)
    leading = vectors[:, ::-1][:, :3]
    model = MvDA(reg=0.2, metric="inner").fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(model.eigenvalues_, values[::-1][:3], rtol=1e-9)
    expected = views[0] @ leading[:8] @ (views[1] @ leading[8:]).T
    np.testing.assert_allclose(model.similarity(pairs.X, pairs.Z), expected, atol=1e-9)


def test_it_is_linear_discriminant_analysis_of_stacked_samples(pairs: SyntheticPairs) -> None:
    views = _prepared(pairs.X), _prepared(pairs.Z)
    lda = LinearDiscriminantAnalysis(solver="eigen")
    lda.fit(scipy.linalg.block_diag(*views), np.concatenate([pairs.x_labels, pairs.z_labels]))
    model = MvDA(reg=0.0, metric="inner").fit(pairs.X, pairs.Z, _labels(pairs))
    scales = [np.sqrt(((side - side.mean(axis=0)) ** 2).mean()) for side in (pairs.X, pairs.Z)]
    stacked = np.vstack([model.x_factors_ * scales[0], model.z_factors_ * scales[1]])
    assert scipy.linalg.subspace_angles(stacked, lda.scalings_[:, :3]).max() < 1e-6


def test_it_learns_what_classes_share_and_not_what_rows_share() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    shared = 5.0 * rng.standard_normal((120, 2))  # by each pair of rows, whatever their class
    X, Z = (
        np.hstack([np.eye(3)[labels] + 0.2 * rng.standard_normal((120, 3)), shared @ rng.random((2, 2))])
        for _ in range(2)
    )
    quality = {}
    for model in (MvDA(reg=0.0), CCA(2, reg=0.0, pairs="rows")):
        model.fit(X[:60], Z[:60], Labels(labels[:60]))
        projected = model.project_x(X[60:]), model.project_z(Z[60:])
        quality[type(model)] = mean_average_precision(*projected, labels[60:], labels[60:])
    assert quality[MvDA] > 0.95
    assert quality[CCA] < 0.6  # chance is a third
