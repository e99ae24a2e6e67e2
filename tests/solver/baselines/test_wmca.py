import itertools
from typing import Any

import numpy as np
import pytest

from solver import PLS, WMCA, Labels, MultiLabels, PairedRows
from solver.datasets import SyntheticPairs


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
