"""RCA and DCA against their formulas, and what all metrics of the common space have in common."""

from typing import Any

import numpy as np
import pytest

from solver import CCA, DCA, GMLDA, GMMFA, ITML, LMNN, RCA, Labels, MultiLabels, MvDA, mean_average_precision
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
