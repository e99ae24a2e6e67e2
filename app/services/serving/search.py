"""Answering a query of one modality with ranked items of the other, or of the same one."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np

from app.answers import Notice
from app.db.session import UnitOfWork
from app.domain.entities import Content, Features, IndexedItem, Item, Matrix, ShownItem, json_bytes
from app.domain.errors import (
    ConflictError,
    ContentTooLargeError,
    DamagedBundleError,
    InvalidFieldError,
    unknown_modality,
)
from app.domain.filters import NO_FILTER, Condition, ItemFilter, equal_texts
from app.domain.names import MAX_LABEL, MAX_LABELS, MAX_METADATA, join_path
from app.domain.searches import (
    HIT_FIELDS,
    LONGEST_TYPED,
    SAMPLE,
    Hit,
    SearchResult,
    WordReport,
    describe_others,
)
from app.domain.words import fold, split_negated, split_words
from app.encoders.base import BaseEncoder
from app.services.models.model_bundles import LONGEST_TEXT, LoadedModel, ProjectedQuery
from app.services.models.originals import item_features
from app.services.models.placement import facet_values, words_of
from app.services.serving.galleries import Gallery, Page
from app.services.serving.item_columns import ColumnNames
from app.services.serving.notices import (
    filter_notices,
    part_notice,
    unranked_notices,
    untrained_notices,
    weak_match_notices,
    with_filters,
    with_slips,
    word_notices,
)
from app.services.serving.reasons import (
    are_of_words,
    clear,
    emphasise,
    explain,
    follow_names,
    forms_of,
    learn_background,
    parts_of,
    stress,
    words_apart,
    words_in,
)
from app.services.serving.recall_monitor import RecallMonitor
from app.services.serving.refinement import (
    MOST_DIVERSE,
    PAIR,
    GroupsOf,
    Refinement,
    diversify,
    find_grouped,
    groups_of,
)
from app.services.serving.reloads import ColumnReader, Needs, ReleaseSlot
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_loader import VersionSnapshots
from app.services.serving.snapshots import Snapshots
from solver import InvalidInputError, can_be_ranked, is_finite

_MOST_OFFERS = 20
"""Queries of a call for which others are offered though a word of them is known: finding words that are
spelled alike takes time."""
_SHORT_PAGE = 100  # results of a short search: showing them takes no longer than most scans
MOMENT_NUMBERS = 1 << 23
"""Numbers that are compared in a moment: 100,000 rows of 80, in one or two ms; a thread costs half of one."""
_LIGHT_BYTES = 1 << 16
"""Memory of the items that are shown at once: more would take milliseconds to be read and written."""
_MOST_EXPLAINED = 1000  # results of a call: what is said of ten thousand would be some megabytes
_MOST_COUNTED = 10_000  # items of which an engine counts in a moment how many a filter leaves out
_LIGHT_UNRANKED = 100  # items that the model cannot place: to list them takes time
_ITEMS_PER_FETCH = 100
"""Bounds what is fetched before the byte limit is checked: a hundred items of the largest allowed size."""
_LARGEST_ITEM_BYTES = 12 * (MAX_METADATA + MAX_LABELS * (MAX_LABEL + 1))
"""JSON of the largest labels and metadata: a character takes up to twelve bytes, as an escaped pair."""
_MOST_KEPT, _LARGEST_KEPT = 2048, 1024
"""Rows of hits that a snapshot keeps, and their JSON: some 4 MB, which hold a collection of a thousand
pictures or what is often found in a large one."""
_BYTES_PER_HIT = 250
"""JSON of what every result has: keys, rank, score, probability, and the content address without the id."""
_BYTES_PER_ID_BYTE_IN_ADDRESS = 3  # a byte of an id that has to be percent-encoded takes three in an address


@dataclass(frozen=True, slots=True)
class Query:
    """One query: raw content, or the id of an item of the source modality."""

    content: Content | None = None
    item_id: str | None = None
    path: str = ""
    """Where the query stands in the request, such as ``queries.0``."""
    parts: Sequence[QueryPart] = ()
    """Contents and items of either modality, if it is composed of them."""
    left_out: AbstractSet[str] = frozenset()
    """Ids of items that are no results."""

    @property
    def is_text(self) -> bool:
        """Whether it is a text of its own."""
        return self.content is not None and self.content.text is not None

    @property
    def is_file(self) -> bool:
        """Whether it is a picture or sound of its own."""
        return self.content is not None and self.content.file is not None

    @property
    def is_negated(self) -> bool:
        """Whether it is a text that says of something that it is not meant."""
        text = None if self.content is None else self.content.text
        return text is not None and len(text) <= LONGEST_TYPED and split_negated(text)[1] != ""

    @property
    def field(self) -> str:
        """Path of the content or id in the request."""
        return join_path(self.path, "item_id" if self.content is None else self.content.field)


@dataclass(frozen=True, slots=True)
class QueryPart:
    """A part of a composed query; results are less like one of negative weight. Its modality may be left out
    where no more than one takes such content."""

    query: Query
    weight: float = 1.0
    modality: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """What one caller asks for: results offset + 1 to offset + k of the ranking for each of its queries, with
    those of `HIT_FIELDS` that `fields` names; `readers` as of `Snapshots.open`."""

    queries: Sequence[Query]
    k: int = 10
    offset: int = 0
    item_filter: ItemFilter = NO_FILTER
    fields: AbstractSet[str] = HIT_FIELDS
    readers: AbstractSet[str] | None = None
    refinement: Refinement | None = None
    began: float = field(default_factory=time.perf_counter)

    @property
    def is_short(self) -> bool:
        """Whether query and answer are small, so that others can wait for it."""
        query = self.queries[0]
        is_small = not query.is_file and not query.parts and self.refinement is None
        return len(self.queries) == 1 and is_small and self.offset + self.k <= _SHORT_PAGE

    @property
    def is_stored(self) -> bool:
        """Whether it asks for rows: a query is a stored item, or filter or groups name what only rows say."""
        by_pair = self.refinement is not None and self.refinement.group_by == PAIR
        of_rows = not self.item_filter.is_empty and self.item_filter.is_of_rows
        of_parts = (part.query for query in self.queries for part in query.parts)
        are_items = any(query.item_id is not None for query in itertools.chain(self.queries, of_parts))
        return by_pair or of_rows or are_items


Outcome = list[SearchResult] | Exception
"""The result of each query of a search, or why there is none."""


def results_of(outcome: Outcome) -> list[SearchResult]:
    """Return the results of a search; raises why there are none."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass(slots=True, eq=False)
class _Ground:
    """What searches are answered from; `work` is None where neither queries nor hits are rows."""

    snapshot: Snapshot
    work: UnitOfWork | None
    source: str
    target: str
    at_once: bool = False
    is_live: bool = True
    is_newest: bool = False  # nothing was committed since, so that rows that it showed are what there is
    has_read: bool = False  # rows that it did not show before, by another transaction

    @property
    def gallery(self) -> Gallery:
        """What is ranked."""
        return self.snapshot.galleries[self.target]

    @property
    def is_within_one(self) -> bool:
        """Whether queries and results are of the same modality."""
        return self.source == self.target


@dataclass(slots=True, eq=False)
class _Part:
    """A search, its projected queries, and a page of results for each."""

    search: Search
    projections: list[ProjectedQuery]
    pages: list[Page] = field(init=False)

    def __post_init__(self) -> None:
        self.pages = [Page() for _ in self.projections]


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Searches that are prepared, of one direction and one snapshot: first ranked, then shown."""

    ground: _Ground
    parts: Sequence[_Part | Exception]
    # of parts that were ranked together, made when they are shown
    pages: list[tuple[list[_Part], Callable[[], list[Page]]]] = field(default_factory=list)

    @property
    def numbers(self) -> float:
        """About how many numbers are compared."""
        filters = (part.search.item_filter for part in self.parts if isinstance(part, _Part))
        return sum(map(self.ground.gallery.numbers_per_search, filters))


@dataclass(eq=False)
class SearchService:
    """Ranks one gallery for queries of the other modality, of its own, or composed of both (no source).
    One call may rank `max_hits` results over all its queries, those before `offset` included."""

    _snapshots: Snapshots
    _versions: VersionSnapshots
    _recall_monitor: RecallMonitor
    _columns: ColumnReader
    _max_hits: int
    _max_answer_bytes: int

    def search(
        self,
        collection: str,
        source: str,
        target: str,
        searches: Sequence[Search],
        release_slot: ReleaseSlot | None = None,
        may_wait: bool = True,
    ) -> list[Outcome]:
        """Answer searches of one direction from one snapshot, each as if it came alone; raises what
        `Snapshots.open` does."""
        # What would have to wait for the work of others gets a `BlockingIOError` unless it `may_wait`. Within
        # one modality stored queries are not among their own results.
        refused: list[Outcome] = [error for error in map(self._refuse_hits, searches) if error is not None]
        if len(refused) == len(searches):
            return refused
        while True:
            ranking = self.begin(collection, source, target, searches, at_once=False)
            if ranking is not None and not any(isinstance(of, BlockingIOError) for of in ranking.parts):
                self.rank(ranking)
                outcomes = self.finish(ranking)
                if not any(isinstance(of, BlockingIOError) for of in outcomes):
                    return outcomes
            try:
                # In one transaction, so that hits are shown with the content that was ranked.
                readers, within = _readers_of(searches), source if source == target else ""
                opened = self._snapshots.open(collection, release_slot, readers, may_wait, within)
                with opened as (snapshot, work):
                    if _can_filter(snapshot, target, searches):
                        return self._answer(_Ground(snapshot, work, source, target), searches)
            except BlockingIOError:
                break
            if not may_wait:
                break
            needs = itertools.chain.from_iterable(_needs(snapshot, target, search) for search in searches)
            self._columns.wait(snapshot.collection, needs, release_slot)
        return [BlockingIOError()] * len(searches)

    def search_version(
        self,
        collection: str,
        version: int,
        direction: tuple[str, str],
        search: Search,
        release_slot: ReleaseSlot | None = None,
    ) -> SearchResult:
        """Return what a version finds for one query, whether it serves or not; raises what `search` returns,
        NotFoundError, and ConflictError if its bundle cannot be trusted."""
        if (refused := self._refuse_hits(search)) is not None:
            raise refused
        with suppress(ConflictError, DamagedBundleError):
            opened = self._snapshots.open(collection, release_slot, search.readers)
            with opened as (snapshot, work):
                if snapshot.model.version == version:
                    return self._answer_unseen(_Ground(snapshot, work, *direction, is_live=False), search)
        with self._versions.open(collection, version) as (snapshot, work):
            return self._answer_unseen(_Ground(snapshot, work, *direction, is_live=False), search)

    def begin(
        self, collection: str, source: str, target: str, searches: Sequence[Search], at_once: bool = True
    ) -> Ranking | None:
        """Prepare searches of a snapshot that holds every write without a transaction; None if there is none.
        `at_once` those that take but a moment each: what of it takes longer becomes a `BlockingIOError`."""
        if any(search.is_stored for search in searches):
            return None
        snapshot = self._snapshots.recall(collection)
        if snapshot is None or not _can_filter(snapshot, target, searches):
            return None
        if at_once and not self._is_light(snapshot, source, target, searches):
            return None
        return self._prepare(_Ground(snapshot, None, source, target, at_once, is_newest=True), searches)

    def finish(self, ranking: Ranking) -> list[Outcome]:
        """Return what was found; a `BlockingIOError` each if the items that are shown may be of a write that
        came meanwhile, or would have to be waited for."""
        ground, refused = ranking.ground, list[Outcome]([BlockingIOError()]) * len(ranking.parts)
        if ground.at_once and not (
            _is_all_ranked(ground.snapshot, ground.target) or self._snapshots.may_read_at_once()
        ):
            return refused
        for same, make_pages in ranking.pages:
            for ranked, page in zip(same, make_pages(), strict=True):
                ranked.pages = [page]
        outcomes: list[Outcome] = []
        for part in ranking.parts:
            try:
                outcomes.append(self._show(ground, part) if isinstance(part, _Part) else part)
            except Exception as error:
                outcomes.append(error)
        if ground.has_read and self._snapshots.recall(ground.snapshot.collection.name) is not ground.snapshot:
            return refused
        return outcomes

    def numbers_per_search(self, collection: str, target: str, item_filter: ItemFilter) -> float:
        """Return about how many numbers a search compares; infinity where that is not at hand."""
        snapshot = self._snapshots.recall(collection)
        gallery = None if snapshot is None else snapshot.galleries.get(target)
        return math.inf if gallery is None else gallery.numbers_per_search(item_filter)

    def _is_light(self, snapshot: Snapshot, source: str, target: str, searches: Sequence[Search]) -> bool:
        """Return whether ranking and showing each takes a moment, whatever the queries are."""
        gallery = snapshot.galleries.get(target)
        if gallery is None or source == target or len(gallery.unranked) > _LIGHT_UNRANKED:
            return False  # within one modality every row is compared
        shown_bytes = gallery.bytes_per_item + snapshot.model.texts.text_bytes.get(target, 0.0)
        for search in searches:
            if not search.is_short or search.k * shown_bytes > _LIGHT_BYTES:
                return False
            if gallery.numbers_per_search(search.item_filter) > MOMENT_NUMBERS:
                return False
            if not (search.item_filter.is_empty or _are_labels_ready(snapshot, search.item_filter)):
                return False
        return _is_all_ranked(snapshot, target) or self._snapshots.may_read_at_once()

    def _answer_unseen(self, ground: _Ground, search: Search) -> SearchResult:
        return results_of(self._answer(ground, [search])[0])[0]

    def _answer(self, ground: _Ground, searches: Sequence[Search]) -> list[Outcome]:
        ranking = self._prepare(ground, searches)
        self.rank(ranking)
        return self.finish(ranking)

    def _prepare(self, ground: _Ground, searches: Sequence[Search]) -> Ranking:
        """Check searches, and project their queries; an error is that of one search among others."""
        parts: list[_Part | Exception] = []
        for search in searches:
            refinement, item_filter = search.refinement, search.item_filter
            try:
                if (refused := self._refuse_hits(search)) is not None:
                    raise refused
                _check_direction(ground.snapshot, ground.source, ground.target)
                if not item_filter.is_empty:
                    _check_labels(ground.snapshot, item_filter)
                    if item_filter.is_of_rows:
                        item_filter = ground.snapshot.read_filter(item_filter, ground.target, ground.work)
                        search = replace(search, item_filter=item_filter)
                projections = [
                    _compose(ground, query)
                    if query.parts or query.is_negated
                    else _ask(ground, ground.source, query, n < _MOST_OFFERS)
                    for n, query in enumerate(search.queries)
                ]
                search, projections = _look_up_id(ground, search, projections)
                if refinement is not None:
                    if refinement.min_probability is not None:
                        _check_probabilities(ground, search)
                    if refinement.emphasis:
                        model = ground.snapshot.model
                        projections = [emphasise(model, one, refinement.emphasis) for one in projections]
            except Exception as error:
                parts.append(error)
            else:
                parts.append(_Part(search, projections))
        return Ranking(ground, parts)

    def rank(self, ranking: Ranking) -> None:
        """Find the best rows, for all short searches with the same filter in one call, which gives them the
        scores that they have alone."""
        ground, parts = ranking.ground, [part for part in ranking.parts if isinstance(part, _Part)]
        together: dict[bytes, list[_Part]] = {}
        for part in parts:
            search = part.search
            if search.refinement is not None and _looks_deeper(part, search.refinement):
                part.pages = [
                    self._refine(ground, part, n, search.refinement) for n in range(len(part.pages))
                ]
            elif ground.is_within_one or not search.is_short:
                part.pages = [_find(ground, part, n, search.k, search.offset) for n in range(len(part.pages))]
            elif part.projections[0].can_match:
                key = b"" if search.item_filter.is_empty else search.item_filter.fingerprint
                together.setdefault(key, []).append(part)
        for same in together.values():
            queries = np.concatenate([part.projections[0].projected for part in same])
            spans = [(part.search.k, part.search.offset) for part in same]
            rows = ground.gallery.find_rows(queries, spans, same[0].search.item_filter)
            ranking.pages.append((same, partial(ground.gallery.pages, rows, spans)))
        if ground.is_live and not ground.is_within_one:
            matching = (one for part in parts for one in part.projections if one.can_match)
            # Emphasis, and words that count more, ask for what no index was chosen by.
            seen = [one.projected for one in matching if one.before_emphasis is None and one.judged is None]
            if seen:
                self._recall_monitor.see(ground.snapshot, ground.target, np.concatenate(seen))

    def _refine(self, ground: _Ground, part: _Part, number: int, refinement: Refinement) -> Page:
        """Return a page of the results of a query that differ, or are few of each group, or both."""
        search, end = part.search, part.search.offset + part.search.k
        find = partial(_find_probable, ground, part, number, refinement)
        depth = MOST_DIVERSE if refinement.diversity else end
        if refinement.group_by is None:
            page = find(depth)
        else:
            most = self._max_hits // len(search.queries)
            groups = _groups_by(ground, refinement.group_by)
            page = find_grouped(find, groups, refinement, depth, most, end)
        if refinement.diversity:
            page = diversify(page, _vectors_of(ground, page), refinement.diversity, end)
        del page[: search.offset]
        return page

    def _show(self, ground: _Ground, part: _Part) -> list[SearchResult]:
        """Return the results of ranked queries, with what they show of the items."""
        snapshot, search, refinement = ground.snapshot, part.search, part.search.refinement
        items = self._read_items(ground, part)
        snapshot.model.texts.note_texts(ground.target, items.values())
        took_ms = (time.perf_counter() - search.began) * 1000.0
        of_gallery = unranked_notices(ground.gallery, ground.target) + untrained_notices(snapshot)
        is_small = (ground.gallery.known_size or math.inf) <= _MOST_COUNTED
        may_need_notice = not all(part.pages) or (is_small and search.item_filter.excluded)
        if may_need_notice and not (search.offset or search.item_filter.is_empty):
            of_gallery += filter_notices(ground.gallery, search.item_filter, ground.at_once, any(part.pages))
        results = []
        for query, page, projection in zip(search.queries, part.pages, part.projections, strict=True):
            of_hits = zip(page, _probabilities(ground, query, projection, page), strict=True)
            hits = [
                Hit(item.id, rank, score, probability, items[item.id])
                for rank, ((item, score), probability) in enumerate(of_hits, search.offset + 1)
            ]
            of_weak_match: tuple[Notice, ...] = ()
            if (query.is_text or query.is_file) and projection.before_emphasis is None:
                weak = snapshot.model.weak_probability(ground.source)
                of_weak_match = weak_match_notices(hits, weak, query.content.text if query.content else None)
            facts: dict[str, Sequence[str] | None] = {}
            if refinement is not None:
                if (least := refinement.min_probability) is not None:
                    hits = [hit for hit in hits if hit.probability is None or hit.probability >= least]
                if refinement.explains:
                    facts = {
                        "known_words": _known_words(ground, query),
                        "measures": [*snapshot.model.emphases],
                    }
                    parts, vectors = parts_of(snapshot.model), _vectors_of(ground, page)
                    reasons = explain(parts, projection, vectors, ground.is_within_one)
                    hits = [hit._replace(explanation=reasons[hit.rank - search.offset - 1]) for hit in hits]
            result = SearchResult(
                model_version=snapshot.model.version,
                index_revision=snapshot.collection.revision,
                exact=page.is_exact,
                took_ms=took_ms,
                hits=tuple(hits),
                notices=(*of_weak_match, *projection.notices, *page.notices, *of_gallery),
                facts=facts,
            )
            results.append(result)
        return results

    def _read_items(self, ground: _Ground, part: _Part) -> Mapping[str, ShownItem]:
        """Return the items of results by id, with the `HIT_FIELDS` requested; where all is ranked, as the
        ranking has them. Items written since are shown as ranked."""
        # Raises ContentTooLargeError (names `k`) within a hundred items of the limit.
        snapshot, collection, fields = ground.snapshot, ground.snapshot.collection, part.search.fields
        results = [item for page in part.pages for item, _ in page]
        is_all_ranked = _is_all_ranked(snapshot, ground.target)
        if is_all_ranked and len(results) * _LARGEST_ITEM_BYTES <= self._max_answer_bytes:
            return {item.id: item for item in results}
        n_results_by_id = Counter(item.id for item in results)
        ranked = {item.id: item for item in results}
        item_ids = sorted(ranked)
        id_factor = 1 + (_BYTES_PER_ID_BYTE_IN_ADDRESS if "content_url" in fields else 0)
        n_bytes = _BYTES_PER_HIT * len(results) + id_factor * sum(len(item.id.encode()) for item in results)
        kind, shown = frozenset(fields), snapshot.shown if ground.is_newest else {}
        items: dict[str, Item] = {}
        for start in range(0, len(item_ids), _ITEMS_PER_FETCH):
            unread = []
            for item_id in item_ids[start : start + _ITEMS_PER_FETCH]:
                if (before := shown.get((item_id, kind))) is None:
                    unread.append(item_id)
                else:
                    items[item_id] = before[0]
                    n_bytes += n_results_by_id[item_id] * before[1]
            stored: Mapping[str, Item] = {}
            if unread and not is_all_ranked:
                ground.has_read = ground.work is None
                with self._snapshots.read() if ground.work is None else nullcontext(ground.work) as work:
                    stored = work.items.get_many(collection, unread, fields)
            for item_id in unread:
                item = stored.get(item_id)
                is_current = item is not None and item.revision <= collection.revision
                if item is None or not is_current:
                    item = Item(
                        item_id,
                        ground.target,
                        labels=ranked[item_id].labels if "labels" in fields else (),
                        metadata=ranked[item_id].metadata if "metadata" in fields else {},
                    )
                size = json_bytes(item)
                if is_current and size <= _LARGEST_KEPT:  # for the next searches of this revision
                    if len(snapshot.shown) >= _MOST_KEPT:
                        snapshot.shown.clear()
                    snapshot.shown[item_id, kind] = item, size
                items[item_id] = item
                n_bytes += n_results_by_id[item_id] * size
            if n_bytes > self._max_answer_bytes:
                raise ContentTooLargeError(
                    "k",
                    f"{len(results)} results would be more than {self._max_answer_bytes} bytes together: "
                    "ask for fewer, or for fewer fields with include",
                )
        return items

    def _refuse_hits(self, search: Search) -> InvalidFieldError | None:
        """Return why a search ranks too many results; None if it does not. Results before `offset` have to be
        ranked, too, and count; a single query may use any offset where nothing is chosen from the ranking."""
        n_queries, k, offset = len(search.queries), search.k, search.offset
        depth, field_name = offset + k if n_queries > 1 else k, "offset"
        if search.refinement is not None:
            if search.refinement.explains and n_queries * k > _MOST_EXPLAINED:
                return InvalidFieldError(
                    "include", f"explanation is of {_MOST_EXPLAINED} results at most, got {n_queries * k}"
                )
            if search.refinement.diversity and offset + k > MOST_DIVERSE:
                message = f"chooses among the first {MOST_DIVERSE} results, and offset and k ask for more"
                return InvalidFieldError("diversity", message)
            if search.refinement.diversity:
                depth, field_name = MOST_DIVERSE, "diversity"
            elif search.refinement.group_by is not None:
                depth = offset + k
        if n_queries * depth <= self._max_hits:
            return None
        return InvalidFieldError(
            "k" if n_queries * k > self._max_hits else field_name,
            f"{n_queries} queries with {depth} ranked results each are {n_queries * depth} results, "
            f"at most {self._max_hits} allowed in one call",
        )


def _readers_of(searches: Sequence[Search]) -> AbstractSet[str] | None:
    """Return whose writes the answers have to hold; None for every write, where one search needs that."""
    named = [search.readers for search in searches if search.readers is not None]
    return frozenset().union(*named) if len(named) == len(searches) else None


def _is_all_ranked(snapshot: Snapshot, modality: str) -> bool:
    """Return whether a gallery has all that results show of its items: those made from a vector alone."""
    encoder = snapshot.model.encoders.get(modality)
    return encoder is not None and encoder.content_form == "vector"


def _check_probabilities(ground: _Ground, search: Search) -> None:
    """Raise InvalidFieldError where no probability of a match would be known."""
    assert search.refinement is not None
    model, version = ground.snapshot.model, ground.snapshot.model.version
    if ground.source in model.modality_names and not model.knows_matches(ground.source):
        reason = f"version {version} has none of {ground.source!r}: hardly anything matches but partners"
        reason = reason if version else "nothing has been trained yet"
    elif ground.is_within_one:
        reason = "within one modality scores are cosines"
    elif search.queries[0].parts:
        reason = "the query is composed"
    elif search.refinement.emphasis:
        reason = "the parts of the query are emphasised"
    else:
        return
    raise InvalidFieldError("min_probability", f"there are no probabilities here: {reason}")


def _compose(ground: _Ground, query: Query) -> ProjectedQuery:
    """Return the query that parts make together; a part that cannot match says nothing. A text that says what
    is meant and what is not has a part for each."""
    parts = query.parts or [QueryPart(query, modality=ground.source)]
    clauses = [clause for part in parts for clause in _clauses_of(part, is_alone=not query.parts)]
    sources = [_modality_of(ground, part) for part in clauses]
    projections = [_ask_part(ground, *of_part) for of_part in zip(sources, clauses, strict=True)]
    weights = np.array([part.weight * one.can_match for one, part in zip(projections, clauses, strict=True)])
    notices = tuple(
        notice if one.can_match or not weights.any() else part_notice(notice)
        for one in projections
        for notice in one.notices
    )
    if [part.query for part in clauses] != [part.query for part in parts]:  # a clause is no text to offer
        notices = tuple(replace(notice, did_you_mean=()) for notice in notices)
    if weights.any():
        is_across = np.array([source != ground.target for source in sources]) & (weights != 0.0)
        rows = np.concatenate([one.projected for one in projections])
        projected = ground.snapshot.model.projector.compose(rows, weights, is_across)[None]
    else:
        projected = projections[0].projected
    before = None if query.parts else projected
    return ProjectedQuery(projected, notices, bool(weights.any()), before_emphasis=before)


def _clauses_of(part: QueryPart, is_alone: bool) -> Iterator[QueryPart]:
    """Yield what a part asks for, and what its text says is not meant, of the other sign."""
    if not part.query.is_negated:
        yield part
        return
    assert part.query.content is not None
    rest, negated = split_negated(part.query.content.text or "", is_alone)
    for clause, weight in ((rest, part.weight), (negated, -part.weight)):
        if clause:
            yield replace(part, query=replace(part.query, content=Content(text=clause)), weight=weight)


def _ask_part(ground: _Ground, source: str, part: QueryPart) -> ProjectedQuery:
    """Return a projected part; of facets an item says what it does in its gallery, by all that it carries."""
    projection, item_id = _ask(ground, source, part.query, may_offer=True), part.query.item_id
    parts = ground.snapshot.model.projector.parts
    of_facets = np.repeat([bool(one.values) for one in parts], [one.width for one in parts])
    if item_id is None or not of_facets.any():
        return projection
    placed = ground.snapshot.galleries[source].vectors_of([item_id]).get(item_id)
    if placed is None:  # written since
        return projection
    return replace(projection, projected=np.where(of_facets, placed[: len(of_facets)], projection.projected))


def _modality_of(ground: _Ground, part: QueryPart) -> str:
    """Return the modality of a part's content or item; raises InvalidFieldError where none is, or it has to
    be named."""
    model, query = ground.snapshot.model, part.query
    names, field_name = model.modality_names, join_path(query.path, "modality")
    if part.modality is not None:
        if part.modality not in names:
            raise unknown_modality(field_name, part.modality, names)
        return part.modality
    if query.content is None:
        assert ground.work is not None
        assert query.item_id is not None
        return ground.work.items.get(ground.snapshot.collection, query.item_id).modality
    takers = [name for name in names if getattr(query.content, model.encoders[name].content_form) is not None]
    if not takers:
        raise InvalidFieldError(query.field, "neither modality takes it")
    if len(takers) > 1:
        raise InvalidFieldError(field_name, "has to be named: both modalities take this")
    return takers[0]


def _ask(ground: _Ground, source: str, query: Query, may_offer: bool) -> ProjectedQuery:
    """Return a projected query of a modality, and what is to be said of its words."""
    model = ground.snapshot.model
    encoder, content = model.encoders[source], query.content
    if content is None:
        assert ground.work is not None
        assert query.item_id is not None
        features = _item_features(ground.snapshot, ground.work, source, query.field, query.item_id)
        return _project(model, source, query.field, features)
    text, revision = content.text, ground.snapshot.collection.revision
    if text is not None and (earlier := model.texts.get((source, ground.target, text), revision)) is not None:
        return earlier
    if ground.at_once and not (encoder.is_quick and len(text or "") <= LONGEST_TEXT):
        raise BlockingIOError
    encoder.check(query.field, content)
    report = encoder.look_up_words(content)
    says_learned = report is None or report.n_known > 0
    finds_later = bool(encoder.n_further) and model.projector.uses_words and ground.gallery.is_exact
    later: AbstractSet[str] = frozenset()
    if report is not None and finds_later:
        others = [word for word in (*report.unknown, *report.guessed) if len(word) <= _LONGEST_WORD]
        if others := others[:_MOST_LOOKED_UP]:
            later = _carried_words(ground, source, others)
            report = report.knowing(later)
    can_match = report is None or report.n_known > 0
    may_come = report is not None and finds_later and bool(report.unknown or report.guessed)
    nearest_words = cache(encoder.nearest_words)
    if report is not None and text is not None:
        report = with_slips(report, text, nearest_words)
        says_learned |= bool(report.misspelt)
    is_respelled = report is not None and (not can_match or bool(report.misspelt))
    nearest = nearest_words if may_offer or is_respelled else None
    notices = word_notices(report, text, nearest, is_trained=model.is_trained, finds_later=finds_later)
    if notices and notices[0].code == "unknown-words":
        notices = with_filters(notices, _filters_by_value(ground))
    if is_respelled and notices and notices[0].did_you_mean:
        content, can_match, says_learned = Content(text=notices[0].did_you_mean[0]), True, True
        report = None if report is None else encoder.look_up_words(content).knowing(later)
    encoded = encoder.encode([content])
    if encoder.n_further:
        _keep_later(encoder, encoded, later)
    # One by one: a product of many rows may round otherwise, and scores would depend on the batch.
    projection = _project(model, source, query.field, encoded, notices, can_match)
    if text is not None and can_match and model.is_trained:
        followed = follow_names(model, content.text or "", projection.projected)
        if followed is not projection.projected:
            projection = replace(projection, projected=followed)
    if later:  # of which nothing says how probable a match is
        projected = projection.projected
        of_words = projected if says_learned else np.where(are_of_words(model), projected, np.float32(0.0))
        projection = replace(projection, projected=of_words, before_emphasis=projected)
    plain, lasts = projection, not may_come
    if text is not None and can_match and says_learned:
        projection, are_carried = _stress_words(ground, source, content, report, projection)
        lasts &= are_carried
    if text is not None and may_offer and lasts:
        depends = bool(later or notices) or projection is not plain
        model.texts.put((source, ground.target, text), projection, revision if depends else None)
    return projection


def _filters_by_value(ground: _Ground) -> Mapping[str, str]:
    # Conditions by the value, folded, of one word: of some items, and none of an engine.
    memory, gallery, target = ground.snapshot.filters_by_value, ground.gallery, ground.target
    if target not in memory:
        if ground.at_once:
            raise BlockingIOError
        is_remote = math.isinf(gallery.numbers_per_search(NO_FILTER))
        values = (
            (fold(value), f"{key}={value}")
            for item in ([] if is_remote else gallery.first_items(SAMPLE))
            for key in item.metadata
            for value in facet_values(item.metadata, key)
            if len(value) <= _LONGEST_WORD and " " not in value
        )
        memory[target] = dict(itertools.islice(values, _MOST_WORDS))
    return memory[target]


def _look_up_id(
    ground: _Ground, search: Search, projections: list[ProjectedQuery]
) -> tuple[Search, list[ProjectedQuery]]:
    """Return a search for one word as one for the items of which it is the id, or that of their pair."""
    # If there are no such items, or it is one of several queries, the search is returned as it is.
    content, projection = search.queries[0].content, projections[0]
    text = "" if content is None or content.text is None or len(projections) > 1 else content.text.strip()
    # A known word has to look like the number of an article, and be more than digits where words are counted.
    is_code = re.search(r"\d", text) and re.search(r"[^\w\s]|_|\d{4}", text)
    if text.isdigit() and ground.snapshot.model.encoders[ground.source].n_further:
        is_code = None
    is_unknown = any(notice.code == "unknown-words" for notice in projection.notices)
    memory, key = ground.snapshot.carried, ("", ground.target, text)
    is_one = len(text) <= LONGEST_TYPED and len(text.split()) == 1
    if not (is_one and (is_code or is_unknown) and memory.get(key, True)):
        return search, projections
    if ground.work is None:
        raise BlockingIOError
    names = list(dict.fromkeys((text, text.upper(), text.lower())))
    ids = [*ground.work.items.ids_of_pairs(ground.snapshot.collection, ground.target, names), *names]
    same = Condition("id", "in", tuple(ids))
    if not ground.gallery.count_matching(ItemFilter((same,))):
        if len(memory) >= _MOST_WORDS:
            memory.clear()
        memory[key] = False
        return search, projections
    notice = Notice("named-items", f"{text!r} is the id of an item, or of its pair", (text.lower(),))
    notices = with_filters((notice,), _filters_by_value(ground))
    nothing = np.zeros_like(projection.projected)
    search = replace(search, item_filter=ItemFilter((search.item_filter, same)))
    return search, [ProjectedQuery(nothing, notices, before_emphasis=nothing)]


def _stress_words(
    ground: _Ground, source: str, content: Content, report: WordReport | None, projection: ProjectedQuery
) -> tuple[ProjectedQuery, bool]:
    """Return a text in which the words that name no value of what was learned count more, if some item has
    any; and whether that lasts: it does not where one of them has to be written first."""
    model = ground.snapshot.model
    if not (model.is_trained and model.projector.uses_words):
        return projection, True
    words, are_all = words_apart(model, content.text or "", report)
    carried = _carried_words(ground, source, words)
    if not carried:
        return projection, not words
    of_words = projection.projected
    if not are_all or (report is not None and report.unknown):
        features = model.encoders[source].encode([Content(text=" ".join(words))])
        of_words = model.project_words(source, features)
    cleared = clear(model, of_words, _background(ground))
    # Beside a value half of it: words of very many texts lose, which items have in common.
    of_words = cleared if are_all else (cleared + of_words) / np.float32(2.0)
    if not of_words.any():
        return projection, False
    return stress(model, source, projection, of_words, are_all), carried >= set(words)


def _background(ground: _Ground) -> Matrix:
    """Return what takes away what items have in common; of an engine, which reads all, once for a model."""
    model, target = ground.snapshot.model, ground.target
    is_remote = math.isinf(ground.gallery.numbers_per_search(NO_FILTER))
    revision = 0 if is_remote else ground.snapshot.collection.revision
    if target not in model.backgrounds or model.backgrounds[target][0] != revision:
        if ground.at_once:
            raise BlockingIOError
        rank, sample = model.projector.rank, ground.gallery.sample(_MOST_COMMON)
        rows = np.array([vector[:rank] for _, vector in sample], np.float32).reshape(-1, rank)
        model.backgrounds[target] = revision, learn_background(model, rows)
    return model.backgrounds[target][1]


_MOST_JUDGED = 4096
"""Results among which probable ones are looked for: the vectors of each are read."""
_MOST_CARRIERS, _MOST_MEMBERS = 4, 32
"""Items that are looked through for a word, those whose words are most alike; items of a pair of partners."""
_MOST_LOOKED_UP, _LONGEST_WORD = 16, 64  # words of a text that were not learned: each takes a search
_MOST_COMMON = 2048  # items that say what all have in common: fewer would be taken away from themselves
_MOST_WORDS = 4096  # of which a snapshot knows whether some item has them


def _carried_words(ground: _Ground, source: str, words: Sequence[str]) -> AbstractSet[str]:
    """Return which words some item of the gallery, or a partner, has in some form; all of them
    where words of later items are none by themselves."""
    model, memory = ground.snapshot.model, ground.snapshot.carried
    if not model.encoders[source].n_further:
        return frozenset(words)
    are_carried = {word: memory.get((source, ground.target, word)) for word in words}
    fresh = [word for word, is_carried in are_carried.items() if is_carried is None]
    of_items = _words_alike(ground, source, fresh) if fresh else set()
    if len(memory) >= _MOST_WORDS:
        memory.clear()
    for word in fresh:
        is_carried = not any(of_items.isdisjoint(forms_of(part)) for part in split_words(word))
        are_carried[word] = memory[source, ground.target, word] = is_carried
    return {word for word, is_carried in are_carried.items() if is_carried}


def _words_alike(ground: _Ground, source: str, words: Sequence[str]) -> AbstractSet[str]:
    """Return the words of the items, and their partners, of which words are most like some."""
    if ground.at_once or ground.work is None:
        raise BlockingIOError
    model, work, collection = ground.snapshot.model, ground.work, ground.snapshot.collection
    features = model.encoders[source].encode([Content(text=word) for word in words])
    cleared = clear(model, model.project_words(source, features), _background(ground))
    pages = ground.gallery.search(cleared, _MOST_CARRIERS, 0, NO_FILTER)
    ids = sorted({hit.id for page in pages for hit, _ in page})
    items = list(work.items.get_many(collection, ids).values())
    for pair in {item.pair_id for item in items} - {None}:
        members = work.items.page(collection, None, 0, _MOST_MEMBERS + 1, pair)
        items += (item for _, item in members if len(members) <= _MOST_MEMBERS)
    texts = [name for item in items for _, name in words_of(item)] + [item.text or "" for item in items]
    return {word for text in texts for word in split_words(text)}


def _keep_later(encoder: BaseEncoder, encoded: Features, later: AbstractSet[str]) -> None:
    """Take the words that were not learned out of the features of a text, but for those of later items."""
    is_further = encoded.indices >= encoded.shape[1] - encoder.n_further
    if is_further.any():
        own = encoder.encode([Content(text=" ".join(later))]).indices
        encoded.data[is_further & ~np.isin(encoded.indices, own)] = 0.0


def _project(
    model: LoadedModel,
    source: str,
    field: str,
    features: Features,
    notices: tuple[Notice, ...] = (),
    can_match: bool = True,
) -> ProjectedQuery:
    try:
        projected, is_like = model.project_query(source, features)
    except InvalidInputError as error:
        if is_finite(features):
            raise
        raise InvalidFieldError(field, "its features are not finite") from error
    if not can_be_ranked(projected).all():
        raise InvalidFieldError(field, "lies too far outside of what the model was trained on")
    return ProjectedQuery(projected, notices, can_match, is_like)


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


def _find(ground: _Ground, part: _Part, number: int, k: int, offset: int = 0) -> Page:
    """Return a page of the ranking for a query; an empty one for a text without a known word."""
    query, projection = part.search.queries[number], part.projections[number]
    gallery, item_filter = ground.gallery, part.search.item_filter
    if not projection.can_match:
        return Page()
    if ground.is_within_one:
        return gallery.search_similar(projection.projected[0], k, offset, item_filter, query.item_id)
    if not query.left_out:
        (page,) = gallery.search(projection.projected, k, offset, item_filter)
        return page
    (page,) = gallery.search(projection.projected, offset + k + len(query.left_out), 0, item_filter)
    rest = [hit for hit in page if hit[0].id not in query.left_out]
    return Page(rest[offset : offset + k], page.is_exact)


def _looks_deeper(part: _Part, refinement: Refinement) -> bool:
    """Return whether results are chosen from more than a page of the ranking: improbable ones come last, but
    where probabilities are not of what is ranked by."""
    is_judged = any(one.judged is not None for one in part.projections)
    is_shallow = part.search.offset + part.search.k <= _MOST_JUDGED
    return refinement.looks_deeper or (refinement.min_probability is not None and is_judged and is_shallow)


def _find_probable(
    ground: _Ground, part: _Part, number: int, refinement: Refinement, k: int, rest: ItemFilter = NO_FILTER
) -> Page:
    """Return the first results of a query that pass a filter besides and are as probable as asked for, where
    they have a probability, or the first one alone, which says how improbable it is."""
    if not rest.is_empty:
        item_filter = ItemFilter((part.search.item_filter, rest))
        if item_filter.is_of_rows:
            item_filter = ground.snapshot.read_filter(item_filter, ground.target, ground.work)
        part = _Part(replace(part.search, item_filter=item_filter), part.projections)
    query, projection = part.search.queries[number], part.projections[number]
    least = refinement.min_probability
    if least is None:
        return _find(ground, part, number, k)
    depth = k
    while True:
        page = _find(ground, part, number, depth)
        chances = _probabilities(ground, query, projection, page)
        probable = [hit for hit, one in zip(page, chances, strict=True) if one is None or one >= least]
        # More probable results come later only where these are not of what is ranked by.
        is_last = len(page) < depth or depth >= _MOST_JUDGED or projection.judged is None
        if is_last or len(probable) >= k:
            page[:] = probable[:k] or page[:1]
            return page
        depth *= 4


def _groups_by(ground: _Ground, name: str) -> GroupsOf:
    """Return what has the groups of items; those of pairs are rows."""
    if name != PAIR:
        return partial(groups_of, name=name)
    work = ground.work
    assert work is not None

    def pairs_of(items: Sequence[IndexedItem]) -> list[tuple[str, ...]]:
        stored = work.items.get_many(ground.snapshot.collection, [item.id for item in items], ())
        pairs = (stored[item.id].pair_id if item.id in stored else None for item in items)
        return [() if pair is None else (pair,) for pair in pairs]

    return pairs_of


def _vectors_of(ground: _Ground, page: Sequence[tuple[IndexedItem, float]]) -> Matrix:
    """Return the projections of results; zeros of those that an engine no longer has."""
    rank = ground.snapshot.model.projector.rank
    vectors, nothing = ground.gallery.vectors_of([item.id for item, _ in page]), np.zeros(rank, np.float32)
    rows = [vectors.get(item.id, nothing)[:rank] for item, _ in page]
    return np.array(rows, np.float32).reshape(len(rows), rank)


def _probabilities(
    ground: _Ground, query: Query, projection: ProjectedQuery, page: Page
) -> Sequence[float | None]:
    """Return the probabilities of results; None where no curve was learned."""
    if ground.is_within_one or query.parts or projection.before_emphasis is not None:
        return [None] * len(page)
    scores = np.asarray([score for _, score in page])
    if projection.judged is not None:
        judged = projection.judged[0].astype(np.float64)  # in float32 sums differ with the number of results
        batches = (page[start : start + _MOST_JUDGED] for start in range(0, len(page), _MOST_JUDGED))
        scores = np.concatenate([scores[:0], *(_vectors_of(ground, batch) @ judged for batch in batches)])
        projection = replace(projection, projected=projection.judged)
    return ground.snapshot.model.probability(ground.source, projection, scores)


def _known_words(ground: _Ground, query: Query) -> list[str] | None:
    """Return the words of the texts of a query that the model knows; None without texts whose words count."""
    parts = query.parts or [QueryPart(query, modality=ground.source)]
    of_texts = [
        words_in(ground.snapshot.model, _modality_of(ground, part), part.query.content.text)
        for part in parts
        if part.query.content is not None and part.query.content.text is not None
    ]
    counted = [words for words in of_texts if words is not None]
    return list(dict.fromkeys(itertools.chain.from_iterable(counted))) if counted else None


def _check_direction(snapshot: Snapshot, source: str, target: str) -> None:
    names = snapshot.collection.modality_names
    for end, name in (("target", target), ("source", source or target)):
        if name not in names:
            raise unknown_modality(end, name, names)


def _can_filter(snapshot: Snapshot, target: str, searches: Sequence[Search]) -> bool:
    choosing = (
        search for search in searches if search.refinement is not None or not search.item_filter.is_empty
    )
    return all(ColumnReader.is_ready(_needs(snapshot, target, search)) for search in choosing)


def _needs(snapshot: Snapshot, target: str, search: Search) -> Needs:
    """Return what filter and groups of a search compare, labels of every gallery, as of `_check_labels`."""
    names = ColumnNames.of(search.item_filter)
    own = names if search.refinement is None else names | search.refinement.columns
    for modality, gallery in snapshot.galleries.items():
        yield gallery, own if modality == target else ColumnNames(labels=names.labels)


def _labels_of(item_filter: ItemFilter) -> Iterator[tuple[str, str]]:
    """Yield the labels without which a filter lets nothing pass, with their paths."""
    for condition in item_filter.parts if item_filter.kind == "all" else ():
        if isinstance(condition, Condition) and condition.subject == "labels":
            yield from ((f"{condition.path}.{n}", label) for n, label in enumerate(condition.values))


def _check_labels(snapshot: Snapshot, item_filter: ItemFilter) -> None:
    for path, label in _labels_of(item_filter):
        texts = equal_texts(label)
        if not any(gallery.has_label(text) for gallery in snapshot.galleries.values() for text in texts):
            sample = (item for gallery in snapshot.galleries.values() for item in gallery.first_items(SAMPLE))
            others = describe_others(label, (other for item in sample for other in item.labels), "labels")
            message = f"no item of collection {snapshot.collection.name!r} has the label {label!r}{others}"
            raise InvalidFieldError(path, message, "unknown-label")


def _are_labels_ready(snapshot: Snapshot, item_filter: ItemFilter) -> bool:
    """Return whether `_check_labels` returns immediately."""
    for _, label in _labels_of(item_filter):
        for gallery in snapshot.galleries.values():
            if gallery.rows_to_read(ColumnNames(labels=True)):
                return False
            if any(map(gallery.has_label, equal_texts(label))):
                break
    return True
