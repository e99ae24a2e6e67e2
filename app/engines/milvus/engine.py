"""All galleries of a Milvus server."""

from __future__ import annotations

import base64
import json
import logging
import threading
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pymilvus import DataType, MilvusClient

from app.domain.entities import IndexedItem, Matrix
from app.domain.errors import VectorEngineUnavailableError
from app.domain.ports import GalleryKey
from app.engines.common import (
    LARGEST_RANK_OF_A_GRAPH,
    WriteLocks,
    balance_of,
    name_of,
    pack_balance,
)
from app.engines.milvus.gallery import MilvusGallery
from app.engines.milvus.rows import DIGEST, MOST_FACETS, Writing
from app.engines.milvus.server import (
    AWAY,
    FORMAT,
    GALLERIES,
    MAPS,
    MOST_PIECES,
    SECONDS,
    add_list,
    find_entry,
    find_text,
    get_entry,
    read_rows,
    store_entry,
    store_text,
    translate_errors,
)

_logger = logging.getLogger(__name__)

_OWNER = "owner"  # its entry that holds the identity of the installation whose galleries they are
_NEIGHBOURS, _BUILD_WIDTH = 32, 128
"""Of a node, and nodes that its insertion visits."""
_CHANNEL = {"grpc.keepalive_permit_without_calls": 0}
"""Without pings while no call is under way: a server with gRPC's own rules, like that of Milvus Lite, ends
the connection of a client that pings every 10 s. The next call notices a lost connection."""
_PATIENCE_SECONDS = 5.0  # how long a caller waits for another one to connect


class MilvusEngine:
    """Galleries in a Milvus server, or in a file of Milvus Lite, which one process can open; no token where
    none is needed."""

    def __init__(self, uri: str, token: str, locks: WriteLocks) -> None:
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # it prints what it raises, with the filters
        self._uri = uri
        self._token = token
        self._locks = locks
        self._announced: dict[str, tuple[int, float]] = {}  # as of `MilvusGallery`
        self._connected: MilvusClient | None = None
        self._connecting = threading.Lock()

    @property
    def _client(self) -> MilvusClient:
        """A connection, made when it is first needed, with the list of galleries."""
        if self._connected is None:
            # While the server takes long to answer one caller, the others need not wait as long.
            if not self._connecting.acquire(timeout=_PATIENCE_SECONDS):
                raise VectorEngineUnavailableError(AWAY)
            try:
                if self._connected is None:
                    self._connected = self._connect()
            finally:
                self._connecting.release()
        return self._connected

    def _connect(self) -> MilvusClient:
        client = MilvusClient(self._uri, token=self._token, timeout=SECONDS, grpc_options=_CHANNEL)
        if not client.has_collection(GALLERIES, timeout=SECONDS):
            self._create_list(client)
        return client

    def _create_list(self, client: MilvusClient) -> None:
        """Make the list of galleries, unless another process has."""
        with self._locks.hold(GALLERIES):
            if client.has_collection(GALLERIES, timeout=SECONDS):
                return
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("name", DataType.VARCHAR, is_primary=True, max_length=100)
            add_list(schema, "text", 65_535, MOST_PIECES)
            schema.add_field("nowhere", DataType.FLOAT_VECTOR, dim=2)  # each collection has to have vectors
            indexes = client.prepare_index_params()
            indexes.add_index("nowhere", index_type="FLAT", metric_type="IP")
            client.create_collection(
                GALLERIES,
                schema=schema,
                index_params=indexes,
                consistency_level="Strong",
                timeout=SECONDS,
            )

    def open(self, key: GalleryKey) -> MilvusGallery | None:
        """Return a gallery that is complete; None where there is none."""
        with translate_errors():
            entry = find_entry(self._client, name_of(key))
            return None if entry is None else self._gallery(entry["name"])

    def _gallery(self, name: str) -> MilvusGallery:
        return MilvusGallery(self._client, name, self._locks, self._announced)

    @contextmanager
    def claim(self, key: GalleryKey) -> Iterator[None]:
        """Be the only one who makes a gallery; see `VectorEngine.claim`."""
        with self._locks.hold(f"making_{name_of(key)}"):
            yield

    def create(
        self,
        key: GalleryKey,
        revision: int,
        batches: Iterator[tuple[Sequence[IndexedItem], Matrix]],
        vectors: Matrix,
        queries: Matrix,
        unranked: Collection[str],
    ) -> MilvusGallery:
        """Make a gallery, which others find once it is complete; see `VectorEngine.create`."""
        name, rank = name_of(key), vectors.shape[1]
        balance = balance_of(vectors, queries) if rank <= LARGEST_RANK_OF_A_GRAPH else None
        with self._locks.hold(name) as check_lock, translate_errors():
            gallery = self._gallery(name)
            if find_entry(self._client, name) is not None:
                return gallery
            self._remove_unfinished(name)
            collection = f"{name}_{uuid.uuid4().hex[:8]}"
            self._create_collection(collection, rank)
            writing = Writing(self._client, collection, revision, check_lock)
            for items, part in batches:
                writing.insert(balance, items, part)
            writing.insert_unranked(unranked, rank)
            if balance is not None:
                store_text(self._client, MAPS + collection, base64.b64encode(pack_balance(balance)).decode())
            check_lock()
            entry = {
                **key._asdict(),
                "format": FORMAT,
                "name": name,
                "collection": collection,
                "revision": revision,
                "earliest": revision,
                "rank": rank,
                "written_at": writing.written_at,
            }
            store_entry(self._client, entry)
        return gallery

    def _create_collection(self, collection: str, rank: int) -> None:
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.VARCHAR, is_primary=True, max_length=64)
        schema.add_field("item", DataType.VARCHAR, max_length=DIGEST)  # whose characters need no quotes
        schema.add_field("item_id", DataType.VARCHAR, max_length=1024)
        schema.add_field("since", DataType.INT64)
        schema.add_field("until", DataType.INT64)
        schema.add_field("is_ranked", DataType.BOOL)
        add_list(schema, "facets", DIGEST, MOST_FACETS)
        schema.add_field("values", DataType.JSON)
        add_list(schema, "text", 65_535, MOST_PIECES)
        indexes = self._client.prepare_index_params()
        for name in ("raw", "mapped", "unit"):
            schema.add_field(name, DataType.FLOAT_VECTOR, dim=max(rank, 2))
            graph = {"M": _NEIGHBOURS, "efConstruction": _BUILD_WIDTH}
            kind, parameters = ("HNSW", graph) if name == "mapped" else ("FLAT", {})
            indexes.add_index(name, index_type=kind, metric_type="IP", params=parameters)
        self._client.create_collection(
            collection, schema=schema, index_params=indexes, consistency_level="Strong", timeout=SECONDS
        )

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another; see `VectorEngine.replace`."""
        old, new = name_of(key), name_of(by)
        with self._locks.hold(old) as check_lock, self._locks.hold(new), translate_errors():
            entry, earlier = get_entry(self._client, new), find_entry(self._client, old)
            if earlier is not None and earlier["revision"] > entry["revision"]:
                return False
            check_lock()
            # At no moment do two entries name the collection: dropping one would drop the other's rows.
            self._client.delete(GALLERIES, ids=[new], timeout=SECONDS)
            store_entry(self._client, {**entry, **key._asdict(), "name": old})
            if earlier is not None:
                self._remove(earlier["collection"])
        return True

    def belongs_to(self, installation: str) -> bool:
        """Return whether an installation came first; see `VectorEngine.belongs_to`."""
        with self._locks.hold(_OWNER), translate_errors():
            owner = find_text(self._client, _OWNER)
            if owner is None:
                store_text(self._client, _OWNER, installation)
            return owner in (None, installation)

    def keys(self) -> list[GalleryKey]:
        """Return the galleries there are."""
        with translate_errors():
            entries = sorted(self._entries(), key=lambda entry: str(entry["name"]))
            return [
                GalleryKey(entry["collection_id"], entry["bundle"], entry["modality"]) for entry in entries
            ]

    def _entries(self) -> list[dict[str, Any]]:
        rows = read_rows(self._client, GALLERIES, 'name like "gallery%"', ["text"])
        return [json.loads("".join(row["text"])) for row in rows]

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""
        name = name_of(key)
        with self._locks.hold(name), translate_errors():
            if (entry := find_entry(self._client, name)) is not None:
                self._client.delete(GALLERIES, ids=[name], timeout=SECONDS)
                self._remove(entry["collection"])
            self._remove_unfinished(name)

    def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None
        self._locks.close()

    def remove_unfinished(self) -> int:
        """Remove collections and maps that no entry names; see `VectorEngine.remove_unfinished`."""
        n_removed = 0
        with translate_errors():
            maps = read_rows(self._client, GALLERIES, f'name like "{MAPS}%"', ["name"])
            collections = set(self._client.list_collections(timeout=SECONDS))
            unfinished = self._find_unfinished("gallery_")
            for name in sorted({collection.rpartition("_")[0] for collection in unfinished}):
                try:
                    with self._locks.hold(name):  # which one that is being made has
                        n_removed += self._remove_unfinished(name)
                except VectorEngineUnavailableError as error:
                    _logger.info("what is unfinished of %s stays: %s", name, error)
            orphans = [row["name"] for row in maps if row["name"].removeprefix(MAPS) not in collections]
            if orphans:
                self._client.delete(GALLERIES, ids=orphans, timeout=SECONDS)
        return n_removed

    def _remove_unfinished(self, name: str) -> int:
        """Remove collections that were made for a gallery, and that no entry names; return how many."""
        collections = self._find_unfinished(f"{name}_")
        for collection in collections:
            self._remove(collection)
        return len(collections)

    def _find_unfinished(self, prefix: str) -> list[str]:
        made = [
            collection
            for collection in self._client.list_collections(timeout=SECONDS)
            if collection.startswith(prefix)
        ]
        # Afterwards, so that what was finished meanwhile is among them.
        in_use = {entry["collection"] for entry in self._entries()}
        return [collection for collection in made if collection not in in_use]

    def _remove(self, collection: str) -> None:
        self._client.drop_collection(collection, timeout=SECONDS)
        self._client.delete(GALLERIES, ids=[MAPS + collection], timeout=SECONDS)
