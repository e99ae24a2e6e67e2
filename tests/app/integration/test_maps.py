"""Maps: principal components of both galleries, of live items, the same each time."""

import numpy as np
import numpy.typing as npt
import pytest

import app.services.serving.overviews as overviews
from app.answers import Map
from app.bootstrap import Services
from solver.datasets import SyntheticPairs
from tests.app.integration.searching import NAME, fill, vector_item
from tests.app.refused import refused


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
