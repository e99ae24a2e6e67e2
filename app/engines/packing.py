"""What engines have in common: a gallery's name among theirs, its maps as bytes, and when rows are few."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from app.domain.entities import Matrix
from app.domain.ports import GalleryKey
from app.index.balance import Balance

BEHIND = "its gallery is being made again: try again"
"""Why changes since a revision are of no use."""
BUSY = "another process is making or writing its galleries: try again"
"""Why a caller gets no lock."""
LARGEST_RANK_OF_A_GRAPH = 2000
"""pgvector's bound on what HNSW takes; rows of more numbers are compared one by one."""
ROWS_COMPARED = 5000
"""A gallery of fewer rows is compared one by one: some milliseconds."""
REVISIONS_BETWEEN_COUNTS = 100
"""A gallery that is large is taken to be so for that long; if it is not, a search compares its rows."""


def name_of(key: GalleryKey) -> str:
    """Return the name of a gallery: letters, digits and ``_``."""
    digest = sha256(f"{key.bundle}\0{key.modality}".encode()).hexdigest()[:16]
    return f"gallery_{key.collection_id}_{digest}"


def pack_balance(balance: Balance) -> bytes:
    """Return maps as bytes."""
    return np.concatenate([balance.mean[None], balance.row_map, balance.query_map]).astype("<f4").tobytes()


def unpack_balance(data: bytes) -> Balance:
    """Return the maps of `pack_balance`."""
    values = np.frombuffer(data, "<f4")
    rank = int((np.sqrt(8 * len(values) + 1) - 1) / 4)
    rows = values.reshape(2 * rank + 1, rank)
    return Balance(rows[0], rows[1 : rank + 1], rows[rank + 1 :])


def balance_of(vectors: Matrix, queries: Matrix) -> Balance:
    """Return the maps of a gallery; of an empty one they change nothing."""
    if len(vectors):
        return Balance.between(vectors, queries)
    rank = vectors.shape[1]
    return Balance(np.zeros(rank, np.float32), np.eye(rank, dtype=np.float32), np.eye(rank, dtype=np.float32))
