"""What samples carry: grades of relevance, and what remains of a part."""

import numpy as np
import pytest
import scipy.sparse

from solver import Annotations, Facet, Queries, SupervisionError

COLOURS = Facet.of([["red"], ["blue"], []], [["red"], ["red"], ["green"], []])
TAGS = Facet.of([["a", "b"], ["c"], ["b"]], [["b"], ["c"], ["a", "c"], []])
PAIRS = np.array([[0, 0], [0, 2], [2, 3]])
ALL_X, ALL_Z = np.arange(3), np.arange(4)


def _annotations() -> Annotations:
    signs = scipy.sparse.coo_array(([1, -1], ([0, 2], [1, 0])), shape=(3, 4)).tocsr()
    return Annotations((3, 4), {"colour": COLOURS, "tags": TAGS}, PAIRS, signs)


def test_a_grade_counts_shared_facets_and_the_pair() -> None:
    grades = _annotations().grades(ALL_X, ALL_Z)
    np.testing.assert_array_equal(grades, [[3, 1, 2, 0], [0, 1, 1, 0], [1, 0, 0, 1]])
    assert _annotations().top_grade == 3
    again = np.array([2, 0, 2]), np.array([3, 0, 3, 2])
    np.testing.assert_array_equal(_annotations().grades(*again), grades[np.ix_(*again)])


def test_an_unknown_value_is_shared_with_no_sample() -> None:
    assert not COLOURS.is_shared(np.array([2]), ALL_Z).any()
    assert not COLOURS.is_shared(ALL_X, np.array([3])).any()


def test_a_facet_is_exclusive_unless_a_sample_has_two_values() -> None:
    assert COLOURS.is_exclusive
    assert not TAGS.is_exclusive


def test_a_part_has_the_grades_of_the_whole() -> None:
    x_rows, z_rows = np.array([2, 0]), np.array([3, 0, 1])
    part = _annotations().subset(x_rows, z_rows)
    np.testing.assert_array_equal(
        part.grades(np.arange(2), np.arange(3)), _annotations().grades(x_rows, z_rows)
    )
    assert part.pairs.tolist() == [[1, 1], [0, 0]]
    assert part.signs is not None
    np.testing.assert_array_equal(part.signs.toarray(), [[0, -1, 0], [0, 0, 1]])


def test_annotations_without_some_samples_keep_their_facets_only() -> None:
    rest = _annotations().without(np.array([0]), np.array([3]))
    assert rest.pairs.shape == (0, 2)
    assert rest.signs is not None
    np.testing.assert_array_equal(rest.signs.toarray(), [[0, 0, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0]])
    assert rest.facets.keys() == _annotations().facets.keys()


def test_swapped_annotations_have_the_transposed_grades() -> None:
    swapped = _annotations().transpose()
    np.testing.assert_array_equal(swapped.grades(ALL_Z, ALL_X), _annotations().grades(ALL_X, ALL_Z).T)
    assert swapped.signs is not None
    assert swapped.signs.shape == swapped.shape == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((3, 4),), "nothing to learn from"),
        (((3, 3), {"colour": COLOURS}), "facet 'colour' describes"),
        (((3, 4), {}, np.array([[0, 4]])), "must name rows"),
        (((3, 4), {}, np.array([[-1, 0]])), "must name rows"),
        (((3, 4), {}, np.array([[0.0, 1.0]])), "must be integers"),
        (((3, 4), {}, np.empty((0, 2), int), scipy.sparse.csr_array((4, 3))), "signs must have shape"),
    ],
)
def test_what_does_not_fit_the_samples_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(SupervisionError, match=message):
        Annotations(*arguments)


def test_indicators_of_another_number_of_values_are_refused() -> None:
    with pytest.raises(SupervisionError, match="x_indicators must have shape"):
        Facet(("a", "b"), np.zeros((2, 3), bool), np.zeros((2, 2), bool))


FACETS = {
    "colour": Facet.of([["red"], ["blue"]], [["red"], ["red", "blue"]]),
    "kind": Facet.of([["bag"], []], [["bag"], ["shoe"]]),
}


def test_a_sample_is_as_relevant_as_it_has_values_of_the_query() -> None:
    values = {"colour": [["red"], ["blue"], []], "kind": [["bag"], [], ["hat"]]}
    queries = Queries.of(np.zeros((3, 2)), values, FACETS)
    grades = queries.grades({name: facet.z_indicators for name, facet in FACETS.items()})
    # "hat" is a value of no sample.
    np.testing.assert_array_equal(grades, [[2, 1], [0, 1], [0, 0]])


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(SupervisionError, match=r"'colour' describes 1 queries, there are 2"):
        Queries.of(np.zeros((2, 2)), {"colour": [["red"]]}, FACETS)
