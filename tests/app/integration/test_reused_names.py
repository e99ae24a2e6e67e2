from typing import Any

import pytest

from app.domain.errors import CollectionNotFoundError


def test_a_collections_snapshot_does_not_answer_for_the_next_one(pairs: Any) -> None:
    pairs.fill("first", prefix="old-")
    pairs.train("first")
    assert all(item_id.startswith("old-") for item_id in pairs.ids("first"))
    pairs.services.catalogue.delete_collection("first")
    pairs.fill("second", prefix="new-")
    pairs.train("second")
    assert len(pairs.ids("second")) == 60
    assert all(item_id.startswith("new-") for item_id in pairs.ids("second"))


def test_a_collection_of_the_same_name_is_another_one(pairs: Any) -> None:
    pairs.fill("again", prefix="old-")
    pairs.train("again")
    pairs.search("again")
    first, _ = pairs.services.catalogue.collection("again")
    pairs.services.catalogue.delete_collection("again")
    with pytest.raises(CollectionNotFoundError):
        pairs.search("again")
    pairs.fill("again", prefix="new-")
    second, _ = pairs.services.catalogue.collection("again")
    assert second.id > first.id
    pairs.train("again")
    assert all(item_id.startswith("new-") for item_id in pairs.ids("again"))
