from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import (
    Labels,
    LowRankBilinear,
    MultiLabels,
    PairedRows,
    SignedPairs,
    alpha_max,
    make_low_rank_pairs,
)
from solver.bilinear.solving import BilinearProblem, subsampled_problems
from solver.supervision.kinds import AnySupervision

N = 920

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture(scope="module")
def data() -> Any:
    return make_low_rank_pairs(N, N, n_features_x=6, n_features_z=5, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def problem(data: Any) -> BilinearProblem:
    return BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), True, None)


def test_one_block_comes_first_and_then_all_of_them(problem: BilinearProblem) -> None:
    parts = list(subsampled_problems(problem))
    assert [part.share for part in parts] == pytest.approx([1 / 4, 1 / 2])
    assert [part.penalty_growth for part in parts] == pytest.approx([2**0.5, 2**0.25])
    for part in parts:
        assert (part.shape, part.alpha_max) == (problem.shape, problem.alpha_max)
        assert part.loss(np.float32).shape == problem.shape


def test_small_problem_is_solved_at_once() -> None:
    data = make_low_rank_pairs(60, 50, random_state=0)
    small = BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), True, None)
    assert list(subsampled_problems(small)) == []


def _supervision(kind: str, data: Any) -> AnySupervision:
    if kind == "paired":
        return PairedRows(N)
    if kind == "several":
        return MultiLabels(np.eye(10)[data.x_labels], np.eye(10)[data.z_labels])
    return Labels(data.x_labels, data.z_labels)


@pytest.mark.parametrize("kind", ["labels", "several", "paired"])
def test_large_problem_is_begun_on_some_pairs_and_ends_certified_on_all(kind: str, data: Any) -> None:
    supervision = _supervision(kind, data)
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    model = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision)
    shares = [entry.share for entry in model.history_]
    assert model.converged_
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (pytest.approx(1 / 4), 1.0)
    assert [entry.iteration for entry in model.history_] == list(range(1, model.n_iter_ + 1))


def test_result_is_that_of_a_problem_begun_on_all_pairs(data: Any) -> None:
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = alpha_max(data.X, data.Z, supervision) / 10
    grown = LowRankBilinear(alpha, tol=1e-5).fit(data.X, data.Z, supervision)
    whole = LowRankBilinear(alpha, tol=1e-5, warm_start=True)
    whole.fit(data.X[:200], data.Z[:200], Labels(data.x_labels[:200], data.z_labels[:200]))
    whole.fit(data.X, data.Z, supervision)
    assert min(entry.share for entry in whole.history_) == 1.0
    assert min(entry.share for entry in grown.history_) < 1.0
    assert grown.converged_
    assert whole.converged_
    assert grown.objective_ == pytest.approx(whole.objective_, rel=1e-5)


def test_problem_whose_parts_lack_dissimilar_pairs_is_solved_on_all_pairs_from_the_start(data: Any) -> None:
    x_labels = np.zeros(N, int)
    x_labels[0] = 1
    supervision = Labels(x_labels, np.zeros(N, int))
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    model = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision)
    assert model.converged_
    assert {entry.share for entry in model.history_} == {1.0}


def test_listed_pairs_are_cheap_as_they_are(data: Any) -> None:
    signs = scipy.sparse.coo_array(([1.0, -1.0], ([0, 1], [0, N - 1])), shape=(N, N))
    listed = BilinearProblem(data.X, data.Z, SignedPairs(signs), True, None)
    assert listed.subsample is None
