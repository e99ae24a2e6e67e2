"""What a search finds, and in which order."""

from typing import Any

import numpy as np
import pytest

from app.bootstrap import Services
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.filters import ItemFilter
from app.services.serving.search import Query
from solver.artifacts import load_projector
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from tests.app.integration.searching import NAME, bundle_of, fill, find, ids, search, train, vector_item
from tests.app.refused import refused

N_X, N_Z = 60, 50


def similarities(services: Services, queries: Any, gallery: Any) -> Any:
    """Return what the solver itself says, z against x."""
    projector, _ = load_projector(bundle_of(services))
    rows = np.asarray(projector.project_z(np.asarray(queries, np.float32)), np.float64)
    columns = np.asarray(projector.project_x(np.asarray(gallery, np.float32)), np.float64)
    return rows @ columns.T


def test_the_ranking_is_that_of_the_solver(lasting_trained: Services, vectors: SyntheticPairs) -> None:
    expected = similarities(lasting_trained, vectors.Z, vectors.X)
    assert np.ptp(expected) > 0.1
    queries = [Query(item_id=f"z{n:02d}") for n in range(N_Z)]
    results = find(lasting_trained, NAME, "z", "x", queries, N_X)
    for row, result in zip(expected, results, strict=True):
        assert [hit.rank for hit in result.hits] == list(range(1, N_X + 1))
        scores = np.array([hit.score for hit in result.hits])
        assert (np.diff(scores) <= 0).all()
        positions = [int(hit.id[1:]) for hit in result.hits]
        assert sorted(positions) == list(range(N_X))
        np.testing.assert_allclose(scores, row[positions], rtol=1e-5, atol=1e-5)
        probabilities = [hit.probability for hit in result.hits]
        np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-scores)), rtol=1e-9)


def test_a_query_of_a_batch_is_answered_as_it_is_alone(services: Services) -> None:
    # Wide enough that a product of many rows rounds differently from one of a single row.
    fill(services, make_low_rank_pairs(N_X, N_Z, n_features_x=200, n_features_z=300, random_state=1))
    train(services)
    queries = [Query(item_id=f"z{n:02d}") for n in range(N_Z)]
    together = find(services, NAME, "z", "x", queries, N_X)
    for query, result in zip(queries, together, strict=True):
        (alone,) = find(services, NAME, "z", "x", [query], N_X)
        assert [(hit.id, hit.score) for hit in alone.hits] == [(hit.id, hit.score) for hit in result.hits]


def test_both_directions_agree_and_find_the_class(lasting_trained: Services, vectors: SyntheticPairs) -> None:
    query = [Query(item_id="x00")]
    (result,) = find(lasting_trained, NAME, "x", "z", query, N_Z)
    expected = similarities(lasting_trained, vectors.Z, vectors.X[:1])[:, 0]
    positions = [int(hit.id[1:]) for hit in result.hits]
    np.testing.assert_allclose([hit.score for hit in result.hits], expected[positions], rtol=1e-5, atol=1e-5)
    assert result.hits[0].item.labels == (f"class {vectors.x_labels[0]}",)


def test_equal_scores_are_ordered_by_id(trained: Services, vectors: SyntheticPairs) -> None:
    best = int(ids(search(trained, vectors.Z[0], 1))[0][1:])
    names = ["zz", "aa", "x99", "mm", "b"]
    for name in names:
        trained.catalogue.add_items(NAME, [vector_item("x", name, vectors.X[best])])
    expected = sorted([*names, f"x{best:02d}"])
    assert ids(search(trained, vectors.Z[0], 6)) == expected
    # The tie stands across the end of the page.
    assert ids(search(trained, vectors.Z[0], 3)) == expected[:3]
    assert ids(search(trained, vectors.Z[0], 2, offset=3)) == expected[3:5]


@pytest.mark.parametrize(
    ("n_queries", "k", "offset", "field"),
    [
        (2, 1, 49_999, None),
        (2, 1, 50_000, "offset"),
        (2, 50_000, 1, "offset"),
        (11, 10_000, 0, "k"),
        (11, 10_000, 5, "k"),
        (10, 10_000, 0, None),
        (1, 10_000, 1_000_000, None),
    ],
)
def test_what_a_batch_passes_over_is_counted(
    lasting_trained: Services, vectors: SyntheticPairs, n_queries: int, k: int, offset: int, field: str | None
) -> None:
    queries = [Query(Content(vector=vectors.Z[0].tolist()))] * n_queries
    if field is None:
        results = find(lasting_trained, NAME, "z", "x", queries, k, offset, ItemFilter())
        assert [len(result.hits) for result in results] == [0 if offset else N_X] * n_queries
        return
    with pytest.raises(InvalidFieldError, match="at most 100000") as refused:
        find(lasting_trained, NAME, "z", "x", queries, k, offset, ItemFilter())
    assert refused.value.field == field


def test_pages_put_together_are_the_ranking(lasting_trained: Services, vectors: SyntheticPairs) -> None:
    everything = ids(search(lasting_trained, vectors.Z[3], 1000))
    assert len(everything) == N_X
    for size in (1, 7, 60, 100):
        pages = [search(lasting_trained, vectors.Z[3], size, offset) for offset in range(0, N_X, size)]
        assert [item_id for page in pages for item_id in ids(page)] == everything
        assert [hit.rank for page in pages for hit in page.hits] == list(range(1, N_X + 1))
        assert ids(search(lasting_trained, vectors.Z[3], size, offset=N_X)) == []


def test_writes_after_training_are_seen_by_the_next_search(
    trained: Services, vectors: SyntheticPairs
) -> None:
    query = vectors.Z[0]
    best = search(trained, query, 1)
    winner = best.hits[0]
    strong = 3.0 * vectors.X[int(winner.id[1:])]
    written = trained.catalogue.add_items(NAME, [vector_item("x", "new", strong, "brand new")])
    added = search(trained, query, N_X + 5)
    assert len(added.hits) == N_X + 1
    assert added.hits[0].id == "new"
    assert added.index_revision == written.revision
    expected = similarities(trained, [query], [strong])[0, 0]
    assert added.hits[0].score == pytest.approx(expected, rel=1e-5)
    assert ids(search(trained, query, 5, item_filter=ItemFilter.of(("brand new",)))) == ["new"]

    trained.catalogue.add_items(NAME, [vector_item("x", "new", -strong, "renamed")], replace=True)
    changed = search(trained, query, N_X + 5)
    assert changed.hits[-1].id == "new"
    assert len(changed.hits) == N_X + 1
    with refused("unknown-label", match="'brand new'") as unknown:
        search(trained, query, 5, item_filter=ItemFilter.of(("renamed", "brand new")))
    assert unknown.value.field == "filter.labels.1"

    for item_id in ("new", winner.id):
        trained.catalogue.delete_item(NAME, item_id)
    gone = search(trained, query, N_X + 5)
    assert set(ids(gone)) == {f"x{n:02d}" for n in range(N_X)} - {winner.id}
    with refused("item-not-found"):
        find(trained, NAME, "x", "z", [Query(item_id=winner.id)], 5)


def test_an_item_that_changes_sides_is_found_on_one(trained: Services, vectors: SyntheticPairs) -> None:
    trained.catalogue.add_items(NAME, [vector_item("z", "x05", vectors.Z[5])], replace=True)
    assert "x05" not in ids(search(trained, vectors.Z[0], 100))
    (result,) = find(trained, NAME, "x", "z", [Query(item_id="x00")], 100)
    assert "x05" in ids(result)


def test_bad_queries_are_refused(lasting_trained: Services, vectors: SyntheticPairs) -> None:
    with pytest.raises(InvalidFieldError, match="expected 6"):
        search(lasting_trained, vectors.Z[0][:3])
    with pytest.raises(InvalidFieldError, match="modality"):
        find(lasting_trained, NAME, "z", "x", [Query(item_id="x00")], 5)
    with refused("unknown-modality"):
        find(lasting_trained, NAME, "z", "y", [Query(item_id="z00")], 5)


@pytest.mark.parametrize(("side", "n_items"), [("x", N_X), ("z", N_Z)])
def test_items_of_one_modality_are_ranked_by_the_cosine_of_their_projections(
    lasting_trained: Services, vectors: SyntheticPairs, side: str, n_items: int
) -> None:
    projector, _ = load_projector(bundle_of(lasting_trained))
    project, rows = (projector.project_x, vectors.X) if side == "x" else (projector.project_z, vectors.Z)
    projected = np.asarray(project(np.asarray(rows, np.float32)), np.float64)
    directions = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    queries = [Query(item_id=f"{side}{n:02d}") for n in range(n_items)]
    results = find(lasting_trained, NAME, side, side, queries, n_items)
    for number, result in enumerate(results):
        positions = [int(hit.id[1:]) for hit in result.hits]
        assert sorted(positions) == [n for n in range(n_items) if n != number]
        scores = np.array([hit.score for hit in result.hits])
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, (directions @ directions[number])[positions], atol=1e-5)
        assert result.exact
        assert {hit.probability for hit in result.hits} == {None}


def test_a_page_of_one_modality_is_a_part_of_the_ranking(trained: Services, vectors: SyntheticPairs) -> None:
    def found(query: Query, k: int, offset: int = 0, item_filter: ItemFilter | None = None) -> list[str]:
        (result,) = find(trained, NAME, "z", "z", [query], k, offset, item_filter or ItemFilter())
        assert [hit.rank for hit in result.hits] == list(range(offset + 1, offset + 1 + len(result.hits)))
        return ids(result)

    stored, own = Query(item_id="z07"), Query(Content(vector=vectors.Z[7].tolist()))
    ranking = found(stored, N_Z)
    assert found(own, N_Z) == ["z07", *ranking]
    assert [*found(stored, 4), *found(stored, 4, 4), *found(stored, 4, 8)] == ranking[:12]
    assert found(stored, 5, N_Z - 1) == []
    odd = [item_id for item_id in ranking if int(item_id[1:]) % 2]
    assert found(stored, N_Z, 0, ItemFilter.of(metadata={"odd": (True,)})) == odd
    trained.catalogue.delete_item(NAME, ranking[0])
    trained.catalogue.add_items(NAME, [vector_item("z", "new", vectors.Z[7])])
    assert found(stored, N_Z) == ["new", *ranking[1:]]


def test_other_labels_leave_the_item_as_it_is(trained: Services, vectors: SyntheticPairs) -> None:
    item = trained.catalogue.item(NAME, "x05")
    before = search(trained, vectors.Z[0], N_X)
    written = trained.catalogue.change_labels(NAME, "x05", ("new", "newer"))
    assert trained.catalogue.change_labels(NAME, "x05", ("new", "newer")).revision == written.revision
    changed = trained.catalogue.item(NAME, "x05")
    assert changed.labels == ("new", "newer")
    assert (changed.metadata, changed.pair_id, changed.train) == (item.metadata, item.pair_id, item.train)
    after = search(trained, vectors.Z[0], N_X)
    assert ids(after) == ids(before)
    scores = [[hit.score for hit in result.hits] for result in (before, after)]
    np.testing.assert_allclose(*scores, rtol=1e-5)  # the row is projected alone this time
    assert ids(search(trained, vectors.Z[0], N_X, 0, ItemFilter.of(("newer",)))) == ["x05"]
    with refused("item-not-found"):
        trained.catalogue.change_labels(NAME, "nothing", ())
    with pytest.raises(InvalidFieldError, match="labels"):
        trained.catalogue.change_labels(NAME, "x05", ("",))
