"""Answering a query of one modality with ranked items of the other."""

from __future__ import annotations

import time
from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.domain.entities import (
    HIT_FIELDS,
    Content,
    Features,
    Hit,
    Item,
    ItemFilter,
    Matrix,
    Notice,
    SearchResult,
    WordReport,
)
from app.domain.errors import InvalidFieldError, UnknownLabelError, UnknownModalityError
from app.domain.names import join_path
from app.domain.ports import UnitOfWork
from app.services.models.features import item_features
from app.services.serving.galleries import Gallery
from app.services.serving.hit_items import fetch_hit_items
from app.services.serving.notices import unranked_notices, word_notices
from app.services.serving.segments import IndexedItem
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.serving.waiting_room import ReleaseSlot
from solver import can_be_ranked, is_finite


@dataclass(frozen=True, slots=True)
class Query:
    """One query: raw content, or the id of an item of the source modality."""

    content: Content | None = None
    item_id: str | None = None
    path: str = ""
    """Where the query stands in the request, such as ``queries.0``."""

    @property
    def field(self) -> str:
        """Path of the content or id in the request."""
        return join_path(self.path, "item_id" if self.content is None else self.content.field)


class SearchService:
    """Ranks one gallery for queries of the other modality.

    Parameters
    ----------
    snapshots : SnapshotReader
        Opens what is searched.
    max_hits : int
        Most results that one call may rank, over all its queries, those before `offset` included.
    max_answer_bytes : int
        Most bytes of the results' items in one call.
    """

    def __init__(self, snapshots: SnapshotReader, max_hits: int, max_answer_bytes: int) -> None:
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
        release_slot: ReleaseSlot | None = None,
        min_revision: int | None = None,
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
            Results offset + 1 to offset + k of the ranking are returned.
        item_filter : ItemFilter
            Only items that match it are ranked.
        fields : collection of str
            Which of `HIT_FIELDS` the results need; items come without the others. As of `fetch_hit_items`.
        release_slot, min_revision
            As of `SnapshotReader.open`, whose errors may be raised, too.

        Raises
        ------
        UnknownModalityError
            If the direction is not one of the collection's two.
        ModelNotTrainedError
            If there is no active model.
        InvalidFieldError, ItemNotFoundError
            If a query cannot be encoded, or too many results are requested in one call.
        UnknownLabelError
            If the filter names a label that no item carries.
        ContentTooLargeError
            If the results' items together are larger than one answer may be.
        """
        began = time.perf_counter()
        self._check_hits(len(queries), k, offset)
        # One transaction, so that hits are shown with the content that their scores were computed from.
        with self._snapshots.open(collection, release_slot, min_revision) as (snapshot, work):
            _check_direction(snapshot, source, target)
            _check_labels(snapshot, item_filter)
            projected = _project(snapshot, work, source, queries)
            gallery = snapshot.galleries[target]
            words = [_look_up_words(snapshot, source, query) for query in queries]
            can_match = np.asarray([report is None or report.n_known > 0 for report in words], np.bool)
            ranked = iter(gallery.search(projected[can_match], k, offset, item_filter))
            pages = [next(ranked) if is_ranked else [] for is_ranked in can_match]
            hits = (item for page in pages for item, _ in page)
            items = fetch_hit_items(work, snapshot.collection, target, hits, fields, self._max_answer_bytes)
        took_ms = (time.perf_counter() - began) * 1000.0
        of_gallery = unranked_notices(gallery, target)
        return [
            _result(snapshot, gallery, page, offset, items, took_ms, (*word_notices(report), *of_gallery))
            for page, report in zip(pages, words, strict=True)
        ]

    def _check_hits(self, n_queries: int, k: int, offset: int) -> None:
        """Reject calls that rank too many results; raises InvalidFieldError.

        Results before `offset` have to be ranked, too, and count; a single query may use any offset.
        """
        depth = offset + k if n_queries > 1 else k
        if n_queries * depth > self._max_hits:
            field = "k" if n_queries * k > self._max_hits else "offset"
            raise InvalidFieldError(
                field,
                f"{n_queries} queries with {depth} ranked results each are {n_queries * depth} results, "
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
    # One by one: a product of many rows may round otherwise, and scores would depend on the batch.
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


def _look_up_words(snapshot: Snapshot, source: str, query: Query) -> WordReport | None:
    """Return which words of a query are known; None for a stored item, whatever its words."""
    return None if query.content is None else snapshot.model.encoders[source].look_up_words(query.content)


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
    gallery: Gallery,
    page: list[tuple[IndexedItem, float]],
    offset: int,
    items: Mapping[str, Item],
    took_ms: float,
    notices: tuple[Notice, ...],
) -> SearchResult:
    probabilities = snapshot.model.projector.probability(np.asarray([score for _, score in page])).tolist()
    hits = [
        Hit(item.id, rank, score, probability, items[item.id])
        for rank, ((item, score), probability) in enumerate(zip(page, probabilities, strict=True), offset + 1)
    ]
    return SearchResult(
        model_version=snapshot.model.version,
        index_revision=snapshot.collection.revision,
        exact=gallery.is_exact,
        took_ms=took_ms,
        hits=tuple(hits),
        notices=notices,
    )
