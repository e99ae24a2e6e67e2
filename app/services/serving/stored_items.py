"""Items of a gallery as text, such as a saved one is read from: a tenth of the memory of Python objects.
An item is decoded when a search shows it, and all of them, batch by batch, when a column is first needed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, overload

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw
from typing_extensions import override

from app.domain.entities import IndexedItem
from app.services.storage.pacing import in_batches, no_pause

Mask = npt.NDArray[np.bool]
ItemsWithBitset = tuple[Sequence[IndexedItem], Mask | None]
"""Items of a segment, and which of them are alive; None for all."""
BYTES_PER_ROW = 12
"""Of `ItemRows`: a hash and a row number."""
_IDS_PER_STEP = 4096  # ids between two pauses: a millisecond
_ITEMS_PER_BATCH = 4096  # bounds memory; a batch takes some milliseconds
_OBJECTS_PER_BATCH = 250  # the same for items that have to be encoded
_TEXT_PER_STEP = 1 << 20
"""Bytes in which line ends are looked for at once: a millisecond, as searches wait for the interpreter."""
_ITEMS_PER_COPY = 2048  # items between two pauses of copying: a millisecond, where every other one is dead
_BEGIN, _SEPARATOR, _END = b"[\n", b",\n", b"\n]"
_Text = bytes | bytearray
_Entry = tuple[str, tuple[str, ...], dict[str, Any]]


_ONE: msgspec.json.Decoder[IndexedItem] = msgspec.json.Decoder(IndexedItem)


class StoredItems(Sequence[IndexedItem]):
    """Items (id, labels and metadata) in a JSON text of one array per line, at least one, which must not
    change from now on. Its first line is ``[`` and its last one ``]``."""

    def __init__(self, text: _Text) -> None:
        assert text.startswith(_BEGIN)
        self._text = text
        self._ends = _line_ends(text)
        """Positions of the line ends: the first is before the first item, the last after the last one."""

    @classmethod
    def of_lines(cls, lines: Iterable[bytes]) -> StoredItems:
        """Return the items of at least one line, as of `encode_item`."""
        return cls(_BEGIN + _SEPARATOR.join(lines) + _END)

    @classmethod
    def merge(cls, parts: Iterable[ItemsWithBitset], pause: Callable[[], None]) -> StoredItems:
        """Return the live items of some segments, in order; at least one. `pause` is called between steps."""
        text = bytearray()
        for lines in text_of(parts, pause):
            text += lines
        return cls(text)

    @override
    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, key: int) -> IndexedItem: ...
    @overload
    def __getitem__(self, key: slice) -> list[IndexedItem]: ...
    @override
    def __getitem__(self, key: int | slice) -> IndexedItem | list[IndexedItem]:
        if isinstance(key, slice):
            return [self[row] for row in range(*key.indices(len(self)))]
        row = range(len(self._ends) - 1)[key]
        line = self.lines(row, row + 1)
        try:
            return _ONE.decode(line)
        except msgspec.MsgspecError:
            return _item(*json.loads(line))

    @override
    def __iter__(self) -> Iterator[IndexedItem]:
        for entries in self.decode(_Entry):
            for entry in entries:
                yield _item(*entry)

    @property
    def n_bytes(self) -> int:
        """Memory."""
        return len(self._text) + self._ends.nbytes

    def ids(self) -> Iterator[str]:
        """Yield each item's id."""
        for entries in self.decode(tuple[str, Raw, Raw]):
            for item_id, _, _ in entries:
                yield item_id

    def decode(self, entry_type: Any) -> Iterator[list[Any]]:
        """Yield all items in batches; as plain lists where the text has what the decoder refuses."""
        # That is a number beyond double precision, or half of a surrogate pair, which the standard library
        # writes and reads.
        decoder: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[entry_type])
        for start in range(0, len(self), _ITEMS_PER_BATCH):
            lines = b"[" + self.lines(start, min(start + _ITEMS_PER_BATCH, len(self))) + b"]"
            try:
                entries = decoder.decode(lines)
            except msgspec.MsgspecError:
                entries = json.loads(lines)
            yield entries

    def lines(self, start: int, stop: int) -> _Text:
        """Return the lines of adjacent items, at least one."""
        return self._text[self._ends.item(start) + 1 : self._ends.item(stop)].removesuffix(b",")


def batches_of(
    items: Sequence[IndexedItem], labels: Any = Raw, metadata: Any = Raw
) -> Iterator[Sequence[Any]]:
    """Yield batches of triples (id, labels, metadata), in row order. What is text is decoded as these types;
    `Raw` leaves it as it is."""
    if isinstance(items, StoredItems):
        return items.decode(tuple[Raw, labels, metadata])
    return in_batches(items, _ITEMS_PER_BATCH)


def encode_item(item: IndexedItem) -> bytes:
    """Return the line of an item."""
    return json.dumps([item.id, item.labels, item.metadata]).encode()


def live_lines(items: Sequence[IndexedItem], alive: Mask | None) -> Iterator[_Text]:
    """Yield lines of live items (None: all) as of `encode_item`, several at once: the separator is between
    them, not after."""
    if not isinstance(items, StoredItems):
        live = items if alive is None else itertools.compress(items, alive.tolist())
        for batch in in_batches(live, _OBJECTS_PER_BATCH):
            yield _SEPARATOR.join(map(encode_item, batch))
        return
    for start in range(0, len(items), _ITEMS_PER_COPY):
        stop = min(start + _ITEMS_PER_COPY, len(items))
        if alive is None:
            yield items.lines(start, stop)
            continue
        edges = np.diff(alive[start:stop].view(np.int8), prepend=0, append=0)
        bounds = (np.flatnonzero(edges) + start).reshape(-1, 2).tolist()
        if bounds:
            yield _SEPARATOR.join(items.lines(first, last) for first, last in bounds)


def text_of(parts: Iterable[ItemsWithBitset], pause: Callable[[], None]) -> Iterator[_Text]:
    """Yield the pieces of the text of the live items of some segments, in order: a JSON array, empty where
    there are none. `pause` is called between steps."""
    separator = _BEGIN
    for items, alive in parts:
        for lines in live_lines(items, alive):
            yield separator
            yield lines
            separator = _SEPARATOR
            pause()
    yield _END if separator is _SEPARATOR else b"[]"


def _item(item_id: str, labels: list[str] | tuple[str, ...], metadata: dict[str, Any]) -> IndexedItem:
    return IndexedItem(item_id, tuple(labels), metadata)


def _line_ends(text: _Text) -> npt.NDArray[np.int64]:
    view, newline = np.frombuffer(text, np.uint8), ord("\n")
    steps = range(0, len(text), _TEXT_PER_STEP)
    return np.concatenate(
        [np.flatnonzero(view[step : step + _TEXT_PER_STEP] == newline) + step for step in steps]
    )


class ItemIds:
    """Ids without duplicates that are looked for in several segments, hashed once."""

    def __init__(self, ids: Collection[str]) -> None:
        self.ids: Sequence[str] = list(ids)
        self.hashes = _hash(self.ids, len(self.ids), no_pause)


class ItemRows:
    """Finds rows by the ids of their items, by sorted hashes, which take 12 bytes a row and no objects."""

    # A dictionary of a million ids takes 90 bytes a row, and two thirds of a second in which no other thread
    # runs.

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
