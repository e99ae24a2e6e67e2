"""Features of contents by other encoders than those that the items have, in SQL."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from app.db.models import ENCODED_CONTENTS
from app.db.statements import in_chunks, insert_into
from app.domain.entities import Collection, Modality, Vector, vector_bytes, vector_of

_TABLE = ENCODED_CONTENTS.c


class EncodedContentRepository:
    """Features by collection, modality, encoding and hash of the content."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def hashes(self, collection: Collection, modality: Modality) -> set[str]:
        """Return the hashes of all contents that there are features of."""
        query = select(_TABLE.content_hash).where(_is_of(collection, modality))
        return set(self._session.scalars(query))

    def find(self, collection: Collection, modality: Modality, hashes: Sequence[str]) -> dict[str, Vector]:
        """Return the features that there are, by hash."""
        query = select(_TABLE.content_hash, _TABLE.features).where(_is_of(collection, modality))
        return {
            content_hash: vector_of(features)
            for chunk in in_chunks(hashes)
            for content_hash, features in self._session.execute(query.where(_TABLE.content_hash.in_(chunk)))
        }

    def put(self, collection: Collection, modality: Modality, features: Mapping[str, Vector]) -> None:
        """Store features by hash; those that are there stay."""
        rows = [
            {
                "collection_id": collection.id,
                "modality": modality.name,
                "encoding": modality.encoding,
                "content_hash": content_hash,
                "features": vector_bytes(vector),
            }
            for content_hash, vector in features.items()
        ]
        if not rows:
            return
        self._session.execute(insert_into(self._session, ENCODED_CONTENTS).on_conflict_do_nothing(), rows)

    def forget(self, collection: Collection, modality: Modality, hashes: Sequence[str]) -> None:
        """Remove the features of contents that no item has any more."""
        for chunk in in_chunks(hashes):
            self._session.execute(
                delete(ENCODED_CONTENTS).where(_is_of(collection, modality), _TABLE.content_hash.in_(chunk))
            )

    def keep_only(self, collection: Collection, encodings: AbstractCollection[str]) -> None:
        """Remove the features of all other encodings."""
        is_unused = _TABLE.encoding.not_in(sorted(encodings))
        self._session.execute(
            delete(ENCODED_CONTENTS).where(_TABLE.collection_id == collection.id, is_unused)
        )


def _is_of(collection: Collection, modality: Modality) -> ColumnElement[bool]:
    return (
        (_TABLE.collection_id == collection.id)
        & (_TABLE.modality == modality.name)
        & (_TABLE.encoding == modality.encoding)
    )
