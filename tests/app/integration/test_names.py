"""Names of labels and values move items: which ones do, and what happens while they cannot be encoded."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import update

from app.bootstrap import build
from app.db.models import ModelRow
from app.domain.entities import Content, Matrix, Modality
from app.domain.filters import ItemFilter
from app.domain.reports import TrainingParameters
from app.services.catalogue.service import NewItem
from app.services.models import placement
from app.services.serving import snapshot, snapshot_loader
from app.services.serving.search import Query
from app.services.serving.snapshot import MissedNames, Snapshot
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.searching import find
from tests.app.integration.test_placement import NAME, check_galleries, vectors_of
from tests.app.onnx_files import WORDS, wait_for_looks, word_model, write_tokenizer
from tests.app.waiting import wait_for

KINDS, N = WORDS[4:], 40


def picture(number: int, *labels: str, **metadata: str) -> NewItem:
    row = np.eye(4)[number % 4] + 0.5 * np.random.default_rng(number).standard_normal(4)
    pair = {} if number >= N else {"pair_id": f"pair-{number}"}
    return Pairs.item("picture", f"p{number}", row, *labels, metadata=metadata, **pair)


def fill(pairs: Pairs, encoder: dict[str, Any]) -> None:
    """Store pictures with a note of their own each, and texts of one word."""
    modalities = [Modality("picture", {"type": "vector"}), Modality("text", encoder)]
    pairs.services.catalogue.create(NAME, modalities)
    items: list[NewItem] = []
    for number in range(N):
        kind = KINDS[number % 4]
        text = NewItem("text", Content(text=kind), f"t{number}", (kind,), pair_id=f"pair-{number}")
        items += [picture(number, kind, note=f"blue note{number}", maker=f"maker {number % 3}"), text]
    pairs.services.catalogue.add_items(NAME, items)


def served(pairs: Pairs) -> Snapshot:
    with pairs.services.snapshots.open(NAME) as (opened, _):
        return opened


def evict(pairs: Pairs) -> None:
    pairs.services.snapshots.evict([pairs.services.catalogue.collection(NAME)[0].id])


def train(pairs: Pairs) -> None:
    pairs.train(NAME, TrainingParameters(method="composite"))


def test_names_are_encoded_once_and_what_differs_between_most_items_is_none(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "MOST_NAMES", N - 1)
    monkeypatch.setattr(placement, "_ITEMS_AT_ONCE", 7)
    monkeypatch.setattr(snapshot_loader, "_MOST_FITTED_AT_ONCE", 0)
    fill(pairs, {"type": "tfidf"})
    encoded: Counter[str | None] = Counter()
    encode = placement.encode_names

    def count(encoder: Any, contents: Sequence[Content], step: Any) -> Any:
        encoded.update(content.text for content in contents)
        return encode(encoder, contents, step)

    monkeypatch.setattr(placement, "encode_names", count)
    check_galleries(pairs.services)
    assert encoded == dict.fromkeys([*KINDS, "maker 0", "maker 1", "maker 2"], 1)
    for label in ("shoe", "bag"):
        pairs.services.catalogue.add_items(NAME, [picture(N, label, note="red note")], replace=True)
        check_galleries(pairs.services)
        evict(pairs)
        check_galleries(pairs.services)
        assert served(pairs).model.names.without == ["note"]
        if label == "shoe":
            train(pairs)
            monkeypatch.setattr(placement, "_NUMBERS_KEPT", 1)
    assert not any("note" in (text or "") for text in encoded)
    assert len(served(pairs).model.names.projected["text"]) == 1


def test_of_two_modalities_of_texts_a_name_counts_as_a_text_of_the_other(pairs: Pairs) -> None:
    pairs.services.catalogue.create(NAME, [Modality(name, {"type": "tfidf"}) for name in ("title", "story")])
    items = [
        ("title", "t0", "red shoe"),
        ("title", "t1", "blue"),
        ("story", "s0", "bag"),
        ("story", "s1", "cap"),
    ]
    for name, item_id, text in items:
        labels = ("velvet",) if item_id.endswith("0") else ()
        pairs.services.catalogue.add_items(NAME, [NewItem(name, Content(text=text), item_id, labels)])
    with pairs.client() as client:
        for source, target, best in (("title", "story", "s0"), ("story", "title", "t0")):
            url = f"/v1/collections/{NAME}/search/{source}-to-{target}"
            first = client.post(url, json={"text": "velvet"}).json()["hits"][0]
            assert first["id"] == best
            assert first["score"] > 0.5


def test_versions_of_before_names_moved_items_place_new_ones_as_the_others(pairs: Pairs) -> None:
    fill(pairs, {"type": "tfidf"})
    train(pairs)
    unclear = picture(N, "red")

    def place() -> tuple[Matrix, Matrix]:
        """Return where a picture of red stands, and where it would by its content and values alone."""
        pairs.services.catalogue.add_items(NAME, [unclear], replace=True)
        model, vector = served(pairs).model, vectors_of(served(pairs), "picture")[f"p{N}"]
        content = model.project("picture", np.float32([unclear.content.vector or []]))
        values = {facet: [("red",) if facet == "label" else ()] for facet in model.projector.facets}
        (without,) = model.projector.place(content, np.full_like(content, np.nan), values)
        return vector, without

    vector, without = place()
    assert np.abs(vector - without).max() > 0.1
    version = pairs.services.versions.model(NAME, 1)
    folder = pairs.services.settings.data_dir / "models" / version.bundle
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "names.json").unlink()
    del manifest["files"]["names.json"]
    text = json.dumps(manifest)
    (folder / "manifest.json").write_text(text)
    with pairs.services.database.engine.begin() as connection:
        connection.execute(update(ModelRow).values(manifest_hash=hashlib.sha256(text.encode()).hexdigest()))
    evict(pairs)
    vector, without = place()
    np.testing.assert_allclose(vector, without, atol=1e-6)


@pytest.mark.usefixtures("onnxruntime")
def test_names_that_a_training_and_writes_missed_move_items_once_the_encoder_is_back(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, tokenizer = tmp_path / "texts.onnx", tmp_path / "tokenizer.json"
    path.write_bytes(word_model(np.eye(len(WORDS)).tolist()))
    write_tokenizer(tokenizer)
    fill(pairs, {"type": "onnx-text", "path": str(path), "tokenizer_path": str(tokenizer)})
    path.rename(tmp_path / "away")
    begun = Pairs(build(pairs.services.settings), pairs.data)
    monkeypatch.setattr(MissedNames, "may_retry", property(lambda missed: missed.wait < 500.0))
    train(begun)
    begun.services.catalogue.add_items(NAME, [picture(N, "red")])
    before = vectors_of(served(begun), "picture")

    def missed() -> MissedNames | None:
        return served(begun).missed

    wait_for(lambda: (of := missed()) is not None and of.wait > snapshot.RECHECK_SECONDS)
    np.testing.assert_array_equal(vectors_of(served(begun), "picture")["p0"], before["p0"])
    wait_for_looks()
    (tmp_path / "away").rename(path)
    wait_for(lambda: missed() is None)
    check_galleries(begun.services)
    after = vectors_of(served(begun), "picture")
    for item_id in ("p0", f"p{N}"):
        assert np.abs(after[item_id] - before[item_id]).max() > 0.1
    close(begun.services)


def test_names_that_are_missed_again_and_again_are_tried_less_and_less_often() -> None:
    missed, waits = MissedNames(3), []
    for _ in range(9):
        waits.append(missed.wait)
        missed = missed.try_again()
    assert waits[:3] == [60.0, 120.0, 240.0]
    assert waits[-1] == 3600.0
    assert missed.since == 3
    assert not missed.may_retry
    assert MissedNames(3, tried_at=missed.tried_at - 61.0).may_retry


def test_names_of_labels_alone_find_after_a_training_what_words_found_before(pairs: Pairs) -> None:
    words = {
        "Bags": ("Benetton Women Solid {} Handbags", "Murcia Women Casual {} Handbag"),
        "Shoes": ("Puma Men Casual {} Shoes", "Skechers Women {} Sports Shoes"),
        "Watches": ("Fastrack Men Broad Strap {} Watches", "ADIDAS Unisex Small Dial {} Watch"),
        "Topwear": ("Lee Men Check {} Shirts", "W Women Printed {} Kurtas"),
    }
    colours = ("Black", "Blue", "Red", "White", "Green", "Grey")
    modalities = [Modality("picture", {"type": "vector"}), Modality("text", {"type": "tfidf"})]
    pairs.services.catalogue.create(NAME, modalities)
    items = []
    for number, (label, templates) in enumerate(words.items()):
        for n in range(12):
            text = templates[n % 2].format(colours[n // 2])
            items.append(NewItem("text", Content(text=text), f"{label}-{n}", (label,)))
            row = np.eye(4)[number] + 0.3 * np.random.default_rng(12 * number + n).standard_normal(4)
            items.append(Pairs.item("picture", f"{label}-picture-{n}", row, label))
    pairs.services.catalogue.add_items(NAME, items)

    def found() -> dict[str, int]:
        """Return how many of the first twelve pictures are of bags."""
        queries = ["bags", "bag", "black bag"]
        asked = [Query(Content(text=text)) for text in queries]
        results = find(pairs.services, NAME, "text", "picture", asked, 12)
        firsts = ([hit.id.startswith("Bags") for hit in result.hits] for result in results)
        return {text: sum(first) for text, first in zip(queries, firsts, strict=True)}

    before = found()
    assert before == dict.fromkeys(before, 12)
    pairs.train(NAME, TrainingParameters())
    assert found() == before, pairs.services.versions.models(NAME)[0].report.selection


def test_columns_of_which_nothing_is_learned_leave_probabilities_as_they_are(pairs: Pairs) -> None:
    colours, kinds = (
        ("red", "blue", "grey", "black", "white"),
        ("bowl", "lamp", "vase", "clock", "mug", "tray"),
    )
    shown = [(colour, kind) for colour in colours for kind in kinds]
    probabilities = {}
    for name in ("plain", "with-ids"):
        rng = np.random.default_rng(0)
        encoders, items = {"picture": {"type": "vector"}, "text": {"type": "tfidf"}}, []
        pairs.services.catalogue.create(name, [Modality(*modality) for modality in encoders.items()])
        for number, (colour, kind) in enumerate(shown):
            facts: dict[str, Any] = {"colour": colour, "kind": kind}
            size, place = rng.choice(["S", "M", "L"]), rng.choice(["Oslo", "Lund", "Vasa"])
            if name == "with-ids":
                facts |= {"size": f"size {size}", "file": f"scan_{4105 + number}.tif"}
            row = np.concatenate([np.array(colours) == colour, np.array(kinds) == kind])
            row = row + 0.2 * rng.standard_normal(len(row))
            picture = Pairs.item("picture", f"p{number}", row, metadata=facts, pair_id=str(number))
            content = Content(text=f"{place}, nice present")
            text = NewItem("text", content, f"t{number}", metadata=facts, pair_id=str(number))
            items += [picture, text]
        pairs.services.catalogue.add_items(name, items)
        pairs.train(name, TrainingParameters(method="composite"))
        queries = [Query(content=Content(text=" ".join(one))) for one in shown]
        results = find(pairs.services, name, "text", "picture", queries, 1, 0, ItemFilter())
        assert [result.hits[0].id for result in results] == [f"p{number}" for number in range(len(shown))]
        probabilities[name] = np.array([result.hits[0].probability for result in results])
    np.testing.assert_allclose(probabilities["with-ids"], probabilities["plain"], atol=0.1)
