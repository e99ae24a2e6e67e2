"""Whether vectors of one length are of one space, as pairs show it."""

import numpy as np
import pytest
import scipy.sparse

from app.services.models.placement import share_space

RNG = np.random.default_rng(0)
ROWS, OTHERS = RNG.standard_normal((2, 20, 16)).astype(np.float32)
TWO_KINDS = np.eye(2, dtype=np.float32)[np.arange(20) % 2]


def test_it_takes_twenty_pairs_to_say_so_or_not() -> None:
    shares = [share_space(ROWS[:n], z[:n], ()) for n in (5, 19, 20) for z in (OTHERS, ROWS + OTHERS)]
    assert shares == [None, None, None, None, False, True]


@pytest.mark.parametrize("n_pairs", [1, 5, 20])
@pytest.mark.parametrize("rows", [ROWS, TWO_KINDS, np.ones((20, 3), np.float32)])
def test_partners_with_the_same_vector_are_of_one_space(rows: np.ndarray, n_pairs: int) -> None:
    assert share_space(rows[:n_pairs], rows[:n_pairs].copy(), ()) is True


def test_kinds_that_are_numbered_in_another_order_are_not() -> None:
    assert share_space(TWO_KINDS, TWO_KINDS[::-1], ()) is False


def test_sparse_features_are_made_of_what_items_say() -> None:
    assert share_space(scipy.sparse.csr_array(ROWS), scipy.sparse.csr_array(ROWS), ()) is False
