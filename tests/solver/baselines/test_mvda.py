from typing import Any

import numpy as np
import scipy.linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from solver import CCA, Labels, MvDA, mean_average_precision
from solver.datasets import SyntheticPairs


def _labels(pairs: SyntheticPairs) -> Labels:
    return Labels(pairs.x_labels, pairs.z_labels)


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


def test_power_weights_directions_by_their_eigenvalue(pairs: SyntheticPairs) -> None:
    plain = MvDA().fit(pairs.X, pairs.Z, _labels(pairs))
    weighted = MvDA(2, eigenvalue_power=0.5).fit(pairs.X, pairs.Z, _labels(pairs))
    assert plain.x_factors_.shape == (8, 3)  # one less than classes
    np.testing.assert_allclose(
        weighted.x_factors_, plain.x_factors_[:, :2] * np.sqrt(plain.eigenvalues_[:2]), rtol=1e-12
    )
