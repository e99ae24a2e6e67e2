import numpy as np
import numpy.typing as npt
import pytest

from solver import Labels
from solver.errors import SupervisionError
from solver.supervision import Supervision


def _similar_pairs(supervision: Supervision, block: int) -> npt.NDArray[np.bool]:
    n, m = len(supervision.x_order), len(supervision.z_order)
    visited = np.zeros((n, m), dtype=int)
    for start in range(0, n, block):
        for first in range(0, m, 2 * block):
            rows, columns = slice(start, min(start + block, n)), slice(first, min(first + 2 * block, m))
            for key in supervision.similar_pairs(rows, columns):
                visited[rows, columns][key] += 1
    similar = np.zeros_like(visited)
    similar[np.ix_(supervision.x_order, supervision.z_order)] = visited
    assert similar.max() <= 1
    return similar.astype(bool)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_rectangles_of_every_block_split_cover_exactly_the_similar_pairs(block: int) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.integers(0, 5, 23), rng.integers(2, 8, 17)  # classes 0, 1 only left; 5, 6, 7 only right
    np.testing.assert_array_equal(_similar_pairs(Labels(x, z), block), x[:, None] == z[None, :])


def test_pair_counts_are_those_of_a_hand_worked_case() -> None:
    supervision = Labels(["a", "b", "b", "c"], ["b", "a", "a"])
    assert (supervision.n_similar, supervision.n_dissimilar) == (4, 8)


def test_orders_visit_each_sample_once_class_by_class() -> None:
    x = np.array([2, 0, 1, 0, 2])
    supervision = Labels(x)
    assert sorted(supervision.x_order.tolist()) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(x[supervision.x_order], np.sort(x))
    np.testing.assert_array_equal(supervision.x_order, supervision.z_order)


def test_string_and_integer_labels_name_the_same_pairs() -> None:
    x, z = np.array([0, 1, 2, 1]), np.array([1, 1, 0])
    by_number, by_name = Labels(x, z), Labels(x.astype(str), z.astype(str))
    np.testing.assert_array_equal(_similar_pairs(by_number, 2), _similar_pairs(by_name, 2))


def test_object_labels_are_taken_as_strings() -> None:
    supervision = Labels(np.array(["a", "b"], dtype=object), ["a", "b", "b"])
    assert (supervision.n_similar, supervision.n_dissimilar) == (3, 3)


def test_labels_without_a_common_class_are_refused() -> None:
    with pytest.raises(SupervisionError, match="no similar pair"):
        Labels([0, 1], [2, 3])


def test_labels_of_one_class_are_refused() -> None:
    with pytest.raises(SupervisionError, match="no dissimilar pair"):
        Labels([1, 1, 1], [1, 1])


def test_labels_of_different_kinds_are_refused() -> None:
    with pytest.raises(SupervisionError, match="not of one kind"):
        Labels([0, 1], ["0", "1"])


@pytest.mark.parametrize("labels", [[], [[0, 1], [1, 0]], 3])
def test_labels_that_are_not_a_list_are_refused_by_name(labels: npt.ArrayLike) -> None:
    with pytest.raises(SupervisionError, match="z_labels"):
        Labels([0, 1], labels)


def test_nan_labels_are_refused() -> None:
    with pytest.raises(SupervisionError, match="NaN"):
        Labels([0.0, np.nan])


def test_two_dimensional_object_labels_are_refused() -> None:
    with pytest.raises(SupervisionError, match="x_labels"):
        Labels(np.array([["a", 1], ["b", 2]], dtype=object))


def test_missing_labels_are_refused() -> None:
    with pytest.raises(SupervisionError, match="x_labels"):
        Labels(None)  # type: ignore[arg-type]


def test_labels_leave_their_input_unmodified() -> None:
    x, z = np.array([2, 0, 1]), np.array([1, 2])
    Labels(x, z)
    np.testing.assert_array_equal(x, [2, 0, 1])
    np.testing.assert_array_equal(z, [1, 2])
