"""Items stand in galleries by all that is known of them, as of the write's own revision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from app.bootstrap import Services, build
from app.domain.entities import Item, Matrix
from app.domain.filters import ItemFilter
from app.domain.reports import TrainingParameters
from app.services.catalogue.preparation import ItemChange
from app.services.models.model_bundles import LoadedModel
from app.services.models.placement import find_pairs, place_items, project_items
from app.services.serving.search import Query
from app.services.serving.snapshot import Snapshot
from tests.app.closing import close
from tests.app.integration.conftest import CopyOf, Pairs
from tests.app.integration.searching import find

NAME = "shop"
COLOURS = ("red", "blue", "grey")
EVERYTHING = 200


def fill_shop(pairs: Pairs, n_partners: int = 60, method: str = "composite") -> None:
    """Train on pictures that show little of a label and a colour, and texts that say more of them."""
    rng = np.random.default_rng(0)
    pairs.make(NAME)
    items = []
    for number in range(n_partners):
        label, colour = number % 2, number % 3
        shown = np.concatenate([np.eye(2)[label], np.eye(3)[colour]])
        facts: dict[str, Any] = {"metadata": {"colour": COLOURS[colour]}, "pair_id": f"pair-{number}"}
        for side, strength in (("x", 1.0), ("z", 3.0)):
            row = np.concatenate([strength * shown + rng.standard_normal(5), rng.standard_normal(2)])
            items.append(pairs.item(side, f"{side}{number}", row, f"class {label}", **facts))
    pairs.services.catalogue.add_items(NAME, items)
    pairs.train(NAME, TrainingParameters(method=method))


def vectors_of(snapshot: Snapshot, modality: str) -> dict[str, Matrix]:
    """Return the vector of each item of a gallery."""
    return {
        item.id: vector
        for view in snapshot.galleries[modality].segments
        for item, vector in zip(view.live_items(), view.live_vectors(), strict=True)
    }


def check_galleries(services: Services) -> None:
    """Compare each gallery with one that is made of all items anew."""
    with services.snapshots.open(NAME) as (snapshot, work):
        assert snapshot.collection.revision == work.collections.get(NAME).revision
        changes = work.items.changes_since(snapshot.collection, 0)
        items = [change.item for change in changes if change.item is not None]
        model = snapshot.model
        sides = {
            name: project_items(model, name, [item for item in items if item.modality == name])[:2]
            for name in model.modality_names
        }
        pair_ids = find_pairs(model.modality_names, items)
        for name, expected in place_items(model, sides, pair_ids).items():
            actual = vectors_of(snapshot, name)
            ids = [item.id for item in sides[name][0]]
            assert sorted(actual) == sorted(ids)
            np.testing.assert_allclose([actual[item_id] for item_id in ids], expected, atol=1e-5)


def scores_of(services: Services, query: str) -> Mapping[str, float]:
    """Return the score of each x for an item of z."""
    (result,) = find(services, NAME, "z", "x", [Query(item_id=query)], EVERYTHING, 0, ItemFilter())
    return {hit.id: hit.score for hit in result.hits}


def item_of(services: Services, item_id: str) -> Item:
    with services.database.read() as work:
        return work.items.get(work.collections.get(NAME), item_id)


def test_a_label_or_value_that_changes_moves_its_item_in_the_same_revision(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_shop)
    services = pairs.services
    check_galleries(services)
    before = scores_of(services, "z0")
    written = services.catalogue.change_labels(NAME, "x1", ["class 0"])
    after = scores_of(services, "z0")
    assert after["x1"] > before["x1"] + 0.1
    assert {item_id for item_id in after if after[item_id] != pytest.approx(before[item_id])} == {"x1"}
    with services.snapshots.open(NAME) as (snapshot, _):
        assert snapshot.collection.revision == written.revision
    services.catalogue.change_items(NAME, [ItemChange(("x1",), metadata={"colour": "red"})])
    assert scores_of(services, "z0")["x1"] > after["x1"] + 0.1
    check_galleries(services)


def test_a_label_moves_its_item_where_classes_alone_were_learned(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_shop, method="semantic")
    services = pairs.services
    check_galleries(services)
    before = scores_of(services, "z0")
    services.catalogue.change_labels(NAME, "x1", ["class 0"])
    after = scores_of(services, "z0")
    assert after["x1"] > before["x1"] + 0.1
    assert {item_id for item_id in after if after[item_id] != pytest.approx(before[item_id])} == {"x1"}
    services.catalogue.change_labels(NAME, "x1", ["of no class"])
    with services.snapshots.open(NAME) as (snapshot, _):
        (alone,) = project_items(snapshot.model, "x", [item_of(services, "x1")])[1]
        np.testing.assert_allclose(vectors_of(snapshot, "x")["x1"], alone, atol=1e-6)


def test_a_partner_that_comes_changes_or_goes_moves_an_item_that_carries_nothing(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_shop)
    services, rng = pairs.services, np.random.default_rng(1)
    unclear = rng.standard_normal(7)

    def add(modality: str, item_id: str, row: Any, *labels: str, pair_id: str) -> None:
        item = pairs.item(modality, item_id, row, *labels, pair_id=pair_id)
        services.catalogue.add_items(NAME, [item], replace=True)

    add("x", "new", unclear, pair_id="new-pair")
    alone = scores_of(services, "z0")["new"]
    text = np.frombuffer(np.asarray(item_of(services, "z0").features).tobytes(), np.float32)
    add("z", "of-new", text, pair_id="new-pair")
    assert (with_partner := scores_of(services, "z0")["new"]) > alone + 0.1
    check_galleries(services)
    add("z", "of-new", text, "class 1", pair_id="new-pair")  # what it does not carry, its partner does
    assert scores_of(services, "z0")["new"] < with_partner - 0.1
    check_galleries(services)
    add("z", "of-new", text, pair_id="another-pair")
    assert scores_of(services, "z0")["new"] == pytest.approx(alone, abs=1e-5)
    check_galleries(services)
    add("z", "of-new", text, pair_id="new-pair")
    services.catalogue.delete_item(NAME, "of-new")
    assert scores_of(services, "z0")["new"] == pytest.approx(alone, abs=1e-5)
    check_galleries(services)


def test_galleries_are_those_of_all_that_is_stored_after_any_writes(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_shop, 40)
    services, rng = pairs.services, np.random.default_rng(2)
    names = [f"{side}{number}" for side in "xz" for number in range(40)]
    for step in range(40):
        item_id = names[rng.integers(len(names))]
        change = rng.integers(6)
        with services.database.read() as work:
            exists = item_id in work.items.existing(work.collections.get(NAME), [item_id])
        if change == 0 and exists:
            services.catalogue.delete_item(NAME, item_id)
        elif change == 1 and exists:
            services.catalogue.change_labels(NAME, item_id, [f"class {rng.integers(3)}"])
        elif change == 2 and exists:
            value = {"colour": COLOURS[rng.integers(3)]} if rng.integers(2) else {"colour": None}
            services.catalogue.change_items(NAME, [ItemChange((item_id,), metadata=value)])
        else:
            pair_id = None if change == 3 else f"pair-{rng.integers(20)}"
            labels = [f"class {rng.integers(2)}"] * int(rng.integers(2))
            row = 3 * rng.standard_normal(7)
            item = pairs.item(item_id[0], item_id, row, *labels, pair_id=pair_id)
            services.catalogue.add_items(NAME, [item], replace=True)
        if step % 8 == 7:
            with services.database.read() as work:
                services.snapshots.evict([work.collections.get(NAME).id])
        check_galleries(services)


def test_more_items_than_partners_are_have_no_say(copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.db.items.MOST_PARTNERS", 2)
    monkeypatch.setattr("app.services.models.placement.MOST_PARTNERS", 2)
    pairs, _ = copy_of(fill_shop)
    services, rng = pairs.services, np.random.default_rng(3)
    alone = scores_of(services, "z1")["x0"]
    for number in range(4):
        item = pairs.item("z", f"more-{number}", 3 * rng.standard_normal(7), pair_id="pair-0")
        services.catalogue.add_items(NAME, [item])
        check_galleries(services)
    away = [pairs.item("z", f"more-{number}", rng.standard_normal(7)) for number in range(2)]
    services.catalogue.add_items(NAME, away, replace=True)
    check_galleries(services)
    for number in (2, 3):
        services.catalogue.delete_item(NAME, f"more-{number}")
        check_galleries(services)
    assert scores_of(services, "z1")["x0"] == pytest.approx(alone, abs=1e-5)


def test_a_write_of_both_sides_makes_no_partners_of_a_group(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.db.items.MOST_PARTNERS", 2)
    monkeypatch.setattr("app.services.models.placement.MOST_PARTNERS", 2)
    pairs, _ = copy_of(fill_shop)
    rng = np.random.default_rng(6)
    for start, count in ((0, 4), (4, 1)):
        items = [
            pairs.item(side, f"{side}-of-group-{n}", 3 * rng.standard_normal(7), pair_id="group")
            for n in range(start, start + count)
            for side in "xz"
        ]
        pairs.services.catalogue.add_items(NAME, items)
        check_galleries(pairs.services)


def test_what_is_written_during_the_first_training_moves_partners(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = pairs.services.builder
    publish = builder._publish_patiently

    def write_first(*arguments: Any) -> tuple[str, str]:
        changed = pairs.item("z", "z1", np.full(7, 3.0), "class 1", pair_id="pair-1")
        pairs.services.catalogue.add_items(NAME, [changed], replace=True)
        pairs.services.catalogue.delete_item(NAME, "z3")
        return publish(*arguments)

    monkeypatch.setattr(builder, "_publish_patiently", write_first)
    fill_shop(pairs)
    check_galleries(pairs.services)


def test_items_of_pairs_are_placed_once_each_however_many_changed(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.serving.snapshot._ITEMS_PER_BATCH", 7)
    pairs, _ = copy_of(fill_shop)
    services, rng = pairs.services, np.random.default_rng(7)
    check_galleries(services)
    counts: Counter[str] = Counter()
    project = LoadedModel.project

    def count(model: LoadedModel, modality: str, features: Matrix) -> Matrix:
        counts[modality] += len(features)
        return project(model, modality, features)

    items = [
        pairs.item(side, f"{side}{n}", 3 * rng.standard_normal(7), pair_id=f"pair-{n // 3}")
        for side in "xz"
        for n in range(30)
    ]
    services.catalogue.add_items(NAME, items, replace=True)
    with monkeypatch.context() as counting:
        counting.setattr(LoadedModel, "project", count)
        scores_of(services, "z1")
    assert counts == {"x": 30, "z": 30}
    check_galleries(services)


def test_a_wrong_label_does_not_bury_an_item(copy_of: CopyOf) -> None:
    pairs, _ = copy_of(fill_shop)
    services = pairs.services
    clear = 8.0 * np.concatenate([np.eye(2)[0], np.eye(3)[0], np.zeros(2)])
    for name, label in (("right", "class 0"), ("wrong", "class 1"), ("none", None)):
        labels = () if label is None else (label,)
        services.catalogue.add_items(NAME, [pairs.item("x", name, clear, *labels)])
    scores = scores_of(services, "z0")
    assert scores["right"] >= scores["none"] > scores["wrong"]
    others = [scores[f"x{number}"] for number in range(1, 60, 2)]  # which have the other label, rightly
    assert scores["wrong"] > np.quantile(others, 0.9)


def test_an_import_in_parts_moves_partners_once_it_is_published(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.catalogue.imports._ITEMS_PER_PART", 7)
    pairs, _ = copy_of(fill_shop)
    services, rng = pairs.services, np.random.default_rng(4)
    before = scores_of(services, "z1")
    importing = services.imports.begin(NAME)
    changed = [f"{side}{n}" for n in range(40) for side in "zx" if n % 3 or side == "z"]
    items = [
        pairs.item(name[0], name, 3 * rng.standard_normal(7), pair_id=f"pair-{7 * int(name[1:]) % 60}")
        for name in changed
    ]
    importing.add(list(enumerate(items)))
    importing.store()
    importing.close()
    assert scores_of(services, "z1") != before
    check_galleries(services)
    close(services)
    again = build(services.settings)
    check_galleries(again)
    close(again)


def test_an_import_that_is_given_up_moves_nothing(copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.catalogue.imports._ITEMS_PER_PART", 7)
    pairs, _ = copy_of(fill_shop)
    services, rng = pairs.services, np.random.default_rng(5)
    before = {item_id: item_of(services, item_id) for item_id in ("x0", "x59", "z59")}
    scores = scores_of(services, "z1")
    importing = services.imports.begin(NAME)
    importing.add(
        [
            (n, pairs.item("z", f"z{n}", 3 * rng.standard_normal(7), pair_id=f"pair-{59 - n}"))
            for n in range(40)
        ]
    )

    def fail(*_: object) -> None:
        raise RuntimeError("the import is given up")

    with monkeypatch.context() as broken:
        broken.setattr(importing, "_publish", fail)
        with pytest.raises(RuntimeError, match="given up"):
            importing.store()
    importing.close()
    assert {item_id: item_of(services, item_id).revision for item_id in before} == {
        item_id: item.revision for item_id, item in before.items()
    }
    assert scores_of(services, "z1") == scores
    check_galleries(services)
