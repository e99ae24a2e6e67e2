"""What is stored and asked for: content that follows from an item's id and generation alone."""

from __future__ import annotations

import base64
import functools
import io
import time
import zlib
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from PIL import Image

PAIRS, ALBUM = "pairs", "album"
X, Z = "x", "z"
DIMENSIONS = {X: 12, Z: 10}
CLASSES = 4
BASE_ITEMS = 120
MODALITIES = {
    PAIRS: {X: {"encoder": {"type": "vector"}}, Z: {"encoder": {"type": "vector"}}},
    ALBUM: {"image": {"encoder": {"type": "hog-color"}}, "text": {"encoder": {"type": "tfidf"}}},
}


@functools.lru_cache(1 << 14)
def vector_of(modality: str, item_id: str, generation: int) -> npt.NDArray[np.float32]:
    """Return an item's features: its class's centre and noise of this generation's own."""
    dimension = DIMENSIONS[modality]
    centre = _centre_of(class_of(item_id), dimension)
    noise = np.random.default_rng([_number(item_id), generation]).normal(size=dimension)
    # Few digits, so that what is sent is what is stored.
    return np.round(centre + 0.7 * noise, 4).astype(np.float32)


@functools.cache
def _centre_of(number: int, dimension: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng([17, number, dimension]).normal(size=dimension)


def class_of(item_id: str) -> int:
    """Return the class of an item."""
    return _number(item_id) % CLASSES


def vector_item(modality: str, item_id: str, generation: int) -> dict[str, Any]:
    """Return an item of own features as a client sends it."""
    return {
        "id": item_id,
        "modality": modality,
        "vector": [round(float(value), 4) for value in vector_of(modality, item_id, generation)],
        "labels": [f"class {class_of(item_id)}"],
        "metadata": {"generation": generation},
    }


def picture_of(item_id: str, generation: int) -> bytes:
    """Return the picture of an item."""
    noise = np.random.default_rng([_number(item_id), generation]).integers(0, 255, (12, 12, 3))
    stored = io.BytesIO()
    Image.fromarray(noise.astype(np.uint8)).save(stored, "PNG")
    return stored.getvalue()


def picture_item(item_id: str, generation: int) -> dict[str, Any]:
    """Return a picture as a client sends it."""
    encoded = base64.b64encode(picture_of(item_id, generation)).decode()
    return {
        "id": item_id,
        "modality": "image",
        "image_base64": encoded,
        "metadata": {"generation": generation},
    }


def query_vectors(count: int) -> npt.NDArray[np.float32]:
    """Return queries of modality z that belong to no item."""
    return np.stack([vector_of(Z, f"query-{number}", 0) for number in range(count)])


def base_items() -> dict[str, list[dict[str, Any]]]:
    """Return what stands in the collection before anything happens, by modality; never written again."""
    return {
        modality: [vector_item(modality, f"{modality}-base-{number}", 0) for number in range(BASE_ITEMS)]
        for modality in (X, Z)
    }


def client_of(url: str, key: str) -> httpx.Client:
    """Return a client with a key; whoever never gets an answer is found hanging at the end."""
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False, timeout=900.0)


def train(client: httpx.Client, collection: str, seconds: float, **parameters: object) -> int:
    """Train a collection, in so many seconds at most, and return the version."""
    path = f"/v1/admin/collections/{collection}/retrain"
    job = client.post(path, json=parameters).raise_for_status().json()
    deadline = time.monotonic() + seconds
    while job["state"] in ("queued", "running") and time.monotonic() < deadline:
        time.sleep(0.1)
        job = client.get(f"/v1/admin/jobs/{job['id']}").raise_for_status().json()
    if job["state"] != "succeeded":
        raise RuntimeError(f"training failed: {job}")
    return int(job["model_version"])


def _number(item_id: str) -> int:
    return zlib.crc32(item_id.encode())
