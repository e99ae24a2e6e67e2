"""Feedback in SQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, null, select

from app.db.models import FEEDBACK, FeedbackRow
from app.db.statements import Repository, copy_fields, in_chunks, now
from app.domain.entities import Collection, Feedback, Item, value_of, vector_bytes, vector_of
from app.domain.errors import NotFoundError

_ROWS_PER_PAGE = 1000
"""Enough that the fixed cost of a query is small beside its rows; bounds the memory of a walk."""
_AnyRow = Row[*tuple[Any, ...]]


class FeedbackRepository(Repository):
    """Feedback on the items of a collection."""

    def add(self, collection: Collection, feedback: Sequence[Feedback]) -> list[int]:
        """Store feedback and return its ids, which grow in its order."""
        created_at = now(self._session)
        rows = [_row(collection, entry) for entry in feedback]
        for row in rows:
            row.created_at = created_at
        self._session.add_all(rows)
        self._session.flush()
        return [row.id for row in rows]

    def page(self, collection: Collection, after: int, limit: int) -> list[Feedback]:
        """Return feedback with an id above `after`, in order of ids, without features."""
        return [_entry(row) for row in self._rows(collection, after, limit, null())]

    def all(self, collection: Collection) -> Iterator[Feedback]:
        """Yield all feedback in order of ids, the latest last. The items that it names exist, since feedback
        goes with a deleted item; one that was replaced may be of the other modality by now."""
        after = 0
        # Page by page: a caller that stops early leaves no cursor open in the database.
        while rows := self._rows(collection, after, _ROWS_PER_PAGE, FEEDBACK.c.features):
            yield from map(_entry, rows)
            after = rows[-1].id

    def count_since(self, collection: Collection, moment: datetime) -> int:
        """Return how much was stored after a moment."""
        query = select(func.count()).select_from(FEEDBACK)
        return self._session.scalar(query.where(_is_of(collection), FEEDBACK.c.created_at > moment)) or 0

    def delete(self, collection: Collection, feedback_id: int) -> set[str]:
        """Delete one; raises NotFoundError."""
        query = select(FEEDBACK.c.id).where(_is_of(collection), FEEDBACK.c.id == feedback_id)
        if self._session.scalar(query) is None:
            raise NotFoundError(
                "feedback-not-found", f"collection {collection.name!r} has no feedback {feedback_id}"
            )
        return self._delete(collection, FEEDBACK.c.id == feedback_id)

    def delete_of_items(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        """Delete all that is about some items, or has one of them as the query."""
        # One after the other, each by its own index.
        places = (FEEDBACK.c.item_id, FEEDBACK.c.query_item_id)
        parts = itertools.product(places, in_chunks(item_ids))
        return set().union(*(self._delete(collection, place.in_(chunk)) for place, chunk in parts))

    def keep_newest(self, collection: Collection, most: int) -> set[str]:
        """Delete all but the newest `most`."""
        newest_first = select(FEEDBACK.c.id).where(_is_of(collection)).order_by(FEEDBACK.c.id.desc())
        last = self._session.scalar(newest_first.offset(most).limit(1))
        return set() if last is None else self._delete(collection, FEEDBACK.c.id <= last)

    def _rows(
        self, collection: Collection, after: int, limit: int, features: ColumnElement[Any]
    ) -> Sequence[_AnyRow]:
        columns = [column for column in FEEDBACK.columns if column.name != "features"]
        query = select(*columns, features.label("features"))
        query = query.where(_is_of(collection), FEEDBACK.c.id > after)
        return self._session.execute(query.order_by(FEEDBACK.c.id).limit(limit)).all()

    def _delete(self, collection: Collection, condition: ColumnElement[bool]) -> set[str]:
        deleted = delete(FEEDBACK).where(_is_of(collection), condition).returning(FEEDBACK.c.content_hash)
        return {value for value in self._session.scalars(deleted) if value is not None}


def _is_of(collection: Collection) -> ColumnElement[bool]:
    return FEEDBACK.c.collection_id == collection.id


def _row(collection: Collection, feedback: Feedback) -> FeedbackRow:
    row = FeedbackRow(collection_id=collection.id)
    copy_fields(feedback, row, ("source", "target", "item_id", "is_relevant", "query_item_id"))
    query = feedback.query or Item("", feedback.source)
    copy_fields(query, row, ("text", "content_hash", "content_type", "encoding"))
    row.features = None if query.features is None else vector_bytes(query.features)
    return row


def _entry(row: _AnyRow) -> Feedback:
    if row.query_item_id is not None:
        return value_of(Feedback, row, query=None)
    features = None if row.features is None else vector_of(row.features)
    facts = (row.text, row.content_hash, row.content_type, features)
    return value_of(Feedback, row, query=Item("", row.source, *facts, encoding=row.encoding))
