"""Methods of the comparison against plain programs: each ranks held-out samples as well, within one point.

The programs follow the formulas of the papers in loops over samples and classes, or hand the stated objective
to an optimiser that knows nothing but its values; they share no code with the package but `CCA`, the space in
which the four metrics are learned, and the draw of the pairs that one of them learns from.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import linear_sum_assignment, minimize

from solver import (
    CCA,
    CMML,
    DCA,
    ITML,
    LMNN,
    RCA,
    WMCA,
    Labels,
    MvDA,
    bidirectional_map,
    make_low_rank_pairs,
)
from solver.baselines.metric_learning import CommonSpace

N_FIT = 90
"""Samples of each modality that are learned from; the others are ranked."""
DIMENSIONS = 4
"""Of the common space of the metrics."""
Sides = tuple[Any, Any]
Classes = tuple[Any, Any]
Plain = Callable[[Sides, Classes, Sides], Any]
"""Takes the fitting samples, their classes, and the others; returns the similarities of these."""


def _planted() -> tuple[Sides, Classes]:
    data = make_low_rank_pairs(
        190, 170, n_features_x=8, n_features_z=6, n_classes=4, noise=1.0, random_state=1
    )
    return (data.X.astype(np.float64), data.Z.astype(np.float64)), (data.x_labels, data.z_labels)


def _digits(folder: Path) -> tuple[Sides, Classes]:
    """Spoken and written digits of the training split, in their leading principal components."""
    with np.load(folder / "audio_digits" / "audio_digits.npz", allow_pickle=False) as arrays:
        rows = np.random.default_rng(0).permutation(len(arrays["y_tr"]))[:240]
        labels = arrays["y_tr"][rows]
        sides = [arrays[name][rows].astype(np.float64) for name in ("A_tr", "I_tr")]
    for number, count in enumerate((8, 7)):
        centred = sides[number] - sides[number].mean(axis=0)
        sides[number] = centred @ np.linalg.svd(centred, full_matrices=False)[2][:count].T
        sides[number] /= np.sqrt(np.mean(sides[number] ** 2))
    return (sides[0], sides[1]), (labels, labels)


@pytest.fixture(params=["planted", pytest.param("digits", marks=pytest.mark.data)])
def data(request: pytest.FixtureRequest) -> tuple[Sides, Classes]:
    if request.param == "planted":
        return _planted()
    return _digits(request.getfixturevalue("test_data"))


def _negative_distances(x: Any, z: Any) -> Any:
    return np.array([[-np.sum((a - b) ** 2) for b in z] for a in x])


def _cosines(x: Any, z: Any) -> Any:
    return np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in z] for a in x])


def mvda(fitting: Sides, classes: Classes, others: Sides) -> Any:
    """Linear discriminant analysis of (x, 0) and (0, z), summed up sample by sample."""
    means = [side.mean(axis=0) for side in fitting]
    scales = [np.sqrt(np.mean((side - mean) ** 2)) for side, mean in zip(fitting, means, strict=True)]
    widths = [side.shape[1] for side in fitting]
    stacked = [np.concatenate([(row - means[0]) / scales[0], np.zeros(widths[1])]) for row in fitting[0]]
    stacked += [np.concatenate([np.zeros(widths[0]), (row - means[1]) / scales[1]]) for row in fitting[1]]
    labels = np.concatenate(classes)
    within, between = np.zeros((2, sum(widths), sum(widths)))
    centre = np.mean(stacked, axis=0)
    for label in np.unique(labels):
        members = [row for row, its_label in zip(stacked, labels, strict=True) if its_label == label]
        mean = np.mean(members, axis=0)
        between += len(members) * np.outer(mean - centre, mean - centre)
        for row in members:
            within += np.outer(row - mean, row - mean)
    within += 0.1 * np.trace(within) / len(within) * np.eye(len(within))
    directions = scipy.linalg.eigh(between, within)[1][:, ::-1][:, : len(np.unique(labels)) - 1]
    x, z = ((side - mean) / scale for side, mean, scale in zip(others, means, scales, strict=True))
    return _cosines(x @ directions[: widths[0]], z @ directions[widths[0] :])


def wmca(fitting: Sides, classes: Classes, others: Sides) -> Any:
    """The alternation of pairings and directions, until a pairing repeats."""
    means = [side.mean(axis=0) for side in fitting]
    X, Z = (side - mean for side, mean in zip(fitting, means, strict=True))
    common = np.intersect1d(*classes)
    cross = np.zeros((X.shape[1], Z.shape[1]))
    for label in common:
        rows, columns = np.flatnonzero(classes[0] == label), np.flatnonzero(classes[1] == label)
        for i in rows:
            for j in columns:
                cross += np.outer(X[i], Z[j]) / max(len(rows), len(columns))
    pairs: list[tuple[int, int]] = []
    while True:
        U, _, Vt = np.linalg.svd(cross)
        left, right = U[:, :DIMENSIONS], Vt[:DIMENSIONS].T
        before, pairs = pairs, []
        for label in common:
            rows, columns = np.flatnonzero(classes[0] == label), np.flatnonzero(classes[1] == label)
            gains = np.array([[(X[i] @ left) @ (Z[j] @ right) for j in columns] for i in rows])
            first, second = linear_sum_assignment(-gains)
            pairs += [(rows[i], columns[j]) for i, j in zip(first, second, strict=True)]
        if pairs == before:
            break
        cross = sum(np.outer(X[i], Z[j]) for i, j in pairs) / len(pairs)
    x, z = (side - mean for side, mean in zip(others, means, strict=True))
    return _cosines(x @ left, z @ right)


def cmml(fitting: Sides, classes: Classes, others: Sides) -> Any:
    """The logistic loss of all pairs, minimised by its values alone, from the canonical directions."""
    means = [side.mean(axis=0) for side in fitting]
    X, Z = (side - mean for side, mean in zip(fitting, means, strict=True))
    similar = classes[0][:, None] == classes[1][None, :]
    signs = np.where(similar, 1.0, -1.0)
    weights = np.where(similar, 1.0 / similar.sum(), 1.0 / (~similar).sum())

    def distances(maps: Any) -> Any:
        a, b = X @ maps[: X.shape[1]], Z @ maps[X.shape[1] :]
        return np.sum(a**2, axis=1)[:, None] - 2.0 * a @ b.T + np.sum(b**2, axis=1)

    def objective(flat: Any) -> float:
        margins = signs * (distances(flat.reshape(-1, 2)) - 1.0)
        return float(np.sum(weights * np.logaddexp(0.0, 3.0 * margins)) / 3.0)

    cross = sum(np.outer(X[i], Z[j]) for i, j in np.argwhere(similar)) / similar.sum()
    whitening = []
    for side in (X, Z):
        covariance = side.T @ side / len(side)
        ridge = 0.1 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        whitening.append(np.linalg.inv(scipy.linalg.sqrtm(covariance + ridge).real))
    U, _, Vt = np.linalg.svd(whitening[0] @ cross @ whitening[1])
    start = np.vstack([whitening[0] @ U[:, :2], whitening[1] @ Vt[:2].T])
    start /= np.sqrt(np.average(distances(start), weights=weights))
    maps = minimize(objective, start.ravel(), method="L-BFGS-B").x.reshape(-1, 2)
    x, z = (side - mean for side, mean in zip(others, means, strict=True))
    return _negative_distances(x @ maps[: X.shape[1]], z @ maps[X.shape[1] :])


def _in_common_space(learn: Callable[[Sides, Classes], Any]) -> Plain:
    """Return the program that learns a map L in the space of CCA, and compares by distance in it."""

    def rank(fitting: Sides, classes: Classes, others: Sides) -> Any:
        cca = CCA(DIMENSIONS, reg=0.1, metric="inner").fit(*fitting, Labels(*classes))
        directions = learn((cca.project_x(fitting[0]), cca.project_z(fitting[1])), classes)
        return _negative_distances(
            cca.project_x(others[0]) @ directions, cca.project_z(others[1]) @ directions
        )

    return rank


def _chunklets(samples: Sides, classes: Classes) -> list[Any]:
    together, labels = np.vstack(samples), np.concatenate(classes)
    return [together[labels == label] for label in np.unique(labels)]


def _rca(samples: Sides, classes: Classes) -> Any:
    """The inverse covariance within chunklets, factored."""
    chunklets = _chunklets(samples, classes)
    covariance = np.zeros((DIMENSIONS, DIMENSIONS))
    for chunklet in chunklets:
        for row in chunklet:
            covariance += np.outer(row - chunklet.mean(axis=0), row - chunklet.mean(axis=0))
    return np.linalg.cholesky(np.linalg.inv(covariance / sum(map(len, chunklets))))


def _dca(samples: Sides, classes: Classes) -> Any:
    """Between chunklets whitened in its range, then within them."""
    chunklets = _chunklets(samples, classes)
    means = [chunklet.mean(axis=0) for chunklet in chunklets]
    between = sum(np.outer(a - b, a - b) for a in means for b in means)
    within = sum(np.cov(chunklet.T, bias=True) for chunklet in chunklets) / len(chunklets)
    values, vectors = np.linalg.eigh(between)
    kept = min(DIMENSIONS, len(chunklets) - 1)
    whitened = vectors[:, -kept:] / np.sqrt(values[-kept:])
    values, vectors = np.linalg.eigh(whitened.T @ within @ whitened)
    return whitened @ vectors / np.sqrt(values)


def _itml(samples: Sides, classes: Classes) -> Any:
    """Algorithm 1 in terms of the inverse of the matrix, on the pairs that the method draws:
    others of the same number move the average precision by several points, here and there."""
    names = np.unique(np.concatenate(classes))
    indicators = [(side[:, None] == names).astype(np.float64) for side in classes]
    drawn = zip(*ITML(DIMENSIONS)._draw(CommonSpace(*samples, *indicators)), strict=True)
    differences = [(difference, sign) for difference, sign in drawn if difference @ difference > 0.0]
    upper, lower = np.percentile([v @ v for v, _ in differences], [5, 95])
    targets = [upper if sign > 0 else lower for _, sign in differences]
    multipliers = [0.0] * len(differences)
    inverse = np.eye(DIMENSIONS)
    for _ in range(20):
        for c, (v, sign) in enumerate(differences):
            distance = v @ np.linalg.solve(inverse, v)
            step = min(multipliers[c], sign / 2.0 * (1.0 / distance - 1.0 / targets[c]))
            targets[c] = targets[c] / (1.0 + sign * step * targets[c])
            multipliers[c] -= step
            inverse -= sign * step * np.outer(v, v)
    return np.linalg.cholesky(np.linalg.inv(inverse))


def _lmnn(samples: Sides, classes: Classes) -> Any:
    """The objective over all impostors, minimised by its values alone."""
    same = classes[0][:, None] == classes[1][None, :]
    before = -_negative_distances(*samples)
    sides = [(samples, same, before), (samples[::-1], same.T, before.T)]
    targets = [np.argsort(np.where(is_same, far, np.inf), axis=1)[:, :3] for _, is_same, far in sides]
    mean = np.mean(
        [np.take_along_axis(far, t, 1).mean() for (_, _, far), t in zip(sides, targets, strict=True)]
    )

    def objective(flat: Any) -> float:
        total = 0.0
        for (pair, is_same, _), near in zip(sides, targets, strict=True):
            a, b = (side @ flat.reshape(DIMENSIONS, DIMENSIONS) for side in pair)
            mapped = np.sum(a**2, axis=1)[:, None] - 2.0 * a @ b.T + np.sum(b**2, axis=1)
            pull = np.take_along_axis(mapped, near, axis=1)
            total += pull.sum()
            for column in pull.T:
                total += np.sum(np.maximum(1.0 + column[:, None] - mapped, 0.0)[~is_same])
        return total / sum(map(len, targets))

    start = np.eye(DIMENSIONS).ravel() / np.sqrt(mean)
    return minimize(objective, start, method="L-BFGS-B").x.reshape(DIMENSIONS, DIMENSIONS)


METHODS: list[tuple[Any, Plain]] = [
    (MvDA(reg=0.1), mvda),
    (WMCA(DIMENSIONS, max_iter=100), wmca),
    (CMML(2, n_pairs=N_FIT, max_iter=1000), cmml),
    (RCA(DIMENSIONS), _in_common_space(_rca)),
    (DCA(DIMENSIONS), _in_common_space(_dca)),
    (ITML(DIMENSIONS), _in_common_space(_itml)),
    (LMNN(DIMENSIONS, n_impostors=N_FIT, n_rounds=1, max_iter=1000), _in_common_space(_lmnn)),
]


@pytest.mark.parametrize(("model", "rank"), METHODS, ids=[type(model).__name__ for model, _ in METHODS])
def test_it_ranks_as_well_as_the_plain_program(model: Any, rank: Plain, data: tuple[Sides, Classes]) -> None:
    samples, classes = data
    fitting, others = [side[:N_FIT] for side in samples], [side[N_FIT:] for side in samples]
    x_labels, z_labels = (side[N_FIT:] for side in classes)
    known = classes[0][:N_FIT], classes[1][:N_FIT]
    model.fit(*fitting, Labels(*known))
    similarity = rank((fitting[0], fitting[1]), known, (others[0], others[1]))
    quality = bidirectional_map(model.project_x(others[0]), model.project_z(others[1]), x_labels, z_labels)
    # An identity beside it: the inner products of these "projections" are the similarities.
    expected = bidirectional_map(similarity, np.eye(similarity.shape[1]), x_labels, z_labels)
    assert quality.mean == pytest.approx(expected.mean, abs=0.01)
    assert expected.mean > 1.3 * np.mean(x_labels[:, None] == z_labels), "hardly better than chance"
