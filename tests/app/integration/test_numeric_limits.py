import threading
from hashlib import sha256
from typing import Any

import faiss
import numpy as np
import pytest

import app.index
from app.bootstrap import build
from app.domain.errors import InvalidFieldError
from app.domain.ports import GalleryIndex
from app.domain.reports import LeftOut, TrainingParameters
from app.index import ExactIndex, build_candidates
from app.services.health import Readiness
from tests.app.closing import close
from tests.app.integration.conftest import CopyOf, train_all
from tests.app.integration.loading import current, load, saved_galleries


def test_a_number_that_would_overflow_is_refused_by_name(trained_pairs: Any) -> None:
    before, _ = trained_pairs.services.catalogue.collection("a")
    good = trained_pairs.item("x", "good", [1.0] * 8)
    for value in (3e38, -3e38, 1e13, np.inf, np.nan):
        bad = trained_pairs.item("x", "big", [value] + [0.0] * 7)
        with pytest.raises(InvalidFieldError) as refused:
            trained_pairs.services.catalogue.add_items("a", [good, bad])
        assert refused.value.field.startswith("items.1")
        with pytest.raises(InvalidFieldError, match="vector"):
            trained_pairs.search("a", row=[value] * 6)
    assert trained_pairs.services.catalogue.collection("a")[0] == before
    assert len(trained_pairs.ids("a")) == 60


def test_the_largest_numbers_allowed_disturb_nothing(trained_pairs: Any) -> None:
    largest = [1e12, -1e12] * 4
    trained_pairs.services.catalogue.add_items("a", [trained_pairs.item("x", "big", largest, "class 0")])
    result = trained_pairs.search("a")
    assert len({hit.id for hit in result.hits}) == 61
    assert np.isfinite([hit.score for hit in result.hits]).all()
    assert np.isfinite([hit.score for hit in trained_pairs.search("a", row=[1e12, -1e12] * 3).hits]).all()
    for scaling in (None, "none", "center", "standard", "l2"):
        version = trained_pairs.train("a", TrainingParameters(alpha=1e-3, scaling=scaling, max_iter=3))
        trained_pairs.services.versions.activate("a", version, "test")
        assert len(set(trained_pairs.ids("a"))) == 61


def test_what_a_model_cannot_place_is_left_out_and_refused(pairs: Any) -> None:
    pairs.make("a")
    rng = np.random.default_rng(0)
    for side in "xz":
        # A feature that hardly varies: scaled to unit variance, a usual value is beyond all measure.
        rows = np.column_stack([rng.normal(size=24), 1e-12 * rng.normal(size=24)])
        rows[:, 0] += np.arange(24) % 2
        items = [pairs.item(side, f"{side}{n:02d}", row, str(n % 2)) for n, row in enumerate(rows)]
        pairs.services.catalogue.add_items("a", items)
    pairs.train("a", TrainingParameters(alpha=1e-4, scaling="standard", max_iter=20))
    assert len(pairs.search("a", row=[1.0, 0.0]).hits) == 24
    pairs.services.catalogue.add_items("a", [pairs.item("x", "far", [0.0, 1e12])])
    hits = pairs.search("a", row=[1.0, 0.0]).hits
    assert "far" not in [hit.id for hit in hits]
    assert len({hit.id for hit in hits}) == 24
    with pytest.raises(InvalidFieldError, match="too far"):
        pairs.search("a", row=[0.0, 1e12])
    pairs.services.catalogue.add_items("a", [pairs.item("x", "far", [1.0, 0.0])], replace=True)
    assert len(pairs.search("a", row=[1.0, 0.0]).hits) == 25


TINY = 1e-30
"""Of a feature that hardly varies: scaled to unit variance, an ordinary number passes single precision."""


def fill_with_a_tiny_feature(pairs: Any, n_items: int = 60, tiny: float = TINY) -> None:
    pairs.make("a")
    rng = np.random.default_rng(0)
    for side in "xz":
        rows = np.column_stack([rng.normal(size=n_items), tiny * rng.normal(size=n_items)])
        rows[:, 0] += 3.0 * (np.arange(n_items) % 2)
        items = [pairs.item(side, f"{side}{n:02d}", row, str(n % 2)) for n, row in enumerate(rows)]
        pairs.services.catalogue.add_items("a", items)


@pytest.mark.parametrize("method", ["lrbs", "semantic"])
def test_an_item_beyond_single_precision_is_stored_told_and_not_ranked(
    pairs: Any, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill_with_a_tiny_feature(pairs)
    scaling = "standard" if method == "lrbs" else None
    pairs.train("a", TrainingParameters(method=method, scaling=scaling, max_iter=20))
    client = pairs.client()
    search = "/v1/collections/a/search/z-to-x"
    assert client.post(search, json={"vector": [1.0, 0.0]}).json()["notices"] == []
    assert client.get("/readyz").status_code == 200
    for modality in "xz":
        item = {"id": f"far-{modality}", "modality": modality, "vector": [0.0, 1e12]}
        assert client.post("/v1/collections/a/items", json={"items": [item]}).status_code == 201

    for _ in range(2):
        answer = client.post(search, json={"vector": [1.0, 0.0], "k": 100})
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["hits"]) == 60
        (notice,) = answer.json()["notices"]
        assert notice["code"] == "not-ranked"
        assert "far-x" in notice["message"]
    assert sum("far-x" in record.getMessage() for record in caplog.records) == 1

    for body, field in (({"vector": [0.0, 1e12]}, "vector"), ({"item_id": "far-z"}, "item_id")):
        refused = client.post(search, json=body)
        assert (refused.status_code, refused.json()["field"]) == (422, field)
        refused = client.post(f"{search}/batch", json={"queries": [{"vector": [1.0, 0.0]}, body]})
        assert (refused.status_code, refused.json()["field"]) == (422, f"queries.1.{field}")

    # What starts anew reads the bundle, or a saved gallery, and then the item.
    for _ in range(2):
        begun = build(pairs.services.settings)
        assert load(begun) == Readiness(True)
        assert current(begun.snapshots, "a").galleries["x"].unranked == {"far-x"}
        saved_galleries(begun).save(current(begun.snapshots, "a"), lambda: None)
        close(begun)

    assert client.get("/readyz").status_code == 200
    assert client.get("/metrics").status_code == 200
    assert client.delete("/v1/collections/a/items/far-x").status_code in (200, 204)
    assert client.post(search, json={"vector": [1.0, 0.0]}).json()["notices"] == []


@pytest.mark.parametrize("method", ["lrbs", "semantic"])
def test_a_vector_beyond_all_proportion_is_not_learned_from_and_told(pairs: Any, method: str) -> None:
    pairs.fill("a")
    pairs.fill("b")
    for label in ("class 0", "class 1"):
        far = pairs.item("x", f"far {label[-1]}".replace(" ", "-"), [1e12, -1e12] * 4, label)
        pairs.services.catalogue.add_items("b", [far])
    scaling = "center" if method == "lrbs" else None
    versions = {}
    for name in "ab":
        pairs.train(name, TrainingParameters(method=method, scaling=scaling, max_iter=50))
        versions[name] = pairs.services.versions.model(name, 1).report
    assert versions["a"].data.not_learned_from == {}
    assert versions["b"].data.not_learned_from == {"x": LeftOut(2, ("far-0", "far-1"))}
    assert versions["b"].held_out == versions["a"].held_out
    scores = {name: {hit.id: hit.score for hit in pairs.search(name).hits} for name in "ab"}
    assert {item_id: scores["b"][item_id] for item_id in scores["a"]} == scores["a"]


def test_held_out_items_beyond_the_range_are_left_out_of_the_figures(pairs: Any) -> None:
    fill_with_a_tiny_feature(pairs, tiny=1e-37)
    # Ids decide who is held out: those whose digests come first.
    held_out = sorted(
        (f"far{n}" for n in range(1000)), key=lambda name: sha256(f"0:{name}".encode()).digest()
    )
    far = [pairs.item("x", name, [0.0, 1e3], str(n)) for n, name in enumerate(held_out[:2])]
    pairs.services.catalogue.add_items("a", far)
    pairs.train("a", TrainingParameters(method="lrbs", scaling="standard", max_iter=20, seed=0))
    held_out = pairs.services.versions.model("a", 1).report.held_out
    assert held_out.items == {"x": 10, "z": 12}
    assert all(np.isfinite(quality.map) for quality in held_out.directions.values())


def test_one_collection_that_cannot_be_loaded_does_not_take_readiness_away(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(train_all, "ab")
    with pairs.services.database.engine.begin() as connection:
        # No release wrote such a row: an item of a vector modality without its features.
        connection.exec_driver_sql(
            "UPDATE items SET features = NULL, revision = 1000 WHERE item_id = 'x00' AND"
            " collection_id = (SELECT id FROM collections WHERE name = 'a')"
        )
        connection.exec_driver_sql("UPDATE collections SET revision = 1000 WHERE name = 'a'")
    readiness = load(pairs.services)
    assert readiness.is_ready
    assert "a: " in (readiness.reason or "")
    assert "b: " not in (readiness.reason or "")
    assert pairs.client().get("/readyz").status_code == 200
    assert len(pairs.ids("b")) == 60


def test_parameters_that_json_cannot_say_are_refused_by_name(pairs: Any) -> None:
    pairs.fill("a")
    for name, value in (("alpha", 1e-38), ("alpha", np.inf), ("alpha", np.nan), ("tol", np.nan)):
        with pytest.raises(InvalidFieldError) as refused:
            pairs.services.training.request("a", TrainingParameters(**{name: value}))
        assert refused.value.field == name
    assert pairs.services.training.jobs("a", 10) == []


ROWS = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)


@pytest.mark.parametrize(
    ("index", "owner", "part"),
    [
        (ExactIndex(ROWS), ExactIndex, "_search_flat"),
        (ExactIndex(ROWS), app.index, "_rank"),
        (next(build_candidates(ROWS, ROWS)).with_probes(2), app.index, "_rank"),
    ],
    ids=["exact", "product", "lists"],
)
def test_a_query_takes_one_thread_of_openmp_in_any_thread(
    monkeypatch: pytest.MonkeyPatch, index: GalleryIndex, owner: Any, part: str
) -> None:
    seen: list[int] = []
    rank = getattr(owner, part)
    if owner is app.index:
        monkeypatch.setattr(app.index, "_NUMBERS_WORTH_A_PRODUCT", 0)

    def watched(*arguments: Any) -> Any:
        seen.append(faiss.omp_get_max_threads())
        return rank(*arguments)

    monkeypatch.setattr(owner, part, watched)

    def search() -> None:
        faiss.omp_set_num_threads(4)
        index.search(ROWS[0], 1, None)
        index.search_many(ROWS[:3], [1, 1, 1], None)
        seen.append(faiss.omp_get_max_threads())

    thread = threading.Thread(target=search)
    thread.start()
    thread.join()
    *during, after = seen
    assert set(during) == {1}
    assert after == 4
