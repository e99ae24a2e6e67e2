import itertools
from typing import Any, ClassVar

import numpy as np
import pytest

from solver import Labels
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from solver.losses.base import FactoredPoint
from solver.optimisation.paper import DensePairs, iterate_paper
from tests.solver.dense import DenseProblem


def _dense_pairs(pairs: SyntheticPairs) -> DensePairs:
    return DensePairs(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))


def test_dense_pairs_equal_the_formula(pairs: SyntheticPairs) -> None:
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    for scale in (0.0, 1.0, 50.0):
        M = scale * np.random.default_rng(0).standard_normal((8, 6))
        own = _dense_pairs(pairs)
        scores = own.scores(FactoredPoint(M, np.eye(6)))
        np.testing.assert_allclose(scores, own.X @ M @ own.Z.T, rtol=1e-12, atol=1e-12 * scale)
        loss, gradient = own.loss_and_gradient(scores)
        assert loss == own.loss(scores) == pytest.approx(dense.loss(M), rel=1e-13)
        np.testing.assert_allclose(gradient, dense.gradient(M), atol=1e-13)


def test_step_never_grows_and_halves_exactly(pairs: SyntheticPairs) -> None:
    states = list(itertools.islice(iterate_paper(_dense_pairs(pairs), 0.01, 1e6), 40))
    steps = [1e6, *(state.step_size for state in states)]
    assert steps[-1] < 1e6
    for before, after in itertools.pairwise(steps):
        assert after <= before
        assert np.log2(before / after) == int(np.log2(before / after))


def _algorithm_1(dense: Any, alpha: float, step: float, n_steps: int) -> list[tuple[Any, Any, float, float]]:
    """Return M, Q, momentum and step of each iteration, line by line as the paper has them."""
    M, Q, momentum = np.zeros((8, 6)), np.zeros((8, 6)), 1.0
    states = []
    for _ in range(n_steps):
        while True:
            U, s, Vt = np.linalg.svd(Q - step * dense.gradient(Q), full_matrices=False)
            new_M = (U * np.maximum(s - alpha * step, 0.0)) @ Vt
            move = new_M - Q
            model = dense.loss(Q) + np.sum(dense.gradient(Q) * move) + np.sum(move**2) / (2 * step)
            if dense.loss(new_M) <= model + 2e-16 * dense.loss(Q):
                break
            step /= 2
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        states.append((new_M, Q, next_momentum, step))
        Q = new_M + (momentum - 1) / next_momentum * (new_M - M)
        M, momentum = new_M, next_momentum
    return states


@pytest.mark.parametrize("first_step", [0.5, 1000.0])  # smaller than any that is refused; cut several times
def test_states_are_those_of_algorithm_1(first_step: float, pairs: SyntheticPairs) -> None:
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    expected = _algorithm_1(dense, 0.02, first_step, 60)
    assert (expected[-1][3] < first_step) == (first_step > 1.0)
    assert expected[-1][2] > 30.0  # (t + 2) / 2 and more: the momentum never restarts
    found = itertools.islice(iterate_paper(_dense_pairs(pairs), 0.02, first_step), 60)
    for state, (M, Q, momentum, step) in zip(found, expected, strict=True):
        np.testing.assert_allclose(state.M.dense(), M, atol=1e-11)  # rounding of sixty steps
        np.testing.assert_allclose(state.search_point.dense(), Q, atol=1e-11)
        assert state.momentum == pytest.approx(momentum, rel=1e-14)
        assert state.step_size == step


def test_objective_is_within_the_rate_of_accelerated_gradient(pairs: SyntheticPairs) -> None:
    dense = DenseProblem(pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    states = list(itertools.islice(iterate_paper(_dense_pairs(pairs), 0.02, 1.0), 1200))
    optimum, solution = states[-1].objective, states[-1].M.dense()
    assert dense.relative_gap(solution, 0.02) < 1e-6
    for state in states[:500]:
        assert state.objective == pytest.approx(dense.objective(state.M.dense(), 0.02), rel=1e-12)
        # Beck and Teboulle (2009), theorem 4.4, with 1/L replaced by the smallest step accepted.
        bound = 2 * np.sum(solution**2) / (states[-1].step_size * (state.iteration + 1) ** 2)
        assert state.objective - optimum <= bound


class _Counted(np.ndarray[Any, Any]):
    """An array that counts the multiplications of matrix products with it and with what comes of it."""

    spent: ClassVar[list[int]] = []

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [np.asarray(each) for each in inputs]
        if ufunc is np.matmul:
            self.spent.append(plain[0].size * plain[1].shape[1])
        if "out" in kwargs:
            kwargs["out"] = tuple(np.asarray(each) for each in kwargs["out"])
        return np.asarray(getattr(ufunc, method)(*plain, **kwargs)).view(_Counted)


def test_a_step_costs_the_products_of_one_gradient_and_one_trial() -> None:
    data = make_low_rank_pairs(50, 40, n_features_x=90, n_features_z=7, random_state=0)
    dense = DensePairs(data.X, data.Z, Labels(data.x_labels, data.z_labels))
    dense.X, dense.Z = dense.X.view(_Counted), dense.Z.view(_Counted)
    m, n, d1, d2 = 50, 40, 90, 7
    states = iterate_paper(dense, 0.001, 1e-4)  # no step of this size is refused
    for _ in range(5):
        _Counted.spent.clear()
        state = next(states)
        assert state.step_size == 1e-4
        gradient = m * n * d2 + m * d1 * d2
        trial = state.M.rank * (m * d1 + n * d2 + m * n)
        assert 0 < sum(_Counted.spent) <= gradient + trial
