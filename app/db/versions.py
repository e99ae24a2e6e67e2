"""Model versions in SQL: the history of activations, and features by the encoders of versions."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence

from sqlalchemy import ColumnElement, delete, func, select, update

from app.answers import Activation
from app.db.collections import modalities_of, modalities_to_json
from app.db.models import ENCODED_CONTENTS, ActivationRow, CollectionRow, ModelRow
from app.db.statements import Repository, in_chunks, insert_into
from app.domain.entities import Collection, Modality, ModelVersion, Vector, value_of, vector_bytes, vector_of
from app.domain.errors import NotFoundError
from app.domain.reports import TrainingReport


class ModelRepository(Repository):
    """Model versions of a collection."""

    def add(self, collection: Collection, model: ModelVersion) -> None:
        """Record a version, inactive."""
        names = ("version", "bundle", "manifest_hash", "index_revision", "created_at")
        modalities = None if model.modalities is None else modalities_to_json(model.modalities)
        row = ModelRow(collection_id=collection.id, facts=model.report.to_json(), modalities=modalities)
        self._add(row, model, *names)

    def next_version(self, collection: Collection) -> int:
        """Return the number a new version gets."""
        query = select(func.max(ModelRow.version)).where(ModelRow.collection_id == collection.id)
        return (self._session.scalar(query) or 0) + 1

    def get(self, collection: Collection, version: int) -> ModelVersion:
        """Return one; raises NotFoundError."""
        query = select(ModelRow).where(ModelRow.collection_id == collection.id, ModelRow.version == version)
        row = self._session.scalar(query)
        if row is None:
            raise NotFoundError(
                "model-not-found", f"collection {collection.name!r} has no model version {version}"
            )
        return _model(row, self._active_version(collection))

    def list(self, collection: Collection) -> list[ModelVersion]:
        """Return all, newest first."""
        query = select(ModelRow).where(ModelRow.collection_id == collection.id)
        active = self._active_version(collection)
        return [_model(row, active) for row in self._session.scalars(query.order_by(ModelRow.version.desc()))]

    def delete(self, collection: Collection, versions: Sequence[int]) -> None:
        """Forget versions; their bundles stay on disk until they are swept."""
        self._session.execute(
            delete(ModelRow).where(ModelRow.collection_id == collection.id, ModelRow.version.in_(versions))
        )

    def used_bundles(self, bundles: Sequence[str]) -> set[str]:
        """Return which of the bundles any version of any collection has."""
        return self._find_used(ModelRow.bundle, bundles)

    def replace_active(self, collection: Collection, version: int, expected: int | None) -> bool:
        """Make a version the one that serves if `expected` is (None: none is); return whether it was."""
        swapped = self._session.scalar(
            update(CollectionRow)
            .where(CollectionRow.id == collection.id)
            .where(CollectionRow.active_version.is_not_distinct_from(expected))
            .values(active_version=version)
            .returning(CollectionRow.id)
        )
        return swapped is not None

    def record_activation(self, collection: Collection, activation: Activation) -> None:
        """Add to the history of what was active when."""
        row = ActivationRow(collection_id=collection.id, actor=activation.by)
        self._add(row, activation, "version", "previous", "at", "reason")

    def activations(self, collection: Collection, limit: int) -> Sequence[Activation]:
        """Return that history, newest first."""
        query = select(ActivationRow).where(ActivationRow.collection_id == collection.id)
        rows = self._session.scalars(query.order_by(ActivationRow.id.desc()).limit(limit))
        return [Activation(row.version, row.previous, row.at, row.actor, row.reason) for row in rows]

    def _active_version(self, collection: Collection) -> int | None:
        return self._session.scalar(
            select(CollectionRow.active_version).where(CollectionRow.id == collection.id)
        )


def _model(row: ModelRow, active_version: int | None) -> ModelVersion:
    modalities = None if row.modalities is None else modalities_of(row.modalities)
    report, is_active = TrainingReport.from_json(row.facts), row.version == active_version
    return value_of(ModelVersion, row, report=report, is_active=is_active, modalities=modalities)


_TABLE = ENCODED_CONTENTS.c


class EncodedContentRepository(Repository):
    """Features by collection, modality, encoding and hash of the content."""

    def hashes(self, collection: Collection, modality: Modality) -> set[str]:
        """Return the hashes of all contents that there are features of."""
        query = select(_TABLE.content_hash).where(_is_of(collection, modality))
        return set(self._session.scalars(query))

    def find(self, collection: Collection, modality: Modality, hashes: Sequence[str]) -> dict[str, Vector]:
        """Return the features that there are, by hash."""
        query = select(_TABLE.content_hash, _TABLE.features).where(_is_of(collection, modality))
        return {
            content_hash: vector_of(features)
            for content_hash, features in self._execute_for(query, _TABLE.content_hash, hashes)
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
        if rows:
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
