from typing import Any

import numpy as np
import pytest

from solver import CCA, ITML, Labels
from solver.baselines.metric_learning import CommonSpace
from solver.datasets import SyntheticPairs


def _project_plainly(
    differences: Any, signs: Any, bounds: Any, gamma: float, n_passes: int
) -> tuple[Any, Any]:
    """Algorithm 1 of the paper in terms of the inverse: each step takes a multiple of v v^T from it."""
    inverse = np.eye(differences.shape[1])
    multipliers, targets = np.zeros(len(signs)), bounds.copy()
    for _ in range(n_passes):
        for c, (v, sign) in enumerate(zip(differences, signs, strict=True)):
            distance = v @ np.linalg.solve(inverse, v)
            step = min(multipliers[c], sign / 2 * (1 / distance - gamma / targets[c]))
            targets[c] = gamma * targets[c] / (gamma + sign * step * targets[c])
            multipliers[c] -= step
            inverse -= sign * step * np.outer(v, v)
    return np.linalg.inv(inverse), multipliers


def _drawn(n: int = 40) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    differences = rng.standard_normal((n, 3)) * np.where(signs[:, None] > 0, [1.0, 1.0, 3.0], [3.0, 1.0, 3.0])
    return differences, signs, np.where(signs > 0, 0.5, 6.0)


@pytest.mark.parametrize("gamma", [0.3, 3.0])
def test_matrix_is_that_of_the_algorithm_of_the_paper(gamma: float) -> None:
    differences, signs, bounds = _drawn()
    matrix, n_iter = ITML(gamma=gamma, max_iter=7, tol=1e-12)._meet_bounds(differences, signs, bounds)
    expected, _ = _project_plainly(differences, signs, bounds, gamma, 7)
    assert n_iter == 7
    np.testing.assert_allclose(matrix, expected, rtol=1e-8, atol=1e-10)


def test_multipliers_give_the_inverse_and_settle() -> None:
    differences, signs, bounds = _drawn()
    matrix, n_iter = ITML(max_iter=1000, tol=1e-10)._meet_bounds(differences, signs, bounds)
    assert n_iter < 1000
    expected, multipliers = _project_plainly(differences, signs, bounds, 1.0, n_iter)
    np.testing.assert_allclose(matrix, expected, rtol=1e-6)
    assert (multipliers >= 0).all()
    inverse = np.eye(3) + (differences.T * (signs * multipliers)) @ differences
    np.testing.assert_allclose(np.linalg.inv(matrix), inverse, rtol=1e-6, atol=1e-8)


def test_it_ranks_as_the_algorithm_does(pairs: SyntheticPairs) -> None:
    labels = Labels(pairs.x_labels, pairs.z_labels)
    model = ITML(4, n_constraints=100, max_iter=10).fit(pairs.X, pairs.Z, labels)
    cca = CCA(4, reg=0.1, metric="inner").fit(pairs.X, pairs.Z, labels)
    x, z = cca.project_x(pairs.X), cca.project_z(pairs.Z)
    indicators = (np.eye(4)[side] for side in (pairs.x_labels, pairs.z_labels))
    differences, signs = model._draw(CommonSpace(x, z, *indicators))
    upper, lower = np.percentile(np.sum(differences**2, axis=1), (5, 95))
    bounds = np.where(signs > 0, upper, lower)
    matrix, _ = _project_plainly(differences, signs, bounds, 1.0, model.n_iter_)
    expected = np.einsum("ijk,kl,ijl->ij", x[:, None] - z, matrix, x[:, None] - z)
    np.testing.assert_allclose(-model.similarity(pairs.X, pairs.Z), expected, rtol=1e-6, atol=1e-8)


def test_drawn_pairs_are_of_one_class_or_of_two() -> None:
    labels = np.arange(12) % 3
    positions = np.arange(12.0)[:, None]
    differences, signs = ITML(n_constraints=30)._draw(
        CommonSpace(positions, 100.0 * positions, np.eye(3)[labels], np.eye(3)[labels])
    )
    own = np.rint(differences[:, 0] % 100).astype(int)
    partners = np.rint((own - differences[:, 0]) / 100).astype(int)
    np.testing.assert_array_equal(labels[own] == labels[partners], signs > 0)
    assert (len(signs), signs.sum()) == (60, 0)


def test_similar_pairs_come_nearer_compared_with_dissimilar_ones(pairs: SyntheticPairs) -> None:
    labels = Labels(pairs.x_labels, pairs.z_labels)
    similar = pairs.x_labels[:, None] == pairs.z_labels
    ratios = []
    for gamma in (1e-9, 10.0):  # slack that costs nothing leaves the distances of CCA
        distances = (
            -ITML(5, gamma=gamma, n_constraints=100)
            .fit(pairs.X, pairs.Z, labels)
            .similarity(pairs.X, pairs.Z)
        )
        ratios.append(distances[similar].mean() / distances[~similar].mean())
    assert ratios[1] < 0.9 * ratios[0]
