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
from solver.linalg import from_factors
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from solver.optimisation.descent import Descent
from solver.optimisation.subsample import Block, PairSubsample, assign_blocks
from solver.supervision.kinds import AnySupervision, Supervision

N = 920


@pytest.fixture(scope="module")
def data() -> Any:
    return make_low_rank_pairs(N, N, n_features_x=6, n_features_z=5, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def problem(data: Any) -> BilinearProblem:
    return BilinearProblem(data.X, data.Z, Labels(data.x_labels, data.z_labels), True, None)


@pytest.mark.usefixtures("small_blocks")
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
@pytest.mark.usefixtures("small_blocks")
def test_large_problem_is_begun_on_some_pairs_and_ends_certified_on_all(kind: str, data: Any) -> None:
    supervision = _supervision(kind, data)
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    model = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision)
    shares = [entry.share for entry in model.history_]
    assert model.converged_
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (pytest.approx(1 / 4), 1.0)
    assert [entry.iteration for entry in model.history_] == list(range(1, model.n_iter_ + 1))


@pytest.mark.usefixtures("small_blocks")
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


@pytest.mark.usefixtures("small_blocks")
def test_problem_whose_parts_lack_dissimilar_pairs_is_solved_on_all_pairs_from_the_start(data: Any) -> None:
    x_labels = np.zeros(N, int)
    x_labels[0] = 1
    supervision = Labels(x_labels, np.zeros(N, int))
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    model = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision)
    assert model.converged_
    assert {entry.share for entry in model.history_} == {1.0}


@pytest.mark.usefixtures("small_blocks")
def test_listed_pairs_are_cheap_as_they_are(data: Any) -> None:
    signs = scipy.sparse.coo_array(([1.0, -1.0], ([0, 1], [0, N - 1])), shape=(N, N))
    listed = BilinearProblem(data.X, data.Z, SignedPairs(signs), True, None)
    assert listed.subsample is None


M_SAMPLES, N_SAMPLES = 60, 45


def _classes(m: int, n: int, n_classes: int = 5) -> Labels:
    return Labels(np.arange(m) % n_classes, np.arange(n) % n_classes)


@pytest.mark.parametrize(
    ("m", "n", "sizes"),
    [
        (60, 50, []),
        (4499, 4499, []),  # one and a half blocks are solved at once
        (4501, 4501, [(2251, 2251), (2250, 2250)]),
        (9000, 9000, [(3000, 3000)] * 3),
        (60_000, 600, [(30_000, 300)] * 2),
        (1_000_000, 3, []),
    ],
)
def test_blocks_have_a_geometric_mean_of_about_three_thousand_samples(
    m: int, n: int, sizes: list[tuple[int, int]]
) -> None:
    blocks, n_assigned = assign_blocks(_classes(m, n, 2))
    assert n_assigned == len(sizes) or not sizes
    assert [(len(block.x_rows), len(block.z_rows)) for block in blocks] == sizes


@pytest.mark.parametrize(
    "supervision", [_classes(20_000, 15_000), MultiLabels(np.eye(3)[np.arange(20_000) % 3])]
)
def test_every_sample_is_dealt_at_random_to_one_block(supervision: Supervision) -> None:
    blocks, _ = assign_blocks(supervision)
    for rows, n_all in (
        ([block.x_rows for block in blocks], len(supervision.x_order)),
        ([block.z_rows for block in blocks], len(supervision.z_order)),
    ):
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(n_all))
        for some in rows:
            assert (np.diff(some) > 0).all()
            # The mean of a uniform draw is within four standard errors of the middle.
            assert np.mean(some) == pytest.approx(n_all / 2, abs=4 * n_all / np.sqrt(12 * len(some)))
    assert not np.array_equal(blocks[0].x_rows[:100], blocks[0].z_rows[:100])
    for block in blocks:
        assert len(block.supervision.x_order) == len(block.x_rows)
        assert len(block.supervision.z_order) == len(block.z_rows)


def test_blocks_are_the_same_again() -> None:
    for one, other in zip(*(assign_blocks(_classes(9000, 9000))[0] for _ in range(2)), strict=True):
        np.testing.assert_array_equal(one.x_rows, other.x_rows)
        np.testing.assert_array_equal(one.z_rows, other.z_rows)


def test_paired_rows_stay_paired() -> None:
    for block in assign_blocks(PairedRows(9000))[0]:
        np.testing.assert_array_equal(block.x_rows, block.z_rows)
        assert block.supervision.n_similar == len(block.x_rows)


def test_blocks_that_lack_similar_or_dissimilar_pairs_are_left_out() -> None:
    rare = np.zeros(9000, int)
    second = assign_blocks(_classes(9000, 9000))[0][1].x_rows
    rare[second[0]] = 1  # the only sample of its class is in the second block
    nothing_dissimilar, n_assigned = assign_blocks(Labels(rare, np.zeros(9000, int)))
    assert n_assigned == 3
    assert [block.x_rows[0] for block in nothing_dissimilar] == [second[0]]
    nothing_similar, _ = assign_blocks(Labels(rare, np.ones(9000, int)))
    assert [block.x_rows[0] for block in nothing_similar] == [second[0]]


Subsampled = tuple[PairSubsample, list[PairLogisticLoss], PairLogisticLoss]
"""Blocks, the loss of each alone, and that of all pairs."""


@pytest.fixture(params=["dense", "sparse"])
def subsample(request: pytest.FixtureRequest) -> Subsampled:
    data = make_low_rank_pairs(M_SAMPLES, N_SAMPLES, n_features_x=7, n_features_z=6, random_state=0)
    X = data.X if request.param == "dense" else scipy.sparse.csr_array(data.X)
    labels = Labels(data.x_labels % 3, data.z_labels % 3)
    rng = np.random.default_rng(1)
    blocks = [
        Block(np.sort(x_rows), np.sort(z_rows), labels.subset(np.sort(x_rows), np.sort(z_rows)))
        for x_rows, z_rows in zip(
            np.split(rng.permutation(M_SAMPLES), 3), np.split(rng.permutation(N_SAMPLES), 3), strict=True
        )
    ]
    alone = [
        PairLogisticLoss(X[block.x_rows], data.Z[block.z_rows], block.supervision, np.float64)
        for block in blocks
    ]
    return PairSubsample(X, data.Z, blocks, 3, 1), alone, PairLogisticLoss(X, data.Z, labels, np.float64)


def _point(rank: int = 2, size: float = 0.3) -> FactoredPoint:
    rng = np.random.default_rng(2)
    return FactoredPoint(size * rng.standard_normal((7, rank)), size * rng.standard_normal((6, rank)))


@pytest.mark.parametrize("n_blocks", [1, 2, 3])
def test_subsampled_loss_is_the_mean_of_its_blocks(subsample: Subsampled, n_blocks: int) -> None:
    loss, alone, point = subsample[0].loss(n_blocks), subsample[1][:n_blocks], _point()
    values, gradients = zip(*(each.value_and_gradient(point) for each in alone), strict=True)
    value, gradient = loss.value_and_gradient(point)
    assert value == pytest.approx(np.mean(values), rel=1e-5)
    np.testing.assert_allclose(gradient, np.mean(gradients, axis=0), atol=1e-5)
    assert loss.value(from_factors(point.left, point.right)) == pytest.approx(value, rel=1e-5)


def test_corrected_loss_has_the_gradient_asked_for_and_the_slope_to_match(subsample: Subsampled) -> None:
    here, wanted = _point(), np.random.default_rng(3).standard_normal((7, 6))
    loss, plain = subsample[0].gradient_corrected(here, wanted), subsample[0].loss(3)
    np.testing.assert_allclose(loss.value_and_gradient(here)[1], wanted, atol=1e-5)
    there = _point(3, 0.2)
    # The correction is linear: elsewhere it adds the same matrix.
    value, gradient = loss.value_and_gradient(there)
    added = wanted - plain.value_and_gradient(here)[1]
    np.testing.assert_allclose(gradient, plain.value_and_gradient(there)[1] + added, atol=1e-5)
    expected = plain.value_and_gradient(there)[0] + float(np.vdot(added, there.dense()))
    assert value == pytest.approx(expected, rel=1e-5)
    assert loss.value(from_factors(there.left, there.right)) == pytest.approx(expected, rel=1e-5)
    factored = loss.value_and_factor_gradients(there.left, there.right)
    assert factored[0] == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(factored[1], gradient @ there.right, atol=1e-5)
    np.testing.assert_allclose(factored[2], gradient.T @ there.left, atol=1e-5)


def test_curvature_is_in_the_units_of_the_whole(subsample: Subsampled) -> None:
    found, whole = (loss.mean_curvature(_point()) for loss in (subsample[0].loss(3), subsample[2]))
    assert found == pytest.approx(whole, rel=0.5)
    few = subsample[0].loss(2)  # blocks that are left out do not change the units
    assert few.mean_curvature(_point()) == found
    assert subsample[0].share(2) == pytest.approx(2 / 9)


@pytest.mark.usefixtures("small_blocks")
def test_steps_on_the_subsample_come_near_the_optimum_of_the_whole_until_one_gains_nothing(
    problem: BilinearProblem,
) -> None:
    alpha = problem.alpha_max / 20
    descent = Descent(problem, alpha, np.float32)
    rng = np.random.default_rng(0)
    start = from_factors(0.1 * rng.standard_normal((7, 4)), 0.1 * rng.standard_normal((6, 4)))
    states = []
    for state in descent.states(descent.start(start, is_subsampled=True)):
        states.append(state)
        if not state.is_subsampled or state.iteration > 20:
            break
    assert 2 < states[-1].iteration <= 20
    objectives = [state.objective for state in states]
    assert objectives == sorted(objectives, reverse=True)
    # The last step, which made the whole no better, was taken back.
    assert states[-1].M is states[-2].M
    assert states[-1].objective < states[-3].objective
    exact = Descent(problem, alpha, np.float64)
    optimum = None
    for state in exact.states(exact.start()):
        optimum = state.objective
        if state.iteration == 8:
            break
    assert optimum is not None
    assert optimum <= objectives[-1] * (1 + 1e-6)
    assert objectives[-1] <= optimum * (1 + 1e-4)
