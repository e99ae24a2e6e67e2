"""The clients against a real server: a collection from its making to its deletion."""

import asyncio
import io
from collections.abc import Iterator

import pytest
from PIL import Image

from app.client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
)

NAME = "called"
MODALITIES = {"photo": {"type": "hog-color"}, "caption": {"type": "tfidf"}}
COLOURS = {"red": (200, 30, 30), "blue": (30, 30, 200)}


@pytest.fixture
def client(demo_server: str, demo_key: str) -> Iterator[Client]:
    with Client(demo_server, demo_key) as client:
        yield client


def png(colour: str, number: int) -> bytes:
    stored = io.BytesIO()
    Image.new("RGB", (32, 32), tuple(part - number // 2 for part in COLOURS[colour])).save(stored, "PNG")
    return stored.getvalue()


def items() -> Iterator[dict[str, object]]:
    for number in range(40):
        colour = ("red", "blue")[number % 2]
        facts = {"labels": [colour], "pair_id": f"p{number}", "metadata": {"number": number}}
        yield {"id": f"photo{number}", "modality": "photo", "picture": png(colour, number), **facts}
        yield {"id": f"caption{number}", "modality": "caption", "text": f"{colour} thing {number}", **facts}


def test_a_collection_from_its_making_to_its_deletion(
    client: Client, demo_server: str, demo_key: str
) -> None:
    assert client.create_collection(NAME, MODALITIES).modalities["photo"].content == "picture"
    imported = client.import_items(NAME, items())
    assert (imported.created, len(imported.ids)) == (80, 80)
    assert client.import_items(NAME, items()).unchanged == 80
    assert [item.id for item in client.iter_items(NAME, modality="photo", label=["red"], limit=2)] == [
        f"photo{number}" for number in range(0, 40, 2)
    ]
    assert client.get_content(NAME, "photo0") == png("red", 0)
    assert client.list_partners(NAME, ["photo1"]).partners["photo1"].id == "caption1"
    seen = []
    job = client.wait_for_job(client.retrain(NAME, method="composite").id, timeout=120, progress=seen.append)
    assert (job.state, job.model_version, seen[-1]) == ("succeeded", 1, job)
    assert client.get_collection(NAME).items == {"photo": 40, "caption": 40}
    assert client.get_model(NAME, 1).report["method"] == "composite"
    assert client.get_plot(NAME, 1, "precision-recall").startswith(b"<svg")

    found = client.search(NAME, "caption", "photo", text="red thing", k=3, filter={"metadata": {"number": 4}})
    assert [hit.id for hit in found.hits] == ["photo4"]
    by_picture = client.search(NAME, "photo", "caption", picture=png("blue", 3), k=6)
    assert {hit.labels[0] for hit in by_picture.hits if hit.labels} == {"blue"}
    both = client.search_batch(NAME, "caption", "photo", [{"text": "red"}, {"item_id": "caption1"}])
    assert [result.hits[0].labels for result in both.results] == [["red"], ["blue"]]
    assert client.search_version(NAME, 1, "caption", "photo", text="red").hits == both.results[0].hits
    judged = {"query": {"text": "red"}, "source": "caption", "target": "photo", "item_id": "photo0"}
    (feedback_id,) = client.create_feedback(NAME, [judged | {"relevant": True}]).ids
    assert client.list_feedback(NAME).feedback[0].item_id == "photo0"
    client.delete_feedback(NAME, feedback_id)

    key = client.create_key("search", name="till", collections=[NAME])
    assert key.secret
    with Client(demo_server, key.secret) as searcher, pytest.raises(NotAllowedError):
        searcher.delete_item(NAME, "photo0")
    client.revoke_key(key.id)
    with pytest.raises(InvalidRequestError, match=r"\(k\)"):
        client.search(NAME, "caption", "photo", text="red", k=0)

    async def use_the_other_client() -> list[str]:
        async with AsyncClient(demo_server, demo_key) as waiting:
            results = await asyncio.gather(
                *(waiting.search(NAME, "caption", "photo", text=colour, k=1) for colour in COLOURS)
            )
            ids = [item.id async for item in waiting.iter_items(NAME, modality="caption", limit=5)]
            assert len(ids) == 40
            await waiting.delete_collection(NAME)
            with pytest.raises(NotFoundError):
                await waiting.get_collection(NAME)
            return [str(result.hits[0].labels) for result in results]

    assert asyncio.run(use_the_other_client()) == ["['red']", "['blue']"]
    with pytest.raises(NotFoundError, match="no collection 'called'"):
        client.get_collection(NAME)


def test_a_service_that_is_not_there_is_told() -> None:
    with Client("http://127.0.0.1:9", patience=0.0) as client, pytest.raises(ConnectionFailedError):
        client.healthz()
