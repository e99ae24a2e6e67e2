"""Answering a query of one modality with ranked items of the other, or of the same one."""

from __future__ import annotations

import time
from collections.abc import Collection as AbstractCollection
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import (
    HIT_FIELDS,
    Content,
    Features,
    Hit,
    ItemFilter,
    Matrix,
    Notice,
    SearchResult,
    ShownItem,
    WordReport,
)
from app.domain.errors import (
    DamagedBundleError,
    InvalidFieldError,
    ModelNotTrainedError,
    ServiceError,
    UnknownLabelError,
    UnknownModalityError,
)
from app.domain.names import join_path
from app.domain.ports import UnitOfWork
from app.services.models.features import item_features
from app.services.serving.column_reader import ColumnReader, Needs
from app.services.serving.gallery import Gallery, Page
from app.services.serving.hit_items import fetch_hit_items
from app.services.serving.item_columns import ColumnNames
from app.services.serving.notices import unranked_notices, weak_match_notices, word_notices
from app.services.serving.recall_monitor import RecallMonitor
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import MustWaitError, SnapshotReader
from app.services.serving.version_snapshots import VersionSnapshots
from app.services.serving.waiting_room import ReleaseSlot
from solver import can_be_ranked, is_finite

_NO_FILTER = ItemFilter()
_LIGHT_NUMBERS = 1 << 22
"""Numbers that a light search compares at most: 100,000 rows of 40, which takes .3 ms."""
_LIGHT_BYTES = 1 << 16
"""Memory of the items that it shows: more would take milliseconds to be read and written."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query: raw content, or the id of an item of the source modality."""

    content: Content | None = None
    item_id: str | None = None
    path: str = ""
    """Where the query stands in the request, such as ``queries.0``."""

    @property
    def is_text(self) -> bool:
        """Whether it is a text of its own."""
        return self.content is not None and self.content.text is not None

    @property
    def field(self) -> str:
        """Path of the content or id in the request."""
        return join_path(self.path, "item_id" if self.content is None else self.content.field)


@dataclass(frozen=True, slots=True)
class _Request:
    """Parameters of `SearchService.search`, and when it began."""

    source: str
    target: str
    queries: Sequence[Query]
    k: int
    offset: int
    item_filter: ItemFilter
    fields: AbstractCollection[str]
    began: float

    @property
    def is_within_one(self) -> bool:
        """Whether queries and results are of the same modality."""
        return self.source == self.target


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Projected queries of a request, their words, and which of them can match anything."""

    projected: Matrix
    words: Sequence[WordReport | None]
    can_match: npt.NDArray[np.bool]


@dataclass(frozen=True, slots=True)
class SingleSearch:
    """One search; parameters as of `SearchService.search`."""

    query: Query
    k: int
    offset: int
    fields: AbstractSet[str]
    min_revision: int | None
    item_filter: ItemFilter = _NO_FILTER
    began: float = field(default_factory=time.perf_counter)

    def request(self, source: str, target: str) -> _Request:
        """Return it with its direction."""
        return _Request(
            source, target, [self.query], self.k, self.offset, self.item_filter, self.fields, self.began
        )


class SearchService:
    """Ranks one gallery for queries of the other modality, or of its own; see `similar`.

    Parameters
    ----------
    snapshots : SnapshotReader
        Opens what is searched.
    versions : VersionSnapshots
        Opens versions that do not serve.
    recall_monitor : RecallMonitor
        Sees the queries.
    columns : ColumnReader
        Reads what filters compare.
    max_hits : int
        Most results that one call may rank, over all its queries, those before `offset` included.
    max_answer_bytes : int
        Most bytes of the results' items in one call.
    """

    def __init__(
        self,
        snapshots: SnapshotReader,
        versions: VersionSnapshots,
        recall_monitor: RecallMonitor,
        columns: ColumnReader,
        max_hits: int,
        max_answer_bytes: int,
    ) -> None:
        self._recall_monitor = recall_monitor
        self._columns = columns
        self._max_hits = max_hits
        self._max_answer_bytes = max_answer_bytes
        self._snapshots = snapshots
        self._versions = versions

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
            Modalities. Where they are the same, stored queries are not among their own results.
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
            If the collection does not have one of the two.
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
        request = _Request(source, target, queries, k, offset, item_filter, fields, began)
        while True:
            recalled = self._snapshots.recall(collection)
            if recalled is not None and _is_in_memory(recalled, request) and _can_filter(recalled, request):
                return self._answer(recalled, None, request)
            # One transaction, so that hits are shown with the content that their scores were computed from.
            with self._snapshots.open(collection, release_slot, min_revision) as (snapshot, work):
                if _can_filter(snapshot, request):
                    return self._answer(snapshot, work, request)
            self._columns.wait(snapshot.collection, _needs(snapshot, request), release_slot)

    def search_version(
        self,
        collection: str,
        version: int,
        direction: tuple[str, str],
        search: SingleSearch,
        release_slot: ReleaseSlot | None = None,
    ) -> SearchResult:
        """Return what a version finds, whether it serves or not.

        Parameters
        ----------
        collection : str
            Name.
        version : int
            Number of one of its versions.
        direction : tuple of str
            Modalities of query and results.
        search : SingleSearch
            What is asked for.
        release_slot : callable, optional
            As of `SnapshotReader.open`.

        Raises
        ------
        ModelNotFoundError, DamagedVersionError
            If there is no such version, or its bundle cannot be trusted; all others as of `search`.
        """
        self._check_hits(1, search.k, search.offset)
        request = search.request(*direction)
        with suppress(ModelNotTrainedError, DamagedBundleError):
            opened = self._snapshots.open(collection, release_slot, search.min_revision)
            with opened as (snapshot, work):
                if snapshot.model.version == version:
                    return self._answer_unseen(snapshot, work, request)
        with self._versions.open(collection, version) as (snapshot, work):
            return self._answer_unseen(snapshot, work, request)

    def search_together(
        self, collection: str, source: str, target: str, searches: Sequence[SingleSearch]
    ) -> list[SearchResult | Exception | None]:
        """Answer searches of several callers from one snapshot, each as `search` would.

        Parameters
        ----------
        collection, source, target
            As of `search`.
        searches : sequence of SingleSearch
            Quick ones: the first answer comes with the last.

        Returns
        -------
        list
            For each its result, or the error that `search` would raise; None where `search` has to answer it,
            which may wait.
        """
        if source == target:  # compares every row
            return [None] * len(searches)
        requests = [search.request(source, target) for search in searches]
        recalled = self._snapshots.recall(collection)
        if (
            recalled is not None
            and all(_is_in_memory(recalled, request) for request in requests)
            and all(_can_filter(recalled, request) for request in requests)
        ):
            return SharedSearch(self, recalled, None, requests).answer()
        revisions = [search.min_revision for search in searches if search.min_revision is not None]
        least = max(revisions) if len(revisions) == len(searches) else None
        try:
            with self._snapshots.open(collection, None, least, may_wait=False) as (snapshot, work):
                if all(_can_filter(snapshot, request) for request in requests):
                    return SharedSearch(self, snapshot, work, requests).answer()
                return [None] * len(searches)
        except (MustWaitError, ServiceError):
            return [None] * len(searches)

    def may_begin_now(self, collection: str, source: str, target: str) -> bool:
        """Return whether `begin_now` may return searches of a direction."""
        snapshot = self._snapshots.recall_likely(collection)
        return snapshot is not None and _reads_nothing(snapshot, source, target)

    def begin_now(
        self, collection: str, source: str, target: str, searches: Sequence[SingleSearch]
    ) -> SharedSearch | None:
        """Return light searches of several callers, all with the same filter.

        Parameters as of `search_together`; None where they might wait, or take longer.
        """
        snapshot = self._snapshots.recall(collection)
        if snapshot is None or not _reads_nothing(snapshot, source, target):
            return None
        gallery, item_filter = snapshot.galleries[target], searches[0].item_filter
        if gallery.numbers_per_search(item_filter) > _LIGHT_NUMBERS:
            return None
        if not _are_labels_ready(snapshot, item_filter):
            return None
        if max(search.k for search in searches) * gallery.bytes_per_item > _LIGHT_BYTES:
            return None
        requests = [search.request(source, target) for search in searches]
        if not all(_is_in_memory(snapshot, request) for request in requests):
            return None
        return SharedSearch(self, snapshot, None, requests)

    def _answer(self, snapshot: Snapshot, work: UnitOfWork | None, request: _Request) -> list[SearchResult]:
        """Answer from a snapshot; `work` may be None where everything `_is_in_memory`."""
        prepared = _prepare(snapshot, work, request)
        pages = _rank(snapshot.galleries[request.target], prepared, request)
        if not request.is_within_one:
            self._recall_monitor.see(snapshot, request.target, prepared.projected[prepared.can_match])
        return self._show(snapshot, work, request, prepared, pages)

    def _answer_unseen(self, snapshot: Snapshot, work: UnitOfWork, request: _Request) -> SearchResult:
        """Answer one query, which the monitor of the indexes that serve does not see."""
        prepared = _prepare(snapshot, work, request)
        pages = _rank(snapshot.galleries[request.target], prepared, request)
        (result,) = self._show(snapshot, work, request, prepared, pages)
        return result

    def _show(
        self,
        snapshot: Snapshot,
        work: UnitOfWork | None,
        request: _Request,
        prepared: _Prepared,
        pages: Sequence[Page],
    ) -> list[SearchResult]:
        """Return the results of ranked queries, with what they show of the items."""
        target, gallery = request.target, snapshot.galleries[request.target]
        hits = (item for page in pages for item, _ in page)
        read_from = None if _is_all_ranked(snapshot, target) else work
        items = fetch_hit_items(
            read_from, snapshot.collection, target, hits, request.fields, self._max_answer_bytes
        )
        took_ms = (time.perf_counter() - request.began) * 1000.0
        of_gallery = unranked_notices(gallery, target)
        return [
            _result(snapshot, request, query, page, items, took_ms, (*word_notices(report), *of_gallery))
            for query, page, report in zip(request.queries, pages, prepared.words, strict=True)
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


class SharedSearch:
    """Searches of several callers in one snapshot, all with the same filter; they are ranked together.

    Parameters
    ----------
    service : SearchService
        Which of them.
    snapshot : Snapshot
        What is searched.
    work : UnitOfWork or None
        Transaction to read from; None where everything is in memory.
    requests : sequence of _Request
        Of one query and the same direction each.
    """

    def __init__(
        self,
        service: SearchService,
        snapshot: Snapshot,
        work: UnitOfWork | None,
        requests: Sequence[_Request],
    ) -> None:
        self._service = service
        self._snapshot = snapshot
        self._work = work
        self._requests = requests
        self._outcomes: dict[int, SearchResult | Exception | None] = {}
        self._prepared: dict[int, _Prepared] = {}
        self._ranked: list[int] = []
        self._found: Any = None
        self._prepare()

    def _prepare(self) -> None:
        for number, request in enumerate(self._requests):
            encoder = self._snapshot.model.encoders.get(request.source)
            if encoder is not None and encoder.content_form != "vector" and not encoder.is_fitted_with_model:
                self._outcomes[number] = None  # such an encoder takes many times as long as a search
                continue
            try:
                self._service._check_hits(1, request.k, request.offset)
                self._prepared[number] = _prepare(self._snapshot, self._work, request)
            except Exception as error:
                self._outcomes[number] = error
        self._ranked = [number for number, part in self._prepared.items() if part.can_match[0]]

    def rank(self) -> None:
        """Rank the gallery for all of them; may run in a thread."""
        if self._ranked:
            target = self._requests[0].target
            queries = np.concatenate([self._prepared[number].projected for number in self._ranked])
            self._found = self._snapshot.galleries[target].find_rows(
                queries, self._pages, self._requests[0].item_filter
            )
            self._service._recall_monitor.see(self._snapshot, target, queries)

    def results(self) -> list[SearchResult | Exception | None]:
        """Return the results after `rank`, as of `SearchService.search_together`."""
        pages = {number: Page() for number in self._prepared}
        if self._ranked:
            gallery = self._snapshot.galleries[self._requests[0].target]
            pages |= zip(self._ranked, gallery.pages(self._found, self._pages), strict=True)
        for number, part in self._prepared.items():
            try:
                (self._outcomes[number],) = self._service._show(
                    self._snapshot, self._work, self._requests[number], part, [pages[number]]
                )
            except Exception as error:
                self._outcomes[number] = error
        return [self._outcomes[number] for number in range(len(self._requests))]

    @property
    def _pages(self) -> list[tuple[int, int]]:
        return [(self._requests[number].k, self._requests[number].offset) for number in self._ranked]

    def answer(self) -> list[SearchResult | Exception | None]:
        """Rank, and return the results."""
        self.rank()
        return self.results()


def _prepare(snapshot: Snapshot, work: UnitOfWork | None, request: _Request) -> _Prepared:
    """Check a request, and project its queries."""
    _check_direction(snapshot, request.source, request.target)
    _check_labels(snapshot, request.item_filter)
    projected = _project(snapshot, work, request.source, request.queries)
    words = [_look_up_words(snapshot, request.source, query) for query in request.queries]
    can_match = np.asarray([report is None or report.n_known > 0 for report in words], np.bool)
    return _Prepared(projected, words, can_match)


def _is_in_memory(snapshot: Snapshot, request: _Request) -> bool:
    """Return whether a search reads nothing but its snapshot: neither queries nor hits are stored items."""
    has_items = any(query.item_id is not None for query in request.queries)
    return not has_items and _is_all_ranked(snapshot, request.target)


def _reads_nothing(snapshot: Snapshot, source: str, target: str) -> bool:
    """Return whether searches of a direction can be answered from a snapshot alone."""
    return source != target and all(_is_all_ranked(snapshot, end) for end in (source, target))


def _is_all_ranked(snapshot: Snapshot, modality: str) -> bool:
    """Return whether a gallery has all that results show of its items: those made from a vector alone."""
    encoder = snapshot.model.encoders.get(modality)
    return encoder is not None and encoder.content_form == "vector"


def _project(snapshot: Snapshot, work: UnitOfWork | None, source: str, queries: Sequence[Query]) -> Matrix:
    encoder = snapshot.model.encoders[source]
    features: list[Features] = []
    for query in queries:
        if query.item_id is not None:
            assert work is not None
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
    (item,) = snapshot.model.with_features(work, snapshot.collection, source, [item])
    encoder = snapshot.model.encoders[source]
    if item.features is None and not encoder.is_fitted_with_model:
        version = snapshot.model.version
        raise InvalidFieldError(field, f"item {item_id!r} has no original that version {version} can encode")
    return item_features([item], encoder)


def _look_up_words(snapshot: Snapshot, source: str, query: Query) -> WordReport | None:
    """Return which words of a query are known; None for a stored item, whatever its words."""
    return None if query.content is None else snapshot.model.encoders[source].look_up_words(query.content)


def _rank(gallery: Gallery, prepared: _Prepared, request: _Request) -> list[Page]:
    """Return a page of results for each query; an empty one for texts without a known word."""
    if request.is_within_one:
        return [
            gallery.search_similar(row, request.k, request.offset, request.item_filter, query.item_id)
            if is_ranked
            else Page()
            for query, row, is_ranked in zip(
                request.queries, prepared.projected, prepared.can_match, strict=True
            )
        ]
    queries = prepared.projected[prepared.can_match]
    pages = iter(gallery.search(queries, request.k, request.offset, request.item_filter))
    return [next(pages) if is_ranked else Page() for is_ranked in prepared.can_match]


def _check_direction(snapshot: Snapshot, source: str, target: str) -> None:
    names = snapshot.collection.modality_names
    for end, name in (("source", source), ("target", target)):
        if name not in names:
            raise UnknownModalityError(end, name, names)


def _can_filter(snapshot: Snapshot, request: _Request) -> bool:
    return request.item_filter.is_empty or ColumnReader.is_ready(_needs(snapshot, request))


def _needs(snapshot: Snapshot, request: _Request) -> Needs:
    """Return what the filter of a request compares, labels of every gallery, as of `_check_labels`."""
    names = ColumnNames.of(request.item_filter)
    for modality, gallery in snapshot.galleries.items():
        yield gallery, names if modality == request.target else ColumnNames(labels=names.labels)


def _check_labels(snapshot: Snapshot, item_filter: ItemFilter) -> None:
    for number, label in enumerate(item_filter.labels or ()):
        if not any(gallery.has_label(label) for gallery in snapshot.galleries.values()):
            raise UnknownLabelError(f"filter.labels.{number}", label, snapshot.collection.name)


def _are_labels_ready(snapshot: Snapshot, item_filter: ItemFilter) -> bool:
    """Return whether `_check_labels` returns immediately."""
    for label in item_filter.labels or ():
        for gallery in snapshot.galleries.values():
            if gallery.rows_to_read(ColumnNames(labels=True)):
                return False
            if gallery.has_label(label):
                break
    return True


def _result(
    snapshot: Snapshot,
    request: _Request,
    query: Query,
    page: Page,
    items: Mapping[str, ShownItem],
    took_ms: float,
    notices: tuple[Notice, ...],
) -> SearchResult:
    scores = np.asarray([score for _, score in page])
    probabilities: list[float | None] = (
        [None] * len(page) if request.is_within_one else snapshot.model.projector.probability(scores).tolist()
    )
    hits = [
        Hit(item.id, rank, score, probability, items[item.id])
        for rank, ((item, score), probability) in enumerate(
            zip(page, probabilities, strict=True), request.offset + 1
        )
    ]
    return SearchResult(
        model_version=snapshot.model.version,
        index_revision=snapshot.collection.revision,
        exact=page.is_exact,
        took_ms=took_ms,
        hits=tuple(hits),
        notices=(*weak_match_notices(hits), *notices) if query.is_text else notices,
    )
