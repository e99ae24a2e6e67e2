"""Counts of what filters can choose from: those of searches with the filter; and maps of both galleries."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import app.services.serving.overviews as overviews
from app.answers import Map
from app.api.schemas.filters import read_filter
from app.bootstrap import Services
from app.domain.entities import Modality
from app.domain.filters import ItemFilter, filter_of
from app.services.serving.search import Query
from solver.datasets import SyntheticPairs
from tests.app.integration.searching import NAME, fill, find, vector_item
from tests.app.refused import refused


def n_found(services: Services, item_filter: ItemFilter) -> int:
    (result,) = find(services, NAME, "z", "x", [Query(item_id="z00")], 1000, 0, item_filter)
    return len(result.hits)


def check_counts(services: Services) -> dict[str, Any]:
    counts = services.overviews.count_values(NAME, "x", 50)
    assert counts.items == n_found(services, ItemFilter())
    for entry in counts.labels:
        assert n_found(services, ItemFilter.of((entry.value,))) == entry.count
    metadata = {
        key: [(entry.value, entry.count) for entry in entries] for key, entries in counts.metadata.items()
    }
    for key, entries in metadata.items():
        for value, count in entries:
            assert n_found(services, ItemFilter.of(metadata={key: (value,)})) == count
    numbers = [entry.count for entry in counts.labels]
    assert numbers == sorted(numbers, reverse=True)
    return metadata


def test_counts_are_those_of_filtered_searches(trained: Services, vectors: SyntheticPairs) -> None:
    assert check_counts(trained) == {"odd": [(False, 30), (True, 30)]}
    facts: list[dict[str, Any]] = [
        {"colour": "red", "size": 1, "id": "a", "tags": ["x"]},
        {"colour": "red", "size": True, "id": "b", "tags": ["x"]},
        {"colour": "blue", "size": 1, "id": "c", "tags": ["x"]},
        {"colour": "red", "size": 1.0, "id": "d", "tags": ["x"], "odd": None},
        {"size": "1"},
        {"size": "TRUE"},
    ]
    items = [vector_item("x", f"new{n}", vectors.X[n], "new", metadata=fact) for n, fact in enumerate(facts)]
    trained.catalogue.add_items(NAME, items)
    for number in range(3):
        trained.catalogue.delete_item(NAME, f"x{number:02d}")
    found = check_counts(trained)
    assert found["colour"] == [("red", 3), ("blue", 1)]
    assert found["size"] == [(1, 4), (True, 2)]
    assert "id" not in found  # each value is another one
    assert "tags" not in found  # no filter can name a list
    trained.catalogue.delete_item(NAME, "x03")
    assert check_counts(trained)["odd"] == [(False, 28), (True, 28)]


def test_only_the_most_frequent_values_are_returned(lasting_trained: Services) -> None:
    everything, few = (
        lasting_trained.overviews.count_values(NAME, "x", 50),
        lasting_trained.overviews.count_values(NAME, "x", 1),
    )
    assert len(everything.labels) > 1
    assert few.labels == everything.labels[:1]
    assert len(few.metadata["odd"]) == 1


def test_what_has_no_items_cannot_be_counted_and_the_rest_needs_no_training(
    services: Services, vectors: SyntheticPairs
) -> None:
    services.catalogue.create("empty", [Modality(name, {"type": "vector"}) for name in "xz"])
    with refused("model-not-trained"):
        services.overviews.count_values("empty", "x", 10)
    fill(services, vectors)
    assert services.overviews.count_values(NAME, "x", 10).items == len(vectors.X)


def test_an_unknown_modality_is_named(lasting_trained: Services) -> None:
    with refused("unknown-modality"):
        lasting_trained.overviews.count_values(NAME, "y", 10)


def test_a_filter_that_nothing_passes_says_why_in_searches_and_listings(
    trained: Services, vectors: SyntheticPairs
) -> None:
    facts: list[dict[str, Any]] = [
        {"colour": colour, "size": size, "code": "A7", "tags": ["x"]}
        for colour, size in (("red", 1), ("blue", 2), ("red", 3))
    ]
    trained.catalogue.add_items(
        NAME,
        [vector_item("x", f"new{n}", vectors.X[n], "new", metadata=fact) for n, fact in enumerate(facts)],
    )
    reasons = {
        "color=red": "no item has the key 'color' (did you mean 'colour'?); keys are 'odd', 'colour', ",
        "colour=Red": "no item has under 'colour' 'Red' (did you mean 'red'?); values are 'red' and 'blue'",
        "size=XL": "no item has under 'size' 'XL'; the values, which are numbers, are 1, 2 and 3",
        "code=7": "no item has under 'code' 7; the values, which are texts, are 'A7'",
        "color<5": "no item has the key 'color' (did you mean 'colour'?); keys are 'odd', 'colour', ",
        "size>3": "no item has a value under 'size' that meets 'gt' 3; values are 1, 2 and 3",
        "tags=x": "the values of 'tags' are lists or objects, of which 'contains' compares elements of lists",
    }
    for condition, reason in reasons.items():
        item_filter = read_filter(filter_of((), [condition]), "where")
        (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 5, 0, item_filter)
        (listed,) = trained.catalogue.page(NAME, "x", 0, 5, None, item_filter).notices
        (notice,) = result.notices
        assert notice.code == listed.code == "filter-matches-nothing"
        assert notice.message.startswith(reason)
        assert listed.message.startswith(reason)
    (notice,) = trained.catalogue.page(NAME, "x", 0, 5, None, ItemFilter.of(None, {"colour": ()})).notices
    assert notice.message.startswith("no item has under 'colour' any value of an empty list; the values, ")
    either = read_filter({"any": [{"metadata": {"color": 1}}, {"metadata": {"color": 2}}]}, "filter")
    (notice,) = trained.catalogue.page(NAME, "x", 0, 5, None, either).notices
    assert notice.message.count("no item has the key 'color'") == 1
    both = read_filter(filter_of(("new",), ["odd=true"]), "where")
    (notice,) = trained.catalogue.page(NAME, "x", 0, 5, None, both).notices
    assert notice.message == "each condition is met by some item, but no item meets all of them"
    rows = trained.catalogue.page(NAME, "x", 0, 500).rows
    nothing = read_filter(
        {"labels": {"none": sorted({label for _, item in rows for label in item.labels})}}, "filter"
    )
    (notice,) = trained.catalogue.page(NAME, "x", 0, 5, None, nothing).notices
    assert notice.message == "each condition is met by some item, but no item meets all of them"
    (notice,) = trained.catalogue.page(NAME, None, 0, 5, None, ItemFilter.of(("New",))).notices
    assert notice.message.startswith("no item has the label 'New' (did you mean 'new'?); labels are ")
    trained.catalogue.add_items(NAME, [vector_item("x", "boat", vectors.X[0], "sailing boats")])
    (notice,) = trained.catalogue.page(NAME, None, 0, 5, None, ItemFilter.of(("Boats",))).notices
    assert notice.message.startswith("no item has the label 'Boats' (did you mean 'sailing boats'?)")
    # Of what passes, of a later page and of an empty collection there is nothing to say.
    assert trained.catalogue.page(NAME, "x", 0, 5, None, ItemFilter.of(("new",))).notices == ()
    assert trained.catalogue.page(NAME, "x", 10**6, 5, None, both).notices == ()
    (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 5, 5, ItemFilter.of(("new",)))
    assert (result.hits, result.notices) == ((), ())


def test_what_a_filter_leaves_out_in_vain_is_named_in_searches_and_listings(
    trained: Services, vectors: SyntheticPairs
) -> None:
    new = [vector_item("x", f"new{n}", vectors.X[n], "new", metadata={"price": n + 0.5}) for n in range(3)]
    trained.catalogue.add_items(NAME, new)
    reasons: dict[str, Any] = {
        "label!=x": "no item has the key 'label'; keys are 'odd' and 'price'",
        "price!=24,99": "no item has under 'price' '24,99' (did you mean 24.99 for a number?); the values, ",
        "price not in 9,50": "no item has under 'price' 9 and 50; values are 0.5, 1.5 and 2.5",
        "price!=1.5": None,
        "price not in 1.5,9": None,
        "price!=null": None,
        "label=x": "no item has the key 'label'",
        "price=2,5": "no item has under 'price' '2,5' (did you mean 2.5 for a number?)",
    }
    for condition, reason in reasons.items():
        item_filter = read_filter(filter_of((), [condition]), "where")
        (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 5, 0, item_filter)
        listed = trained.catalogue.page(NAME, "x", 0, 500, None, item_filter)
        for notices, rows in ((result.notices, result.hits), (listed.notices, listed.rows)):
            code, start = (
                ("excludes", "a part of the filter leaves nothing out: ") if rows else ("matches", "")
            )
            messages = [
                (notice.code, notice.message.startswith(start + (reason or ""))) for notice in notices
            ]
            assert messages == ([] if reason is None else [(f"filter-{code}-nothing", True)]), condition
            assert bool(rows) == ("=" not in condition or "!=" in condition)
    label = read_filter({"labels": {"none": ["New"]}}, "filter")
    assert trained.catalogue.page(NAME, None, 0, 5, None, label).notices == ()  # of a page that is full
    (notice,) = trained.catalogue.page(NAME, None, 0, 500, None, label).notices
    assert notice.message.startswith(
        "a part of the filter leaves nothing out: no item has the label 'New' (did you mean 'new'?)"
    )
    # Only items are looked at, and only on the first page.
    others = read_filter({"not": {"any": [{"ids": ["none"]}, {"modality": "z"}, {"pair_id": "p"}]}}, "filter")
    (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 5, 0, others)
    assert (len(result.hits), result.notices) == (5, ())
    (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 5, 5, label)
    assert (len(result.hits), result.notices) == (5, ())


def test_searches_and_counts_take_what_only_rows_know(trained: Services, vectors: SyntheticPairs) -> None:
    facts: list[dict[str, Any]] = [
        {"price": 5},
        {"price": 7.5, "colour": "red"},
        {"price": 9, "colour": "blue"},
    ]
    new = [
        vector_item("x", f"new{n}", vectors.X[n], "new", metadata=fact, pair_id=f"p{n % 2}")
        for n, fact in enumerate(facts)
    ]
    trained.catalogue.add_items(NAME, new)

    def find_ids(wanted: dict[str, Any]) -> list[str]:
        item_filter = read_filter(wanted, "filter")
        (result,) = find(trained, NAME, "z", "x", [Query(item_id="z00")], 1000, 0, item_filter)
        counts = trained.overviews.count_values(NAME, "x", 50, item_filter=item_filter)
        listed = trained.catalogue.page(NAME, "x", 0, 1000, None, item_filter)
        assert counts.items == len(result.hits) == len(listed.rows)
        return sorted(hit.id for hit in result.hits)

    assert find_ids({"pair_id": "p0"}) == ["new0", "new2"]
    assert find_ids({"pair_id": "none"}) == []
    assert find_ids({"not": {"pair_id": "p0"}, "labels": ["new"]}) == ["new1"]
    assert find_ids({"modality": "x", "ids": ["new1", "x00", "z00"]}) == ["new1", "x00"]
    assert find_ids({"modality": "z"}) == []
    assert find_ids({"metadata": {"price": {"gt": 5}}, "not": {"metadata": {"colour": "red"}}}) == ["new2"]
    cheap = read_filter({"metadata": {"price": {"lt": 8}}, "labels": ["new"]}, "filter")
    counts = trained.overviews.count_values(NAME, "x", 50, item_filter=cheap)
    assert [(entry.value, entry.count) for entry in counts.labels] == [("new", 2)]
    assert counts.ranges["price"] == (5, 9)
    with refused("unknown-label", match="'newer'") as unknown:
        find_ids({"labels": ["newer"]})
    assert unknown.value.field == "filter.labels.0"
    assert find_ids({"labels": {"all": ["new"], "none": ["newer"]}}) == ["new0", "new1", "new2"]


def coordinates(drawn: Map, modality: str) -> dict[str, tuple[float, float]]:
    return {point.id: (point.x, point.y) for point in drawn.points[modality]}


def centre(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    rows = rows - rows.mean(axis=0)
    spread = float(np.sqrt(np.mean(np.sum(rows**2, axis=1))))
    return rows / spread


@pytest.mark.parametrize("most_dense", [0, 200])
def test_coordinates_are_those_of_the_first_principal_components(
    trained: Services, most_dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overviews, "_MOST_DENSE", most_dense)
    drawn = trained.overviews.draw_map(NAME, 1000)
    with trained.snapshots.open(NAME) as (snapshot, _):
        projections = {
            name: {
                item.id: row
                for view in gallery.segments
                for item, row in zip(view.live_items(), view.segment.index.vectors, strict=True)
            }
            for name, gallery in snapshot.galleries.items()
        }
        assert drawn.model_version == snapshot.model.version
    rows = np.concatenate([centre(np.asarray(list(projections[name].values()), float)) for name in "xz"])
    covariance = rows.T @ rows
    lengths, directions = np.linalg.eigh(covariance)
    expected = rows @ directions[:, :-3:-1]
    shown = np.asarray([coordinates(drawn, name)[own] for name in "xz" for own in projections[name]])
    assert np.abs(shown) == pytest.approx(np.abs(expected), abs=1e-6)
    assert drawn.shares == pytest.approx(tuple(lengths[:-3:-1] / lengths.sum()))


def test_a_map_has_live_items_evenly_spaced_and_is_kept(trained: Services, vectors: SyntheticPairs) -> None:
    before = trained.overviews.draw_map(NAME, 10)
    assert trained.overviews.draw_map(NAME, 10) is before
    assert {name: len(points) for name, points in before.points.items()} == {"x": 10, "z": 10}
    first = next(iter(coordinates(before, "x")))
    trained.catalogue.delete_item(NAME, first)
    trained.catalogue.add_items(NAME, [vector_item("x", "new", vectors.X[0], "new")])
    after = trained.overviews.draw_map(NAME, 10)
    assert after.index_revision == before.index_revision + 2
    assert first not in coordinates(after, "x")
    assert "new" in coordinates(trained.overviews.draw_map(NAME, 1000), "x")
    for modality in "xz":
        for own in coordinates(trained.overviews.draw_map(NAME, 1000), modality):
            trained.catalogue.delete_item(NAME, own)
    assert trained.overviews.draw_map(NAME, 10).points == {"x": [], "z": []}


def test_an_untrained_collection_has_no_map(services: Services, vectors: SyntheticPairs) -> None:
    fill(services, vectors)
    with refused("model-not-trained"):
        services.overviews.draw_map(NAME, 10)
