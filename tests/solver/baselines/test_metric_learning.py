"""RCA and DCA against their formulas, and what all metrics of the common space have in common."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import approx_fprime, minimize

from solver import (
    CCA,
    CMML,
    DCA,
    GMLDA,
    GMMFA,
    ITML,
    LMNN,
    RCA,
    Labels,
    MultiLabels,
    MvDA,
    PairedRows,
    SignedPairs,
    mean_average_precision,
)
from solver.baselines.metric_learning import CommonSpace, _nearest, _objective
from solver.datasets import SyntheticPairs
from tests.solver.every_estimator import cheap

METHODS = [RCA, DCA, ITML, LMNN]


def _labels(pairs: SyntheticPairs) -> Labels:
    return Labels(pairs.x_labels, pairs.z_labels)


def _space(pairs: SyntheticPairs, count: int) -> tuple[Any, Any]:
    """All samples in the common space of CCA, and their classes."""
    cca = CCA(count, reg=0.1, metric="inner").fit(pairs.X, pairs.Z, _labels(pairs))
    samples = np.vstack([cca.project_x(pairs.X), cca.project_z(pairs.Z)])
    return samples, np.concatenate([pairs.x_labels, pairs.z_labels])


def _distances(samples: Any, matrix: Any) -> Any:
    differences = samples[:60, None] - samples[None, 60:]
    return np.einsum("ijk,kl,ijl->ij", differences, matrix, differences)


def test_rca_is_the_distance_of_the_inverse_covariance_within_chunklets(pairs: SyntheticPairs) -> None:
    samples, labels = _space(pairs, 5)
    centred = np.vstack([samples[i] - samples[labels == labels[i]].mean(axis=0) for i in range(110)])
    expected = _distances(samples, np.linalg.inv(centred.T @ centred / 110))
    model = RCA(5).fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(-model.similarity(pairs.X, pairs.Z), expected, atol=1e-9)


def test_dca_is_the_algorithm_of_the_paper(pairs: SyntheticPairs) -> None:
    samples, labels = _space(pairs, 5)
    groups = [samples[labels == label] for label in range(4)]
    means = [group.mean(axis=0) for group in groups]
    between = sum(np.outer(a - b, a - b) for a in means for b in means) / 12
    within = sum(np.cov(group.T, bias=True) for group in groups) / 4
    values, vectors = np.linalg.eigh(between)
    Z = vectors[:, -3:] / np.sqrt(values[-3:])
    values, vectors = np.linalg.eigh(Z.T @ within @ Z)
    A = Z @ vectors / np.sqrt(values)
    model = DCA(5).fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(
        -model.similarity(pairs.X, pairs.Z), _distances(samples, A @ A.T), rtol=1e-7, atol=1e-7
    )


def test_shrinkage_is_a_share_of_the_mean_eigenvalue(pairs: SyntheticPairs) -> None:
    samples, labels = _space(pairs, 5)
    centred = np.vstack([samples[i] - samples[labels == labels[i]].mean(axis=0) for i in range(110)])
    covariance = centred.T @ centred / 110
    ridge = 0.5 * np.trace(covariance) / 5 * np.eye(5)
    model = RCA(5, shrinkage=0.5).fit(pairs.X, pairs.Z, _labels(pairs))
    expected = _distances(samples, np.linalg.inv(covariance + ridge))
    np.testing.assert_allclose(-model.similarity(pairs.X, pairs.Z), expected, atol=1e-9)


@pytest.mark.parametrize("Method", METHODS)
def test_inner_products_rank_as_distances_do(Method: type[Any], pairs: SyntheticPairs) -> None:
    model = cheap(Method, n_components=3).fit(pairs.X, pairs.Z, _labels(pairs))
    plain = cheap(Method, n_components=3, metric="inner").fit(pairs.X, pairs.Z, _labels(pairs))
    x, z = plain.project_x(pairs.X), plain.project_z(pairs.Z)
    expected = np.linalg.norm(x[:, None] - z[None], axis=2) ** 2
    np.testing.assert_allclose(-model.similarity(pairs.X, pairs.Z), expected, atol=1e-9)


@pytest.mark.parametrize("Method", METHODS)
def test_a_metric_takes_out_what_classes_do_not_share(Method: type[Any]) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 3
    shared = 4.0 * rng.standard_normal((120, 2))  # by each pair of rows, whatever their class
    X, Z = (np.hstack([np.eye(3)[labels] + 0.2 * rng.standard_normal((120, 3)), shared]) for _ in range(2))
    quality = {}
    for model in (cheap(Method, reg=0.0, pairs="rows"), CCA(reg=0.0, pairs="rows")):
        model.fit(X[:60], Z[:60], Labels(labels[:60]))
        projected = model.project_x(X[60:]), model.project_z(Z[60:])
        quality[type(model)] = mean_average_precision(*projected, labels[60:], labels[60:])
    assert quality[Method] > quality[CCA] + 0.15


@pytest.mark.parametrize("Method", [*METHODS, MvDA, GMLDA, GMMFA])
def test_multi_labels_of_one_label_each_are_labels(Method: type[Any], pairs: SyntheticPairs) -> None:
    indicators = [np.eye(5, dtype=bool)[side] for side in (pairs.x_labels, pairs.z_labels)]  # one without
    by_indicators = cheap(Method, n_components=3).fit(pairs.X, pairs.Z, MultiLabels(*indicators))
    by_labels = cheap(Method, n_components=3).fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(
        by_indicators.similarity(pairs.X, pairs.Z), by_labels.similarity(pairs.X, pairs.Z), atol=1e-8
    )


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


def _lmnn_space(pairs: SyntheticPairs, count: int) -> CommonSpace:
    labels = Labels(pairs.x_labels, pairs.z_labels)
    cca = CCA(count, reg=0.1, metric="inner").fit(pairs.X, pairs.Z, labels)
    indicators = (np.eye(4)[side] for side in (pairs.x_labels, pairs.z_labels))
    return CommonSpace(cca.project_x(pairs.X), cca.project_z(pairs.Z), *indicators)


def _squares(a: Any, b: Any) -> Any:
    return np.sum((a[:, None] - b[None]) ** 2, axis=2)


def _objective_plainly(L: Any, space: CommonSpace, n_targets: int, push: float) -> float:
    """The formula of the paper over all impostors, divided by the number of targets."""
    total, count = 0.0, 0
    sides = (space.x, space.x_indicators), (space.z, space.z_indicators)
    for (own, own_classes), (other, other_classes) in (sides, sides[::-1]):
        mapped, same = _squares(own @ L, other @ L), own_classes @ other_classes.T > 0
        targets = np.argsort(np.where(same, _squares(own, other), np.inf), axis=1)[:, :n_targets]
        pull = np.take_along_axis(mapped, targets, axis=1)
        hinges = np.maximum(1.0 + pull[:, :, None] - mapped[:, None, :], 0.0) * ~same[:, None, :]
        total, count = total + pull.sum() + push * hinges.sum(), count + pull.size
    return total / count


def test_objective_is_the_formula_of_the_paper_and_its_derivative_fits(pairs: SyntheticPairs) -> None:
    space = _lmnn_space(pairs, 3)
    L = 0.5 * np.random.default_rng(0).standard_normal((3, 3))
    targets = _nearest(space, 3, is_same_class=True)
    impostors = _nearest(space, 60, is_same_class=False)
    value, gradient = _objective(L.ravel(), space, targets, impostors, 0.7)
    assert value == pytest.approx(_objective_plainly(L, space, 3, 0.7), rel=1e-12)
    numeric = approx_fprime(L.ravel(), lambda flat: _objective(flat, space, targets, impostors, 0.7)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3 * np.abs(numeric).max())


def test_impostors_are_the_nearest_of_other_classes(pairs: SyntheticPairs) -> None:
    space = _lmnn_space(pairs, 3)
    near, _ = _nearest(space, 4, is_same_class=False)
    distances = np.where(pairs.x_labels[:, None] == pairs.z_labels, np.inf, _squares(space.x, space.z))
    expected = np.sort(distances, axis=1)[:, :4]
    np.testing.assert_allclose(np.sort(near.distances(space), axis=1), expected)


def test_it_reaches_what_plain_minimisation_reaches(pairs: SyntheticPairs) -> None:
    labels = Labels(pairs.x_labels, pairs.z_labels)
    space = _lmnn_space(pairs, 2)
    model = LMNN(2, n_impostors=60, n_rounds=1, max_iter=100).fit(pairs.X, pairs.Z, labels)
    plain = minimize(lambda flat: _objective_plainly(flat.reshape(2, 2), space, 3, 1.0), np.eye(2).ravel())
    assert model.objectives_[-1] == pytest.approx(plain.fun, rel=0.02)
    L = plain.x.reshape(2, 2)
    quality = mean_average_precision(
        model.project_x(pairs.X), model.project_z(pairs.Z), pairs.x_labels, pairs.z_labels
    )
    z = space.z @ L
    rivals = np.hstack([2 * space.x @ L, np.ones((60, 1))]), np.hstack([z, -np.sum(z**2, axis=1)[:, None]])
    assert quality == pytest.approx(mean_average_precision(*rivals, pairs.x_labels, pairs.z_labels), abs=0.01)


def test_each_class_may_be_smaller_than_the_number_of_targets(pairs: SyntheticPairs) -> None:
    x_labels, z_labels = pairs.x_labels.copy(), pairs.z_labels.copy()
    x_labels[0], z_labels[0], z_labels[1] = 7, 7, 8  # one partner; none
    model = LMNN(3, max_iter=5).fit(pairs.X, pairs.Z, Labels(x_labels, z_labels))
    assert np.isfinite(model.similarity(pairs.X, pairs.Z)).all()
    assert len(model.objectives_) == 3


def _cmml_objective(flat: Any, pairs: SyntheticPairs, beta: float) -> float:
    """The formula over all pairs; the maps are of centred features, one above the other."""
    X, Z = pairs.X - pairs.X.mean(axis=0), pairs.Z - pairs.Z.mean(axis=0)
    maps = flat.reshape(14, -1)
    distances = np.sum(((X @ maps[:8])[:, None] - (Z @ maps[8:])[None]) ** 2, axis=2)
    similar = pairs.x_labels[:, None] == pairs.z_labels
    losses = np.logaddexp(0.0, beta * np.where(similar, 1, -1) * (distances - 1)) / beta
    return float(losses[similar].mean() + losses[~similar].mean())


def _maps(model: CMML) -> Any:
    return np.vstack([model.x_factors_, model.z_factors_])


def test_objective_is_the_formula_of_the_paper(pairs: SyntheticPairs) -> None:
    model = CMML(2, beta=2.0, n_pairs=60).fit(pairs.X, pairs.Z, _labels(pairs))
    assert model.objective_ == pytest.approx(_cmml_objective(_maps(model).ravel(), pairs, 2.0), rel=1e-9)


def test_many_steps_end_where_the_derivative_of_the_formula_vanishes(pairs: SyntheticPairs) -> None:
    norms = []
    for max_iter in (1, 2000):
        model = CMML(2, n_pairs=60, max_iter=max_iter).fit(pairs.X, pairs.Z, _labels(pairs))
        slope = approx_fprime(_maps(model).ravel(), lambda flat: _cmml_objective(flat, pairs, 3.0), 1e-7)
        norms.append(np.linalg.norm(slope))
    assert model.n_iter_ < 2000
    assert norms[1] < 0.02 * norms[0]


def test_labels_and_the_list_of_all_their_pairs_are_the_same(pairs: SyntheticPairs) -> None:
    signs = np.where(pairs.x_labels[:, None] == pairs.z_labels, 1, -1)
    by_list = CMML(3).fit(pairs.X, pairs.Z, SignedPairs(scipy.sparse.csr_array(signs)))
    by_labels = CMML(3, n_pairs=60).fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(
        by_list.similarity(pairs.X, pairs.Z), by_labels.similarity(pairs.X, pairs.Z), atol=1e-6
    )


def test_pairs_of_rows_find_their_partner() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((80, 3))
    X, Z = (latent @ rng.standard_normal((3, 5)) + 0.1 * rng.standard_normal((80, 5)) for _ in range(2))
    model = CMML(3).fit(X[:50], Z[:50], PairedRows(50))
    rows = np.arange(30)
    quality = mean_average_precision(model.project_x(X[50:]), model.project_z(Z[50:]), rows, rows)
    assert quality > 0.9  # chance is .13
