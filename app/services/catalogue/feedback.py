"""Feedback on search results: what clients say is relevant to a query, stored for the next retrain."""
# A query by content is stored like an item, since an encoder that is fitted with the model has to encode it
# again: a text, a vector, or a picture under the hash of its content. Feedback changes no gallery, so the
# collection's revision stays. It goes with an item that it names, and with the collection; beyond a bound the
# oldest goes.

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Content, Feedback, Item, json_bytes
from app.domain.errors import InvalidFieldError, item_not_found, unknown_modality
from app.domain.names import check_storable, join_path
from app.services.catalogue.preparation import NewItem, Preparation
from app.services.storage.sweeping import GarbageCollector
from app.services.storage.writing import lock_collection

_ROWS_PER_FETCH = 250  # feedback of a page that is read before its size is checked again


@dataclass(frozen=True, slots=True)
class NewFeedback:
    """Feedback as a client sends it; the query is either content or the id of an item."""

    source: str
    target: str
    item_id: str
    is_relevant: bool
    content: Content | None = None
    query_item_id: str | None = None
    place: str = ""  # where it stands in what the client sent, such as ``feedback.3``


@dataclass(eq=False)
class FeedbackService:
    """Stores feedback, each call whole or not at all, and lists and deletes it; beyond `max_entries` of a
    collection the oldest goes."""

    _database: Database
    _preparation: Preparation
    _garbage_collector: GarbageCollector
    _max_entries: int
    _max_answer_bytes: int

    def add(self, name: str, new: Sequence[NewFeedback]) -> tuple[int, ...]:
        """Check and encode feedback, then store all of it; return its ids, in its order.
        Raises InvalidFieldError, NotFoundError and ContentTooLargeError."""
        with self._database.read() as work:
            collection = work.collections.get(name)
        for entry, field in itertools.product(new, ("source", "target")):
            if (modality := getattr(entry, field)) not in collection.modality_names:
                raise unknown_modality(join_path(entry.place, field), modality, collection.modality_names)
        queries = [NewItem(entry.source, entry.content) for entry in new if entry.content is not None]
        places = [join_path(entry.place, "query") for entry in new if entry.content is not None]
        expected = self._preparation.with_first_items(collection, queries)
        items = self._preparation.items(expected, places, queries, lambda _: "")
        with self._database.read() as work:
            _check_items(work, collection, new)
        first_places = {query.modality: places[n] for n, query in reversed(list(enumerate(queries)))}
        stored: list[str] = []
        try:
            # Nothing is left to refuse but what another writer does right now: the files come last.
            items = self._preparation.with_pictures(items, queries, stored)
            with self._database.write() as work:
                current = lock_collection(work, collection)
                _check_items(work, current, new)
                self._preparation.settle(work, current, expected, first_places)
                ids = tuple(work.feedback.add(current, _entries(new, items)))
                dropped = work.feedback.keep_newest(current, self._max_entries)
        except Exception:
            self._garbage_collector.sweep_after_delete(stored)
            raise
        if dropped:
            self._garbage_collector.sweep_after_delete(sorted(dropped))
        return ids

    def page(self, name: str, after: int, limit: int) -> tuple[list[Feedback], bool]:
        """Return feedback with an id above `after`, in order of ids, without features, and whether none
        follows; it ends before `limit` where its texts would be larger than an answer may be."""
        rows: list[Feedback] = []
        size = 0
        with self._database.read() as work:
            collection = work.collections.get(name)
            while len(rows) <= limit:
                n_rows = min(limit + 1 - len(rows), _ROWS_PER_FETCH)
                batch = work.feedback.page(collection, after, n_rows)
                for row in batch:
                    size += 0 if row.query is None else json_bytes(row.query)
                    if rows and size > self._max_answer_bytes:
                        return rows, False
                    rows.append(row)
                if len(batch) < n_rows:
                    return rows, True
                after = rows[-1].id
        return rows[:limit], False

    def delete(self, name: str, feedback_id: int) -> None:
        """Delete one; raises NotFoundError."""
        with self._database.read() as work:
            collection = work.collections.get(name)
        with self._database.write() as work:
            pictures = work.feedback.delete(lock_collection(work, collection), feedback_id)
        if pictures:
            self._garbage_collector.sweep_after_delete(sorted(pictures))


def _entries(new: Sequence[NewFeedback], items: Sequence[Item]) -> list[Feedback]:
    """Return what is stored; `items` are the queries that have content, in order."""
    queries = iter(items)
    return [
        Feedback(
            entry.source,
            entry.target,
            entry.item_id,
            entry.is_relevant,
            entry.query_item_id,
            None if entry.content is None else next(queries),
        )
        for entry in new
    ]


def _check_items(work: UnitOfWork, collection: Collection, new: Sequence[NewFeedback]) -> None:
    """Check that every item that is named exists in the modality that it is named for."""
    named = [use for entry in new for use in _uses(entry)]
    for place, item_id, _ in named:
        check_storable(place, item_id)
    items = work.items.get_many(collection, sorted({item_id for _, item_id, _ in named}), ())
    for place, item_id, modality in named:
        if item_id not in items:
            raise item_not_found(collection.name, item_id, place)
        if items[item_id].modality != modality:
            actual = items[item_id].modality
            raise InvalidFieldError(place, f"item {item_id!r} is of modality {actual!r}, not {modality!r}")


def _uses(entry: NewFeedback) -> list[tuple[str, str, str]]:
    """Return place, id and modality of every item that feedback names."""
    uses = [(join_path(entry.place, "item_id"), entry.item_id, entry.target)]
    if entry.query_item_id is not None:
        uses.append((join_path(entry.place, "query.item_id"), entry.query_item_id, entry.source))
    return uses
