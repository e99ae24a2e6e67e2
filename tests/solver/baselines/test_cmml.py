from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import approx_fprime, minimize

from solver import CMML, Labels, PairedRows, SignedPairs, mean_average_precision
from solver.datasets import SyntheticPairs


def _labels(pairs: SyntheticPairs) -> Labels:
    return Labels(pairs.x_labels, pairs.z_labels)


def _objective(flat: Any, pairs: SyntheticPairs, beta: float) -> float:
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
    assert model.objective_ == pytest.approx(_objective(_maps(model).ravel(), pairs, 2.0), rel=1e-9)


def test_many_steps_end_where_the_derivative_of_the_formula_vanishes(pairs: SyntheticPairs) -> None:
    norms = []
    for max_iter in (1, 2000):
        model = CMML(2, n_pairs=60, max_iter=max_iter).fit(pairs.X, pairs.Z, _labels(pairs))
        slope = approx_fprime(_maps(model).ravel(), lambda flat: _objective(flat, pairs, 3.0), 1e-7)
        norms.append(np.linalg.norm(slope))
    assert model.n_iter_ < 2000
    assert norms[1] < 0.02 * norms[0]


def test_it_ranks_as_plain_minimisation_of_the_formula_does(pairs: SyntheticPairs) -> None:
    model = CMML(2, n_pairs=60, max_iter=25).fit(pairs.X, pairs.Z, _labels(pairs))
    start = _maps(CMML(2, n_pairs=60, max_iter=1).fit(pairs.X, pairs.Z, _labels(pairs)))
    plain = minimize(_objective, start.ravel(), (pairs, 3.0), method="L-BFGS-B", options={"maxiter": 25})
    maps = plain.x.reshape(14, -1)
    a = (pairs.X - pairs.X.mean(axis=0)) @ maps[:8]
    b = (pairs.Z - pairs.Z.mean(axis=0)) @ maps[8:]
    quality = mean_average_precision(
        model.project_x(pairs.X), model.project_z(pairs.Z), pairs.x_labels, pairs.z_labels
    )
    rivals = np.hstack([2 * a, np.ones((60, 1))]), np.hstack([b, -np.sum(b**2, axis=1)[:, None]])
    expected = mean_average_precision(*rivals, pairs.x_labels, pairs.z_labels)
    assert quality == pytest.approx(expected, abs=0.01)


def test_labels_and_the_list_of_all_their_pairs_are_the_same(pairs: SyntheticPairs) -> None:
    signs = np.where(pairs.x_labels[:, None] == pairs.z_labels, 1, -1)
    by_list = CMML(3).fit(pairs.X, pairs.Z, SignedPairs(scipy.sparse.csr_array(signs)))
    by_labels = CMML(3, n_pairs=60).fit(pairs.X, pairs.Z, _labels(pairs))
    np.testing.assert_allclose(
        by_list.similarity(pairs.X, pairs.Z), by_labels.similarity(pairs.X, pairs.Z), atol=1e-6
    )


def test_dissimilar_pairs_have_a_part(pairs: SyntheticPairs) -> None:
    signs = np.where(pairs.x_labels[:, None] == pairs.z_labels, 1, -1)
    fewer = signs * ((signs > 0) | (pairs.x_labels[:, None] == 0))  # only of the first class
    models = [
        CMML(3).fit(pairs.X, pairs.Z, SignedPairs(scipy.sparse.csr_array(table))) for table in (signs, fewer)
    ]
    apart = [-model.similarity(pairs.X, pairs.Z)[signs < 0].max() for model in models]  # the nearest
    assert apart[0] > apart[1]


def test_pairs_of_rows_find_their_partner() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((80, 3))
    X, Z = (latent @ rng.standard_normal((3, 5)) + 0.1 * rng.standard_normal((80, 5)) for _ in range(2))
    model = CMML(3).fit(X[:50], Z[:50], PairedRows(50))
    rows = np.arange(30)
    quality = mean_average_precision(model.project_x(X[50:]), model.project_z(Z[50:]), rows, rows)
    assert quality > 0.9  # chance is .13
