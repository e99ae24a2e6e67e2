"""Counts of what filters can choose from: those of the items that a search with the filter finds."""

from typing import Any

import pytest

from app.bootstrap import Services
from app.domain.entities import ItemFilter
from app.domain.errors import ModelNotTrainedError, UnknownModalityError
from app.services.serving.search import Query
from solver.datasets import SyntheticPairs
from tests.app.integration.searching import NAME, fill, vector_item


def n_found(services: Services, item_filter: ItemFilter) -> int:
    (result,) = services.search.search(NAME, "z", "x", [Query(item_id="z00")], 1000, 0, item_filter)
    return len(result.hits)


def check_counts(services: Services) -> dict[str, Any]:
    counts = services.values.count(NAME, "x", 50)
    assert counts.n_items == n_found(services, ItemFilter())
    for label, count in counts.labels:
        assert n_found(services, ItemFilter((label,))) == count
    for key, values in counts.metadata.items():
        for value, count in values:
            assert n_found(services, ItemFilter(metadata={key: (value,)})) == count
    numbers = [count for _, count in counts.labels]
    assert numbers == sorted(numbers, reverse=True)
    return dict(counts.metadata)


def test_counts_are_those_of_filtered_searches(trained: Services, vectors: SyntheticPairs) -> None:
    assert check_counts(trained) == {"odd": ((False, 30), (True, 30))}
    facts: list[dict[str, Any]] = [
        {"colour": "red", "size": 1, "id": "a", "tags": ["x"]},
        {"colour": "red", "size": True, "id": "b", "tags": ["x"]},
        {"colour": "blue", "size": 1, "id": "c", "tags": ["x"]},
        {"colour": "red", "size": 1.0, "id": "d", "tags": ["x"], "odd": None},
    ]
    items = [vector_item("x", f"new{n}", vectors.X[n], "new", metadata=fact) for n, fact in enumerate(facts)]
    trained.catalogue.add_items(NAME, items)
    for number in range(3):
        trained.catalogue.delete_item(NAME, f"x{number:02d}")
    found = check_counts(trained)
    assert found["colour"] == (("red", 3), ("blue", 1))
    assert found["size"] == ((1, 3), (True, 1))
    assert "id" not in found  # each value is another one
    assert "tags" not in found  # no filter can name a list
    trained.catalogue.delete_item(NAME, "x03")
    assert check_counts(trained)["odd"] == ((False, 28), (True, 28))


def test_only_the_most_frequent_values_are_returned(trained: Services) -> None:
    everything, few = trained.values.count(NAME, "x", 50), trained.values.count(NAME, "x", 1)
    assert len(everything.labels) > 1
    assert few.labels == everything.labels[:1]
    assert len(few.metadata["odd"]) == 1


def test_what_cannot_be_counted_is_refused(services: Services, vectors: SyntheticPairs) -> None:
    fill(services, vectors)
    with pytest.raises(ModelNotTrainedError):
        services.values.count(NAME, "x", 10)


def test_an_unknown_modality_is_named(trained: Services) -> None:
    with pytest.raises(UnknownModalityError):
        trained.values.count(NAME, "y", 10)
