"""Other encoders for a collection in use: originals are encoded again, also by Dask workers without files."""

import io
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from app.bootstrap import build
from app.domain.entities import Content, Job, JobState
from app.domain.errors import EncoderUnavailableError, InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.hog_color import HogColorEncoder
from app.engines.dask_encoding import encode_on_workers
from app.worker.attempts import Lease, Outcome
from solver import DaskEngine
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.in_process import run_here, run_with, train_here
from tests.app.integration.loading import load
from tests.app.integration.test_encoders_in_service import PARAMETERS, QUERIES, hits, picture, shop
from tests.app.refused import refused
from tests.dask_cluster import Cluster

PLAIN = {"type": "hog-color"}
TWICE = {"type": "combine", "parts": [PLAIN, PLAIN]}
"""Its features have twice as many numbers: none of them can pass for one of `PLAIN`."""
CHANGED = {"image": TWICE, "text": {"type": "word-frequency"}}


def encoders_of(client: Any) -> dict[str, str]:
    described = client.get("/v1/collections/shop").json()["modalities"]
    return {name: one["encoder"]["type"] for name, one in described.items()}


def stored(pairs: Pairs) -> set[str]:
    with pairs.services.database.read() as work:
        collection = work.collections.get("shop")
        return work.encoded.hashes(collection, collection.modalities[0])


def add(client: Any, name: str, colour: str, seed: int) -> None:
    item = {"id": name, "modality": "image", "image_base64": picture(colour, seed), "labels": [colour]}
    assert client.post("/v1/collections/shop/items", json={"items": [item]}).status_code == 201


def change(pairs: Pairs, encoders: dict[str, Any], run: Any = run_here) -> Job:
    pairs.services.training.request("shop", PARAMETERS, encoders)
    job: Job = run(pairs.services)
    assert job.state is JobState.SUCCEEDED, job.error
    return job


def right(client: Any) -> list[list[Any]]:
    """Return what the queries find, which is of their colour."""
    found = [hits(client, direction, query) for direction, query, _ in QUERIES]
    for one, (_, _, parity) in zip(found, QUERIES, strict=True):
        assert {int(name[1:]) % 2 for name, _ in one} == {parity}
    return found


def test_the_old_encoders_serve_until_version_features_and_encoders_change_together(either: Pairs) -> None:
    client = shop(either, {"type": "tfidf"}, PLAIN)
    before, encoders = right(client), encoders_of(client)
    during: list[Any] = []

    def train(services: Any, lease: Lease) -> Outcome:
        # What is written while the job runs is encoded by the old encoder, and searched with it.
        add(client, "i101", "blue", 101)
        during.append([name for name, _ in hits(client, "image-to-text", {"item_id": "i101"})])
        outcome = train_here(services, lease)
        add(client, "i100", "red", 100)
        during.append([right(client), encoders_of(client)])
        return outcome

    job = change(either, CHANGED, lambda services: run_with(services, train))
    assert {int(name[1:]) % 2 for name in during[0]} == {1}
    assert during[1][1] == encoders
    assert [name for name, _ in during[1][0][3]] == [name for name, _ in before[3]]
    assert encoders_of(client) == {"image": "combine", "text": "word-frequency"}
    after = right(client)
    assert after != before
    for name, parity in (("i100", 0), ("i101", 1)):  # written between and before: of the new version, too
        found = hits(client, "image-to-text", {"item_id": name})
        assert {int(item[1:]) % 2 for item, _ in found} == {parity}
    add(client, "i102", "red", 102)
    assert "i102" in [name for name, _ in client_all(client)]
    begun = Pairs(build(either.services.settings), either.data)
    load(begun.services)
    assert right(begun.client()) == right(client)
    close(begun.services)

    # The first version comes back with its encoders; what was written with the others is encoded by them.
    client.post("/v1/admin/collections/shop/rollback", json={}).raise_for_status()
    assert encoders_of(client) == encoders
    right(client)
    names = [name for name, _ in client_all(client)]
    assert {"i100", "i101", "i102"} <= set(names)
    assert client.get(f"/v1/admin/collections/shop/models/{job.model_version}").status_code == 200
    add(client, "i104", "red", 104)
    with either.services.database.read() as work:
        collection = work.collections.get("shop")
        items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
        pictures = [item for item in items if item.modality == "image"]
        encoded = either.services.originals.encodable(work, collection, items)
    assert len({len(item.features) for item in pictures if item.features is not None}) == 2
    assert [item.id for item in encoded] == [item.id for item in items]
    assert len({len(item.features) for item in encoded if item.features is not None}) == 1
    # A training after it learns from all items with the encoders of now, and finds features made before.
    change(either, {})
    assert len(stored(either)) == 1  # i102: the others were stored with these encoders
    change(either, {})
    assert len(stored(either)) == 1
    right(client)
    client.post(f"/v1/admin/collections/shop/models/{job.model_version}/activate", json={}).raise_for_status()
    assert {"i100", "i101", "i102", "i104"} <= {name for name, _ in client_all(client)}


def client_all(client: Any) -> list[Any]:
    query = {"text": "red", "k": 100}
    answer = client.post("/v1/collections/shop/search/text-to-image", json=query).raise_for_status()
    return [(hit["id"], hit["score"]) for hit in answer.json()["hits"]]


def test_a_later_attempt_goes_on_where_an_earlier_one_died(
    pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shop(pairs, {"type": "tfidf"}, PLAIN)
    monkeypatch.setattr("app.services.models.originals._CONTENTS_PER_BATCH", 5)
    services, counts = pairs.services, []

    def report(event: Any) -> None:
        if event["phase"] == "re-encoding":
            counts.append((event["items"], event["of"]))
            if len(counts) == 3:
                raise KeyboardInterrupt  # as a kill would, at any moment

    builder = services.builder
    encoders = {"image": CHANGED["image"]}
    with pytest.raises(KeyboardInterrupt):
        builder.build("shop", PARAMETERS, report, encoders)
    assert counts == [(0, 24), (5, 24), (10, 24)]
    right(client)
    change(pairs, encoders)
    assert len(stored(pairs)) == 24
    # Features of what is gone go with the next training, and those of encoders that no version has.
    client.delete("/v1/collections/shop/items/i23").raise_for_status()
    change(pairs, {})
    assert len(stored(pairs)) == 23
    counts.clear()
    built = builder.build("shop", PARAMETERS, lambda event: counts.append(event["phase"]), encoders)
    assert "re-encoding" not in counts
    assert built.modalities is not None
    right(client)


def test_items_that_go_while_others_encoders_are_tried_are_not_compared(pairs: Pairs) -> None:
    client = shop(pairs, {"type": "tfidf"}, PLAIN)
    items: list[dict[str, Any]] = []
    for number in range(100, 156):
        colour = ("red", "blue")[number % 2]
        content = picture(colour, number)
        shared = {"labels": [colour]}
        items.append({"id": f"i{number}", "modality": "image", "image_base64": content, **shared})
        items.append({"id": f"t{number}", "modality": "text", "text": f"a {colour} bag", **shared})
    client.post("/v1/collections/shop/items", json={"items": items}).raise_for_status()
    change(pairs, {})
    gone = [f"i{number}" for number in range(100, 130)]

    def report(event: Any) -> None:
        while event["phase"] == "judging" and gone:
            client.delete(f"/v1/collections/shop/items/{gone.pop()}").raise_for_status()

    built = pairs.services.builder.build("shop", PARAMETERS, report, {"text": CHANGED["text"]})
    assert gone == []
    compared = built.report.gate.items
    assert compared["image"] < compared["text"]


def test_what_cannot_be_encoded_anew_is_named(pairs: Pairs) -> None:
    pairs.fill("a")
    request = pairs.services.training.request
    for encoders, place, message in (
        ({"x": {"type": "hog-color"}}, "encoders.x", "without a stored picture"),
        ({"z": {"type": "vector"}}, "encoders.z", "without a stored vector"),
        ({"z": {"type": "word-frequency", "max_words": 0}}, "encoders.z.encoder.max_words", "integer"),
    ):
        with pytest.raises(InvalidFieldError, match=message) as caught:
            request("a", PARAMETERS, encoders)
        assert caught.value.field == place
    with refused("unknown-modality"):
        request("a", PARAMETERS, {"sound": {"type": "mfcc"}})
    client = shop(pairs, {"type": "tfidf"}, PLAIN)
    with pytest.raises(InvalidFieldError, match=r"without a stored text.*: 24, the first is 'i0'"):
        request("shop", PARAMETERS, {"image": {"type": "tfidf"}})
    with pairs.services.database.read() as work:
        item = work.items.get(work.collections.get("shop"), "i7")
    (file,) = pairs.services.settings.data_dir.glob(f"pictures/**/{item.content_hash}")
    file.unlink()
    asked = request("shop", PARAMETERS, {"image": CHANGED["image"]})
    job = run_here(pairs.services, asked.id)
    assert job.state is JobState.FAILED
    assert "whose stored picture is missing or refused by the encoder: 'i7'" in str(job.error)
    assert encoders_of(client)["image"] == "hog-color"
    right(client)


LIMITS = ContentLimits(1 << 20, 1 << 20, 1000)


def photograph(seed: int) -> bytes:
    stored = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 255, (96, 96, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture(scope="module")
def cluster(distributed: Any) -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.start()
    yield cluster
    cluster.kill()


def refuse(*_: object) -> None:
    raise AssertionError("encoded in this process")


def test_a_training_encodes_originals_on_workers_as_it_would_itself(
    pairs: Pairs, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = shop(pairs, {"type": "tfidf"}, PLAIN)
    changes = {"training_engine": "dask", "dask_scheduler": cluster.address}
    remote = build(pairs.services.settings.model_copy(update=changes))
    with monkeypatch.context() as here:
        here.setattr("app.services.training.reencoding._LEAST_ELSEWHERE", 24)
        here.setattr(HogColorEncoder, "encode_to_store", refuse)
        here.setattr(HogColorEncoder, "encode", refuse)
        change(pairs, CHANGED, lambda _: run_here(remote))
    assert encoders_of(client) == {"image": "combine", "text": "word-frequency"}
    right(client)
    with remote.database.read() as work:
        collection = work.collections.get("shop")
        images = collection.modalities[0]
        encoded = work.encoded.find(collection, images, sorted(work.encoded.hashes(collection, images)))
    encoder, pictures = EncoderRegistry(LIMITS).make(TWICE), remote.settings.data_dir / "pictures"
    for digest, features in encoded.items():
        (file,) = pictures.rglob(digest)
        expected = encoder.encode_to_store([Content(picture=file.read_bytes())])
        np.testing.assert_array_equal(features, expected[0])
    assert len(encoded) == 24
    close(remote)


def test_workers_that_are_killed_or_lack_a_file_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    opened: list[DaskEngine] = []

    def open_engine() -> DaskEngine:
        opened.append(DaskEngine(cluster.address))
        return opened[-1]

    encode = partial(encode_on_workers, open_engine, LIMITS)
    batches = [[Content(picture=photograph(number)) for number in range(4)] for _ in range(60)]
    encoded = encode(PLAIN, batches)
    first = next(encoded)
    pids = opened[0].client.run(os.getpid)
    os.kill(next(iter(pids.values())), signal.SIGKILL)
    rest = list(encoded)
    assert len(rest) == 59
    np.testing.assert_array_equal(first, EncoderRegistry(LIMITS).make(PLAIN).encode_to_store(batches[0]))
    for features in rest:
        np.testing.assert_array_equal(features, first)

    lacking = {"type": "onnx", "path": str(tmp_path / "none.onnx"), "sha256": "0" * 64}
    with pytest.raises(EncoderUnavailableError, match=r"a Dask worker cannot encode: .*none\.onnx"):
        list(encode(lacking, batches[:2]))
    assert [len(features) for features in encode(PLAIN, batches[:2])] == [4, 4]
