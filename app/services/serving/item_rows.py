"""Rows of a segment by the ids of their items: sorted hashes, which take 12 bytes a row and no objects. A
dictionary of a million ids takes 90 bytes a row and two thirds of a second in which no other thread runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from app.services.storage.pacing import in_batches, no_pause

BYTES_PER_ROW = 12
"""A hash and a row number."""
_IDS_PER_STEP = 4096  # ids between two pauses: a millisecond


class ItemIds:
    """Ids without duplicates that are looked for in several segments, hashed once."""

    def __init__(self, ids: Collection[str]) -> None:
        self.ids: Sequence[str] = list(ids)
        self.hashes = _hash(self.ids, len(self.ids), no_pause)


class ItemRows:
    """Finds rows by the ids of their items; immutable."""

    def __init__(self, ids: Iterable[str], n_rows: int, pause: Callable[[], None] = no_pause) -> None:
        hashes = _hash(ids, n_rows, pause)
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = order.astype(np.int32)

    def find(
        self, item_ids: ItemIds, id_of: Callable[[int], str], pause: Callable[[], None] = no_pause
    ) -> list[int]:
        """Return the rows that have one of the ids; `id_of` a row decides, since different ids may have the
        same hash."""
        first = np.searchsorted(self._hashes, item_ids.hashes, "left")
        last = np.searchsorted(self._hashes, item_ids.hashes, "right")
        rows: list[int] = []
        for batch in in_batches(np.flatnonzero(last > first).tolist(), _IDS_PER_STEP):
            for number in batch:
                candidates = self._rows[first[number] : last[number]].tolist()
                rows += [row for row in candidates if id_of(row) == item_ids.ids[number]]
            pause()
        return rows


def _hash(ids: Iterable[str], count: int, pause: Callable[[], None]) -> npt.NDArray[np.int64]:
    hashes = np.empty(count, np.int64)
    remaining: Iterator[str] = iter(ids)
    for start in range(0, count, _IDS_PER_STEP):
        step = hashes[start : start + _IDS_PER_STEP]
        step[:] = list(map(hash, itertools.islice(remaining, len(step))))
        pause()
    return hashes
