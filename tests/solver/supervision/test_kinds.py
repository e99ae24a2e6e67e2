"""Every kind of supervision: what was planted is found, and the two solvers agree."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg
import scipy.sparse
import scipy.special

from solver import Labels, LowRankBilinear, MultiLabels, PairedRows, SignedPairs, alpha_max
from solver.linalg import FloatArray
from tests.solver.dense import DenseProblem

RANK = 4
KINDS = ["labels", "several labels", "paired rows", "signed pairs", "weighted pairs"]
# Shares of alpha_max at which each kind was found to generalise: the fewer pairs speak, the larger.
FRACTIONS = {
    "labels": 0.1,
    "several labels": 0.03,
    "paired rows": 0.03,
    "signed pairs": 0.1,
    "weighted pairs": 0.1,
}


@dataclass(frozen=True)
class Planted:
    """Samples of two modalities, their supervision, its dense signs and weights, and the truth."""

    X: FloatArray
    Z: FloatArray
    supervision: Any
    Y: FloatArray
    W: FloatArray
    M: FloatArray
    relevant: npt.NDArray[np.bool_]


def _bases(rng: np.random.Generator, k: int) -> tuple[FloatArray, FloatArray]:
    A, B = np.linalg.qr(rng.standard_normal((12, k)))[0], np.linalg.qr(rng.standard_normal((10, k)))[0]
    return A, B


def _noise(rng: np.random.Generator, n: int, d: int, size: float) -> FloatArray:
    return size * rng.standard_normal((n, d)) / np.sqrt(d)


def _plant(kind: str, m: int, n: int, seed: int = 0, truth: int = 0) -> Planted:
    """Draw samples; `truth` decides the planted matrix, `seed` the samples."""
    A, B = _bases(np.random.default_rng([1, truth]), RANK)
    rng = np.random.default_rng([2, seed])
    M = A @ B.T
    ones = np.ones((m, n))
    if kind == "labels":
        # Classes stand for the corners of a simplex: of all matrices a multiple of M is the best one.
        x_labels, z_labels = (rng.permutation(np.arange(size) % (RANK + 1)) for size in (m, n))
        corners = _corners_of_a_simplex()
        X = corners[x_labels] @ A.T + _noise(rng, m, 12, 0.3)
        Z = corners[z_labels] @ B.T + _noise(rng, n, 10, 0.3)
        similar = x_labels[:, None] == z_labels[None, :]
        return Planted(X, Z, Labels(x_labels, z_labels), np.where(similar, 1.0, -1.0), ones, M, similar)
    if kind == "several labels":
        # Tags stand for directions; samples that share some point the same way.
        x_tags, z_tags = ((rng.random((size, RANK)) < 0.3).astype(float) for size in (m, n))
        X = x_tags @ A.T + _noise(rng, m, 12, 0.3)
        Z = z_tags @ B.T + _noise(rng, n, 10, 0.3)
        similar = x_tags @ z_tags.T > 0  # of those without a tag, a quarter, none
        return Planted(X, Z, MultiLabels(x_tags, z_tags), np.where(similar, 1.0, -1.0), ones, M, similar)
    if kind == "paired rows":
        codes = rng.standard_normal((m, RANK))
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
        X, Z = codes @ A.T + _noise(rng, m, 12, 0.1), codes @ B.T + _noise(rng, m, 10, 0.1)
        similar = np.eye(m, dtype=bool)
        return Planted(X, Z, PairedRows(m), np.where(similar, 1.0, -1.0), np.ones((m, m)), M, similar)
    X, Z = rng.standard_normal((m, 12)), rng.standard_normal((n, 10))
    scores = X @ M @ Z.T
    likely = rng.random((m, n)) < scipy.special.expit(3.0 * scores)  # the logistic model itself
    Y = np.where(rng.random((m, n)) < 0.1, np.where(likely, 1.0, -1.0), 0.0)
    W = rng.uniform(0.5, 2.0, (m, n)) if kind == "weighted pairs" else ones
    known = scipy.sparse.csr_array(np.where(Y != 0, W, 0.0))
    supervision = SignedPairs(scipy.sparse.csr_array(Y), known if kind == "weighted pairs" else None)
    return Planted(X, Z, supervision, Y, W, M, scores > np.quantile(scores, 0.9))


def _corners_of_a_simplex() -> FloatArray:
    centred = np.eye(RANK + 1) - 1.0 / (RANK + 1)
    corners: FloatArray = np.linalg.svd(centred)[0][:, :RANK] / np.sqrt(RANK / (RANK + 1))
    return corners  # of length one, with equal angles


def _fit(data: Planted, fraction: float, **parameters: Any) -> LowRankBilinear:
    fit_intercept = parameters.get("fit_intercept", True)
    alpha = fraction * alpha_max(data.X, data.Z, data.supervision, fit_intercept=fit_intercept)
    return LowRankBilinear(alpha, **parameters).fit(data.X, data.Z, data.supervision)


def _average_precision(scores: FloatArray, relevant: npt.NDArray[np.bool_]) -> float:
    """Return MAP over the rows that have something relevant."""
    ranked = np.take_along_axis(relevant, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    hits = np.cumsum(ranked, axis=1)
    precision = hits / np.arange(1, ranked.shape[1] + 1)
    some = hits[:, -1] > 0
    return float(np.mean(np.sum(precision * ranked, axis=1)[some] / hits[some, -1]))


def _degrees_between(A: FloatArray, B: FloatArray) -> float:
    """Return the largest angle between two subspaces, given by the columns of orthonormal bases."""
    return float(np.degrees(scipy.linalg.subspace_angles(A, B).max()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_planted_matrix_is_recovered(kind: str, seed: int, dtype: type) -> None:
    data = _plant(kind, 300, 280, seed=seed, truth=seed)
    model = _fit(data, FRACTIONS[kind], fit_intercept=kind == "several labels", dtype=dtype)
    assert model.converged_
    assert model.rank_ == RANK + model.fit_intercept  # the constants take a direction of their own
    M = model.x_factors_ @ model.z_factors_.T
    U, _, Vt = np.linalg.svd(M)
    A, B = np.linalg.qr(data.M)[0][:, :RANK], np.linalg.qr(data.M.T)[0][:, :RANK]
    # The noise of 300 samples turns the subspaces by 1 to 5 degrees; at random 60 and more are between them.
    assert _degrees_between(U[:, :RANK], A) < 8.0
    assert _degrees_between(Vt[:RANK].T, B) < 8.0
    # The size of M depends on the penalty, its direction hardly does: .995 and more was measured.
    assert np.vdot(M, data.M) > 0.99 * np.linalg.norm(M) * np.linalg.norm(data.M)


@pytest.mark.parametrize("kind", KINDS)
def test_planted_similarity_is_recovered_on_fresh_samples(kind: str) -> None:
    data, fresh = _plant(kind, 300, 280, seed=0), _plant(kind, 120, 110, seed=1)
    model = _fit(data, FRACTIONS[kind], fit_intercept=kind == "several labels")
    found, truth = model.similarity(fresh.X, fresh.Z), fresh.X @ fresh.M @ fresh.Z.T
    correlation = np.corrcoef(found.ravel(), truth.ravel())[0, 1]
    # Shrinkage bends the similarity a little even where its order is right: .988 and more was measured.
    assert correlation > 0.98
    ideal = _average_precision(truth, fresh.relevant)
    assert _average_precision(found, fresh.relevant) > ideal - 0.03


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_apg_reaches_the_paper_objective_for_every_supervision(kind: str, fit_intercept: bool) -> None:
    data = _plant(kind, 40, 35)
    paper = _fit(data, 0.1, solver="paper", tol=5e-4, max_iter=20000, fit_intercept=fit_intercept)
    apg = _fit(data, 0.1, tol=5e-4, fit_intercept=fit_intercept)
    dense = DenseProblem.of_pairs(data.X, data.Z, data.Y, data.W, fit_intercept)
    for model in (paper, apg):
        assert model.converged_
        # The certificate is for the stored factors, in float64; the gap is a difference of numbers near one.
        gap = dense.relative_gap_of(model)
        assert gap == pytest.approx(model.duality_gap_, abs=1e-10)
        assert gap <= 5e-4
    assert apg.objective_ == pytest.approx(paper.objective_, rel=1e-3)  # both within tol of the optimum
