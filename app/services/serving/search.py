"""Answering a query of one modality with ranked items of the other."""

from __future__ import annotations

import time
from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.domain.entities import HIT_FIELDS, Content, Features, Hit, Item, ItemFilter, Matrix, SearchResult
from app.domain.errors import InvalidFieldError, UnknownLabelError, UnknownModalityError
from app.domain.names import joined, some_of
from app.domain.ports import UnitOfWork
from app.services.models.features import item_features
from app.services.serving.galleries import Gallery, Row
from app.services.serving.renewals import Aside
from app.services.serving.shown_items import fetch_shown
from app.services.serving.snapshots import Snapshot, Snapshots
from solver import can_be_ranked, is_finite


@dataclass(frozen=True, slots=True)
class Query:
    """One query: raw content, or the id of an item of the source modality."""

    content: Content | None = None
    item_id: str | None = None
    place: str = ""
    """Where it stands in what the client sent, such as ``queries.0``."""

    @property
    def field(self) -> str:
        """Path of what is searched with."""
        return joined(self.place, "item_id" if self.content is None else self.content.field)


class SearchService:
    """Ranks one gallery for queries of the other modality.

    Parameters
    ----------
    snapshots : Snapshots
        What is searched, and what is shown of the hits.
    max_hits : int
        Most results in one call, over all its queries, those before the first one wanted counted too.
    max_answer_bytes : int
        Most bytes of what is shown of all results in one call.
    """

    def __init__(self, snapshots: Snapshots, max_hits: int, max_answer_bytes: int) -> None:
        self._max_hits = max_hits
        self._max_answer_bytes = max_answer_bytes
        self._snapshots = snapshots

    def search(
        self,
        collection: str,
        source: str,
        target: str,
        queries: Sequence[Query],
        k: int,
        offset: int,
        item_filter: ItemFilter,
        fields: AbstractCollection[str] = HIT_FIELDS,
        aside: Aside | None = None,
        least_revision: int | None = None,
    ) -> list[SearchResult]:
        """Return the ranked results of each query, all from one snapshot.

        Parameters
        ----------
        collection : str
            Name.
        source, target : str
            The two modalities.
        queries : sequence of Query
            Of the source modality.
        k, offset : int
            Results offset + 1 to offset + k of the ranking.
        item_filter : ItemFilter
            Only these items are ranked.
        fields : collection of str
            Which of `HIT_FIELDS` the results need; items come without the others.
        aside, least_revision
            As of `Snapshots.reading`, which raises what is not listed here.

        Raises
        ------
        UnknownModalityError
            If the direction is not one of the collection's two.
        ModelNotTrainedError
            If there is no active model.
        InvalidFieldError, ItemNotFoundError
            If a query cannot be encoded, or too many results are asked for at once.
        UnknownLabelError
            If the filter names a label that no item carries.
        ContentTooLargeError
            If what is shown of the results would be too large.
        """
        begin = time.perf_counter()
        self._check_hits(len(queries), k, offset)
        # One transaction, so that what is shown of the hits is what their scores were computed from.
        with self._snapshots.reading(collection, aside, least_revision) as (snapshot, work):
            _check_direction(snapshot, source, target)
            _check_labels(snapshot, item_filter)
            projected = _project(snapshot, work, source, queries)
            gallery = snapshot.galleries[target]
            pages = [gallery.search(row[None, :], k, offset, item_filter) for row in projected]
            hits = (row for page in pages for row, _ in page)
            items = fetch_shown(work, snapshot.collection, target, hits, fields, self._max_answer_bytes)
        took_ms = (time.perf_counter() - begin) * 1000.0
        notices = _notices(gallery, target)
        return [_result(snapshot, page, offset, items, took_ms, notices) for page in pages]

    def _check_hits(self, n_queries: int, k: int, offset: int) -> None:
        """Refuse too much work in one call; raises InvalidFieldError.

        What is passed over has to be ranked too; one query alone may go as deep as it likes.
        """
        ranked = offset + k if n_queries > 1 else k
        if n_queries * ranked > self._max_hits:
            field = "k" if n_queries * k > self._max_hits else "offset"
            raise InvalidFieldError(
                field,
                f"{n_queries} queries with {ranked} ranked results each are {n_queries * ranked} results, "
                f"at most {self._max_hits} allowed in one call",
            )


def _project(snapshot: Snapshot, work: UnitOfWork, source: str, queries: Sequence[Query]) -> Matrix:
    encoder = snapshot.model.encoders[source]
    features: list[Features] = []
    for query in queries:
        if query.item_id is not None:
            features.append(_item_features(snapshot, work, source, query.field, query.item_id))
        elif query.content is not None:
            encoder.check(query.field, query.content)
            encoded = encoder.encode([query.content])
            if not is_finite(encoded):
                raise InvalidFieldError(query.field, "its features are not finite")
            features.append(encoded)
    # One by one: a product of many rows rounds otherwise, and scores would depend on the batch.
    projected = np.concatenate([snapshot.model.project(source, row) for row in features])
    for number in np.flatnonzero(~can_be_ranked(projected)).tolist():
        raise InvalidFieldError(
            queries[number].field, "lies too far outside of what the model was trained on"
        )
    return projected


def _item_features(snapshot: Snapshot, work: UnitOfWork, source: str, field: str, item_id: str) -> Features:
    item = work.items.get(snapshot.collection, item_id)
    if item.modality != source:
        raise InvalidFieldError(field, f"item {item_id!r} is of modality {item.modality!r}, not {source!r}")
    return item_features([item], snapshot.model.encoders[source])


def _check_direction(snapshot: Snapshot, source: str, target: str) -> None:
    names = snapshot.collection.modality_names
    for field, name in (("source", source), ("target", target)):
        if name not in names:
            raise UnknownModalityError(field, name, names)
    if source == target:
        raise InvalidFieldError("target", f"must be the other modality than {source!r}")


def _check_labels(snapshot: Snapshot, item_filter: ItemFilter) -> None:
    for number, label in enumerate(item_filter.labels or ()):
        if not any(gallery.has_label(label) for gallery in snapshot.galleries.values()):
            raise UnknownLabelError(f"filter.labels.{number}", label, snapshot.collection.name)


def _result(
    snapshot: Snapshot,
    page: list[tuple[Row, float]],
    offset: int,
    items: Mapping[str, Item],
    took_ms: float,
    notices: tuple[str, ...],
) -> SearchResult:
    probabilities = snapshot.model.projector.probability(np.asarray([score for _, score in page])).tolist()
    hits: list[Hit] = []
    for rank, ((row, score), probability) in enumerate(zip(page, probabilities, strict=True), offset + 1):
        hits.append(Hit(row.id, rank, score, probability, items[row.id]))
    return SearchResult(
        model_version=snapshot.model.version,
        index_revision=snapshot.collection.revision,
        exact=True,
        took_ms=took_ms,
        hits=tuple(hits),
        notices=notices,
    )


def _notices(gallery: Gallery, modality: str) -> tuple[str, ...]:
    """Return what whoever searches a gallery should know of it."""
    if not gallery.unranked:
        return ()
    told = some_of(sorted(gallery.unranked))
    return (f"of {modality!r}, {told} lie outside the model's range and are not ranked",)
