"""Store what sources yield: in batches, without what is stored already, and without what is refused."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from app.bootstrap import Services
from app.cli.sources.rows import Refusal, Row
from app.domain.entities import Counts, Modality
from app.domain.errors import CollectionNotFoundError, ContentTooLargeError, InvalidFieldError
from app.services.catalogue.preparation import ItemChange, NewItem, content_id
from app.services.storage.pacing import in_batches

_BATCH = 200  # items per transaction: pictures of one batch fit into memory
_Entry = TypeVar("_Entry")
_EXAMPLES, _MOST_PLACES, _MOST_REASONS = 3, 1000, 100
"""Rows of a reason that are named, and that are kept; and reasons that are counted by themselves."""
_OTHER_REASONS = "other reasons"
Refuse = Callable[[str, str, str], None]


class Refusals:
    """Rows that are no items, by reason: of each the first few are printed, and the others counted."""

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print = print_line
        self._counts: Counter[str] = Counter()
        self._places: dict[str, list[str]] = {}

    def add(self, place: str, reason: str, kind: str) -> None:
        """Count a row; `kind` is the reason without what only this row has."""
        group = kind if kind in self._places or len(self._places) < _MOST_REASONS else _OTHER_REASONS
        self._counts[group] += 1
        places = self._places.setdefault(group, [])
        if len(places) < _MOST_PLACES:
            places.append(place)
        if self._counts[group] <= _EXAMPLES:
            self._print(f"refused: {place}: {reason}" if place else f"refused: {reason}")

    def print_rest(self) -> None:
        """Print how many more there were of each reason."""
        for kind, count in self._counts.items():
            if count > _EXAMPLES:
                self._print(f"refused: and {count - _EXAMPLES} more (--json names them): {kind}")

    @property
    def total(self) -> int:
        """Rows that are not stored."""
        return self._counts.total()

    @property
    def reasons(self) -> list[dict[str, Any]]:
        """Each reason with its count and its places, as many as can be kept."""
        return [
            {"reason": kind, "count": count, "places": self._places[kind]}
            for kind, count in self._counts.items()
        ]


def _open_table(columns: str) -> sqlite3.Connection:
    """Return a database with a table, `seen`, in a temporary file: more rows may go by than memory holds."""
    table = sqlite3.connect("", isolation_level=None)
    table.execute("PRAGMA journal_mode = OFF")
    table.execute(f"CREATE TABLE seen (id TEXT PRIMARY KEY{columns}) WITHOUT ROWID")
    return table


def _find_earlier(table: sqlite3.Connection, row: NewItem | ItemChange) -> tuple[str, bool] | None:
    """Return the place of the row before that has the same id, and whether it is the same; None: it is new,
    and is remembered."""
    if isinstance(row, ItemChange):
        name, digest = " ".join(row.ids), json.dumps([row.labels, row.metadata], sort_keys=True)
    else:
        name, digest = str(row.id), content_id(row)
    facts = (name, row.place or "", digest)
    if table.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", facts).rowcount:
        return None
    place, earlier = table.execute("SELECT place, digest FROM seen WHERE id = ?", (name,)).fetchone()
    return place, earlier == digest


class KeptIds:
    """Ids of the items of rows that went by."""

    def __init__(self) -> None:
        self.n_items = self.n_refusals = 0  # those without items have no ids that are known
        self._table = _open_table("")

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows."""
        for row in rows:
            if isinstance(row, Refusal):
                self.n_refusals += 1
            else:
                self.n_items += 1
                ids = row.ids if isinstance(row, ItemChange) else (str(row.id),)
                self._table.executemany("INSERT OR IGNORE INTO seen VALUES (?)", [(one,) for one in ids])
            yield row

    def has(self, item_id: str) -> bool:
        """Return whether it was one of them."""
        query = "SELECT 1 FROM seen WHERE id = ?"
        return self._table.execute(query, (item_id,)).fetchone() is not None


def ensure_collection(services: Services, name: str, modalities: Sequence[Modality]) -> bool:
    """Create the collection unless it exists, and return whether it did not; raises InvalidFieldError if it
    has other modalities."""
    try:
        collection, _ = services.catalogue.collection(name)
    except CollectionNotFoundError:
        services.catalogue.create(name, modalities)
        return True
    expected = [modality.name for modality in modalities]
    if sorted(collection.modality_names) != sorted(expected):
        present, required = " and ".join(collection.modality_names), " and ".join(expected)
        raise InvalidFieldError("--modalities", f"collection {name!r} has {present}, not {required}")
    return False


def used_modalities(services: Services, name: str, described: Sequence[Modality]) -> list[Modality]:
    """Return the modalities with the encoders of the collection, where there is one that has them."""
    try:
        collection, _ = services.catalogue.collection(name)
    except CollectionNotFoundError:
        return list(described)
    stored = {modality.name: modality for modality in collection.modalities}
    return [stored.get(modality.name, modality) for modality in described]


def store(
    services: Services,
    name: str,
    rows: Iterable[Row],
    on_stored: Callable[[int], None],
    on_refused: Refuse | None = None,
) -> Counts:
    """Store items in batches, replacing those with the same id if they differ; what is there already is not
    encoded again. Items have ids, so that an interrupted call can be repeated."""
    # `on_stored` gets the number of rows just done with. `on_refused` gets the place of a row that is no
    # item, the reason, and the reason without what only this row has; by default, the first one raises.
    seen = _open_table(", place TEXT, digest TEXT")
    stored = Counts()
    last = ("", "")

    def refuse(place: str, reason: str, kind: str = "") -> None:
        nonlocal last
        if on_refused is None:
            raise InvalidFieldError(place, reason)
        kind = kind or reason.partition(", got ")[0]
        if (place, kind) != last:  # both items of a row may have it
            on_refused(place, reason, kind)
        last = (place, kind) if place else ("", "")

    def add(items: Sequence[NewItem]) -> Counts:
        return services.catalogue.add_items(name, items, replace=True).counts

    def change(changes: Sequence[ItemChange]) -> Counts:
        written, missing = services.catalogue.change_items(name, changes)
        for entry in missing:
            kind = "it has no content, and there is no item of its id to change"
            refuse(entry.place, f"{kind}: {entry.ids[-1]!r}", kind)
        return written.counts

    for batch in in_batches(rows, _BATCH):
        items: list[NewItem] = []
        changes: list[ItemChange] = []
        for row in batch:
            if isinstance(row, Refusal):
                refuse(row.place, row.reason)
            elif (earlier := _find_earlier(seen, row)) is not None:
                place, is_same = earlier
                how = "is the same" if is_same else "differs"
                row_id = row.ids[-1] if isinstance(row, ItemChange) else row.id
                reason = f"another row before it has the id {row_id!r}: {place}, which {how}"
                refuse(row.place or "items", reason, f"another row before has its id, and {how}")
            elif isinstance(row, ItemChange):
                changes.append(row)
            else:
                items.append(row)
        same = services.catalogue.find_unchanged(name, items)
        differing = [item for number, item in enumerate(items) if number not in same]
        refuse_one = refuse if on_refused is not None else None
        stored += Counts(unchanged=len(same)) + _write(add, differing, refuse_one)
        stored += _write(change, changes, refuse_one)
        on_stored(len(batch))
    return stored


def _write(
    write: Callable[[Sequence[_Entry]], Counts],
    entries: Sequence[_Entry],
    refuse: Callable[[str, str], None] | None,
) -> Counts:
    """Store entries; where some are refused, halves of them, until each of these is alone."""
    if not entries:
        return Counts()
    try:
        return write(entries)
    except (InvalidFieldError, ContentTooLargeError) as error:
        if refuse is None:
            raise
        if len(entries) == 1:
            place = str(getattr(error, "field", ""))
            refuse(place, str(error).removeprefix(f"{place}: "))
            return Counts()
    middle = len(entries) // 2
    return _write(write, entries[:middle], refuse) + _write(write, entries[middle:], refuse)
