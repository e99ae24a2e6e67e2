"""Approximate indexes as the trainer builds them, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from app.domain.entities import Matrix
from app.domain.errors import DamagedBundleError
from app.domain.ports import GalleryIndex
from app.domain.reports import IndexSpec
from app.index.balance import Balance
from app.index.inverted_lists import KINDS, InvertedLists, build_candidates

# The published types describe the C++ constructors, not the Python ones.
_faiss: Any = faiss


class InvertedListIndexes:
    """Inverted lists; a file holds a line of JSON, three NumPy arrays, and the lists as FAISS writes them."""

    def candidates(self, vectors: Matrix, queries: Matrix) -> Iterator[InvertedLists]:
        """Yield indexes over the rows, built one after the other; seeded."""
        return build_candidates(vectors, queries)

    def save(self, index: GalleryIndex, path: Path) -> bool:
        """Write an index without its rows; return False, and write nothing, for one that is exact."""
        if not isinstance(index, InvertedLists):
            return False
        space = index.space
        with path.open("wb") as stream:
            stream.write(json.dumps(asdict(index.spec)).encode() + b"\n")
            for array in (space.mean, space.row_map, space.query_map):
                np.save(stream, array, allow_pickle=False)
            faiss.write_index(index.lists, _faiss.PyCallbackIOWriter(stream.write))
        return True

    def load(self, path: Path, vectors: Matrix) -> GalleryIndex:
        """Read an index over the rows that it was built over; raises DamagedBundleError."""
        try:
            with path.open("rb") as stream:
                spec = IndexSpec(**json.loads(stream.readline()))
                space = Balance(*(np.load(stream, allow_pickle=False) for _ in range(3)))
                lists = faiss.read_index(_faiss.PyCallbackIOReader(stream.read))
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise DamagedBundleError(f"{path.name} is not a readable index") from error
        if spec.kind not in KINDS or (lists.ntotal, lists.d) != vectors.shape:
            raise DamagedBundleError(f"{path.name} is not an index of these {len(vectors)} rows")
        return InvertedLists(vectors, space, lists, spec)
