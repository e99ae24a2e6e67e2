from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from solver import CCA, LMNN, Labels, mean_average_precision
from solver.baselines.metric_learning import CommonSpace, _nearest, _objective
from solver.datasets import SyntheticPairs


def _space(pairs: SyntheticPairs, count: int) -> CommonSpace:
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
    space = _space(pairs, 3)
    L = 0.5 * np.random.default_rng(0).standard_normal((3, 3))
    targets = _nearest(space, 3, is_same_class=True)
    impostors = _nearest(space, 60, is_same_class=False)
    value, gradient = _objective(L.ravel(), space, targets, impostors, 0.7)
    assert value == pytest.approx(_objective_plainly(L, space, 3, 0.7), rel=1e-12)
    numeric = approx_fprime(L.ravel(), lambda flat: _objective(flat, space, targets, impostors, 0.7)[0], 1e-7)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-3, atol=1e-3 * np.abs(numeric).max())


def test_impostors_are_the_nearest_of_other_classes(pairs: SyntheticPairs) -> None:
    space = _space(pairs, 3)
    near, _ = _nearest(space, 4, is_same_class=False)
    distances = np.where(pairs.x_labels[:, None] == pairs.z_labels, np.inf, _squares(space.x, space.z))
    expected = np.sort(distances, axis=1)[:, :4]
    np.testing.assert_allclose(np.sort(near.distances(space), axis=1), expected)


def test_it_reaches_what_plain_minimisation_reaches(pairs: SyntheticPairs) -> None:
    labels = Labels(pairs.x_labels, pairs.z_labels)
    space = _space(pairs, 2)
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
