"""Calls of a Milvus server, and the collection that lists the galleries."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import grpc
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException, MilvusUnavailableException

from app.domain.errors import VectorEngineUnavailableError, galleries_gone

_logger = logging.getLogger(__name__)

GALLERIES = "lrbs_galleries"
"""The collection that lists the others."""
FORMAT = 2
"""Of galleries: others are made again."""
MAPS = "maps_"
"""Begins the names of its entries that hold the maps of a collection."""
_Sliced = TypeVar("_Sliced", str, list[Any])
PIECE, MOST_PIECES = 16_000, 4096
"""Characters of a part of a text, which takes 65,535 bytes at most, and parts: as many as Milvus allows, of
which the largest maps take two thirds."""
SECONDS = 30.0
"""An answer that takes longer is a failure."""
AWAY = "the Milvus server does not answer (LRBS_MILVUS_URI)"
"""Why an engine that does not answer cannot be used."""
_UNREACHABLE, _MISSING, _RELEASED = 2, 100, 101
"""Codes for a server that is away, for a collection that is not there, and for one that is not in the
server's memory, as after its restart."""
_STRONG = {"consistency_level": "Strong"}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the service's error in place of the client's."""
    try:
        yield
    except MilvusException as error:
        if error.code == _UNREACHABLE or isinstance(error, MilvusUnavailableException):
            raise VectorEngineUnavailableError(AWAY) from error
        if is_missing(error):
            raise galleries_gone() from error
        _logger.error("Milvus refuses what it is asked: %s", error)
        raise VectorEngineUnavailableError("Milvus refuses what it is asked; its log says why") from error
    except grpc.RpcError as error:
        raise VectorEngineUnavailableError(AWAY) from error


def is_missing(error: MilvusException) -> bool:
    """Return whether an error says that a collection is not there."""
    return error.code == _MISSING or "not found" in error.message


def call_loaded(client: MilvusClient, collection: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns, after a collection was loaded if the server has released it."""
    try:
        return call()
    except MilvusException as error:
        if error.code != _RELEASED:
            raise
        client.load_collection(collection, timeout=SECONDS)
        return call()


def read_rows(
    client: MilvusClient,
    collection: str,
    condition: str,
    fields: list[str],
    limit: int | None = None,
    visibility: Mapping[str, Any] = _STRONG,
) -> list[dict[str, Any]]:
    """Return the rows of a collection that match a condition, as a client's `query` does."""
    query = partial(
        client.query,
        collection,
        filter=condition,
        output_fields=fields,
        limit=limit,
        timeout=SECONDS,
        **visibility,
    )
    return [dict(row) for row in call_loaded(client, collection, query)]


def find_text(client: MilvusClient, name: str) -> str | None:
    """Return a text of the list of galleries; None where there is none of that name."""
    rows = read_rows(client, GALLERIES, f"name == {json.dumps(name)}", ["text"])
    return "".join(rows[0]["text"]) if rows else None


def find_entry(client: MilvusClient, name: str) -> dict[str, Any] | None:
    """Return the entry of a gallery; None where there is none of this format."""
    text = find_text(client, name)
    entry = None if text is None else json.loads(text)
    return entry if entry is not None and entry.get("format") == FORMAT else None


def get_entry(client: MilvusClient, name: str) -> dict[str, Any]:
    """Return the entry of a gallery; raises VectorEngineUnavailableError."""
    entry = find_entry(client, name)
    if entry is None:
        raise galleries_gone()
    return entry


def store_entry(client: MilvusClient, entry: dict[str, Any]) -> None:
    """Put an entry in the place of the one of the same name."""
    store_text(client, entry["name"], json.dumps(entry))


def store_text(client: MilvusClient, name: str, text: str) -> None:
    """Put a text in the place of the one of the same name."""
    row = {"name": name, "text": list(split(text, PIECE)), "nowhere": [0.0, 0.0]}
    client.upsert(GALLERIES, [row], timeout=SECONDS)


def add_list(schema: Any, name: str, length: int, capacity: int) -> None:
    """Add a field for a list of texts."""
    kind, of = DataType.ARRAY, DataType.VARCHAR
    schema.add_field(name, kind, element_type=of, max_length=length, max_capacity=capacity)


def split(values: _Sliced, size: int) -> Iterator[_Sliced]:
    """Yield slices of a size, the last of which may be shorter."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
