"""Short queries that name values of facets."""

import numpy as np
import pytest

from solver import Facet, Queries, SupervisionError

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
