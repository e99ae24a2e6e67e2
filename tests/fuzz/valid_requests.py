"""Good requests of every operation with a body; each is answered as it says before and between mutations."""

import base64
import json
from random import Random

from tests.app.contract.material import PRODUCTS, VECTORS, picture
from tests.fuzz.wire import Good, Part

_PRODUCTS, _VECTORS = f"/v1/collections/{PRODUCTS}", f"/v1/collections/{VECTORS}"
_FACTS = {
    "labels": ["shoes", "Straße"],
    "metadata": {"price": 12.5, "tags": ["a", None, True]},
    "train": False,
}


def goods(random: Random, with_import: bool) -> list[Good]:
    """Return one request of each kind; what they create has random ids."""
    form = random.choice(("PNG", "JPEG", "MPO", "GIF", "WEBP", "BMP", "TIFF", "AVIF", "JPEG2000"))
    content = picture(random.choice(("shoes", "wallets")), random.randrange(9), form)
    encoded = base64.b64encode(content).decode()
    first, second, third = (f"fuzz-{random.getrandbits(48):x}" for _ in range(3))
    media_type = f"image/{form.lower()}"
    encoders = {
        "image": {"encoder": {"type": "vector", "dim": 3}},
        "text": {"encoder": {"type": "tfidf", "ngrams": 1}},
    }
    items = [
        {"id": first, "modality": "image", "vector": [1.0, -0.5], **_FACTS},
        {"id": second, "modality": "text", "vector": [0.25], "pair_id": first},
    ]
    mixed = [
        {"id": first, "modality": "text", "text": "a red running shoe", **_FACTS},
        {"id": second, "modality": "image", "image_base64": encoded},
    ]
    feedback = [
        {"query": query, "source": "image", "target": "text", "item_id": "text-shoes-0", "relevant": True}
        for query in ({"image_base64": encoded}, {"item_id": "image-shoes-0"})
    ]
    facts = json.dumps({"id": third, "modality": "image", **_FACTS}).encode()
    files = [Part("picture", content, "a.png", media_type)]
    options = [
        Part("k", b"3"),
        Part("filter", b'{"labels": ["shoes"]}', None, "application/json"),
        Part("include", b"text"),
    ]
    found = [
        Good("collection", "POST", "/v1/collections", "json", {"name": first, "modalities": encoders}, 201),
        Good("vectors", "POST", f"{_VECTORS}/items", "json", {"items": items}, 201),
        Good("mixed", "POST", f"{_PRODUCTS}/items", "json", {"items": mixed}, 201),
        Good("put text", "PUT", f"{_PRODUCTS}/items/fuzz-text", "json", {**mixed[0], "id": "fuzz-text"}, 200),
        Good(
            "put vector",
            "PUT",
            f"{_VECTORS}/items/fuzz-vector",
            "json",
            {**items[0], "id": "fuzz-vector"},
            200,
        ),
        Good(
            "put picture",
            "PUT",
            f"{_PRODUCTS}/items/fuzz-picture",
            "json",
            {**mixed[1], "id": "fuzz-picture"},
            200,
        ),
        Good(
            "file",
            "POST",
            f"{_PRODUCTS}/items",
            "form",
            [*files, Part("item", facts, None, "application/json")],
            201,
        ),
        Good(
            "text search",
            "POST",
            f"{_PRODUCTS}/search/text-to-image",
            "json",
            {
                "text": "a red shoe",
                "k": 3,
                "filter": {"labels": ["shoes"], "metadata": {"price": [12.5, "x"]}},
            },
            200,
        ),
        Good(
            "picture search",
            "POST",
            f"{_PRODUCTS}/search/image-to-text",
            "json",
            {"image_base64": encoded},
            200,
        ),
        Good("file search", "POST", f"{_PRODUCTS}/search/image-to-text", "form", [*files, *options], 200),
        Good(
            "batch search",
            "POST",
            f"{_VECTORS}/search/image-to-text/batch",
            "json",
            {
                "queries": [{"vector": [1.0, 0.0]}, {"item_id": "image-shoes-0"}],
                "k": 2,
                "offset": 1,
                "include": ["labels"],
            },
            200,
        ),
        Good("feedback", "POST", f"{_PRODUCTS}/feedback", "json", {"feedback": feedback}, 201),
        Good("key", "POST", "/v1/admin/keys", "json", {"scope": "search", "name": "shop window"}, 201),
    ]
    if with_import:
        lines = [*mixed, {"id": third, "modality": "text", "text": "a leather wallet"}]
        found.append(Good("import", "POST", f"{_PRODUCTS}/items:import", "ndjson", lines, 201))
    return found


RETRAIN = Good(
    "retrain",
    "POST",
    f"/v1/admin/collections/{VECTORS}/retrain",
    "json",
    {"alpha": 0.01, "scaling": "center", "tol": 0.01, "max_iter": 50, "seed": 1},
    202,
)
"""Good once: while its job waits the next is refused, so it is only mutated."""
