from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from solver.evaluation.metrics import rank_gallery, ranked_hits, shared_classes
from solver.validation import InvalidInputError


def _by_definition(scores: npt.NDArray[Any]) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i))


def test_ties_are_broken_by_gallery_index() -> None:
    np.testing.assert_array_equal(rank_gallery([1.0, 2.0, 1.0, 2.0]), [1, 3, 0, 2])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int64, np.bool])
@pytest.mark.parametrize("n_gallery", [1, 2, 17, 400])
def test_every_type_of_score_is_ranked_by_score_then_index(dtype: type, n_gallery: int) -> None:
    rng = np.random.default_rng(n_gallery)
    scores = (40 * rng.standard_normal((6, n_gallery))).astype(np.int8).astype(dtype)  # many ties
    found = rank_gallery(scores)
    for row, order in zip(scores, found, strict=True):
        assert order.tolist() == _by_definition(row)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_and_signed_zero_scores_are_ranked(dtype: type) -> None:
    limits = np.finfo(dtype)
    scores = np.array(
        [
            0.0,
            -0.0,
            limits.smallest_subnormal,
            -limits.smallest_subnormal,
            np.inf,
            -np.inf,
            limits.max,
            limits.min,
        ],
        dtype,
    )
    assert rank_gallery(scores).tolist() == [4, 6, 2, 0, 1, 3, 7, 5]
    assert rank_gallery(scores[::-1]).tolist() == _by_definition(scores[::-1])


def test_lowest_small_integer_is_ranked_last() -> None:
    assert rank_gallery(np.array([-128, 0, 5], np.int8)).tolist() == [2, 1, 0]


def test_large_integers_are_distinguished() -> None:
    assert rank_gallery(np.array([2**53, 2**53 + 1])).tolist() == [1, 0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 2, 0)])
def test_no_scores_have_an_empty_ranking(shape: tuple[int, ...]) -> None:
    assert rank_gallery(np.zeros(shape)).shape == shape


def test_any_number_of_axes_is_ranked_along_the_last() -> None:
    scores = np.random.default_rng(0).standard_normal((2, 3, 5))
    found = rank_gallery(scores)
    for query in np.ndindex(2, 3):
        np.testing.assert_array_equal(found[query], rank_gallery(scores[query]))


def test_scores_are_unmodified() -> None:
    for dtype in (np.float32, np.float64):
        scores = np.random.default_rng(0).standard_normal((3, 9)).astype(dtype)
        copy = scores.copy()
        rank_gallery(scores)
        np.testing.assert_array_equal(scores, copy)


@pytest.mark.parametrize("scores", [3.0, [np.nan, 1.0], ["a"], [None], [1j]])
def test_scores_that_have_no_order_are_refused(scores: Any) -> None:
    with pytest.raises(InvalidInputError, match="scores"):
        rank_gallery(scores)


def test_hits_stand_in_the_order_of_the_ranking() -> None:
    assert ranked_hits([0, 1, 1], [3.0, 1.0, 2.0]).tolist() == [False, True, True]
    assert ranked_hits([1, 0, 0], [1.0, 2.0, 3.0]).tolist() == [False, False, True]


def test_relevance_is_having_a_class_in_common() -> None:
    relevance, n_queries, n_gallery = shared_classes([[1, 1, 0], [0, 0, 0]], [[0, 1, 0], [0, 0, 1]])
    assert (n_queries, n_gallery) == (2, 2)
    assert relevance(slice(0, 2)).tolist() == [[True, False], [False, False]]
    relevance, *_ = shared_classes(["b", "a"], ["a", "b", "c"])
    assert relevance(slice(0, 1)).tolist() == [[False, True, False]]
