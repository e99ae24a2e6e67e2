import numpy as np
import pytest

from solver import CCA, GMLDA, PLS, SCM, Labels
from solver.baselines import BasisMemo
from solver.baselines._bases import CentredBasis
from solver.datasets import SyntheticPairs

LARGE = 1 << 30


@pytest.mark.parametrize("method", [CCA, PLS, SCM, GMLDA])
def test_a_remembered_basis_gives_the_same_fit(method: type, pairs: SyntheticPairs) -> None:
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    alone = method().fit(pairs.X, pairs.Z, supervision)
    with BasisMemo(LARGE).used():
        for _ in range(2):
            again = method().fit(pairs.X, pairs.Z, supervision)
            np.testing.assert_array_equal(again.project_x(pairs.X), alone.project_x(pairs.X))
            np.testing.assert_array_equal(again.project_z(pairs.Z), alone.project_z(pairs.Z))


def test_a_basis_is_found_once_for_each_array_and_anew_outside() -> None:
    samples = np.random.default_rng(0).standard_normal((20, 5))
    memo = BasisMemo(LARGE)
    with memo.used():
        first = CentredBasis.of(samples, "X")
        assert CentredBasis.of(samples, "X") is first
        assert CentredBasis.of(samples.copy(), "X") is not first
    assert CentredBasis.of(samples, "X") is not first
    with memo.used():
        assert CentredBasis.of(samples, "X") is first


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    one, two, three = np.random.default_rng(0).standard_normal((3, 20, 5))
    memo = BasisMemo(2 * (one.nbytes + 8 * (5 * 5 + 20 * 5)))
    with memo.used():
        of_one, of_two = CentredBasis.of(one, "X"), CentredBasis.of(two, "X")
        assert CentredBasis.of(one, "X") is of_one
        CentredBasis.of(three, "X")
        assert CentredBasis.of(one, "X") is of_one
        assert CentredBasis.of(two, "X") is not of_two


def test_a_basis_larger_than_all_that_may_be_kept_is_not() -> None:
    samples = np.random.default_rng(0).standard_normal((20, 5))
    with BasisMemo(10).used():
        assert CentredBasis.of(samples, "X") is not CentredBasis.of(samples, "X")
