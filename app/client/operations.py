"""Every operation of the REST interface, in its words: each function returns the call that it stands for."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote

from app import answers

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class Call(Generic[_T]):
    """A call."""

    method: str
    path: str
    answer: type[_T]  # of JSON, by msgspec; ``bytes`` as they are; or nothing
    query: Mapping[str, Any] = field(default_factory=dict)  # those that are None are left out
    json: Any = None
    lines: Iterable[Any] | None = None  # a body as a stream of JSON lines
    is_repeatable: bool = False  # sending it twice does no more than sending it once
    is_long: bool = False  # the answer comes when all is done, however much that is


class Sender(Protocol):
    """Sends calls, and waits for their answers."""

    def send(self, call: Call[_T]) -> _T:
        """Return the answer of a call."""


class AsyncSender(Protocol):
    """Sends calls, whose answers are awaited."""

    async def send(self, call: Call[_T]) -> _T:
        """Return the answer of a call."""


class Operation(Generic[_P, _T]):
    """A function that makes a call, as a method that sends it: of a `Sender`, or of an `AsyncSender`."""

    def __init__(self, make: Callable[_P, Call[_T]]) -> None:
        self._make = make
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Operation[_P, _T]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[_P, Awaitable[_T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        """Return the method of a client; the operation itself where it is asked of the class."""
        if client is None:
            return self

        @functools.wraps(self._make)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> Any:
            return client.send(self._make(*args, **kwargs))

        return call


def path(template: str, *parts: object) -> str:
    """Return a path whose parts, in the places of its ``{}``, are quoted, whatever they are made of."""
    return template.format(*(quote(str(part), safe="") for part in parts))


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


Json = Mapping[str, Any]
File = bytes | str | PathLike[str]
"""The content of a file, or where it is."""
NoneType = type(None)


class SearchOptions(TypedDict, total=False):
    """What every search may ask for, as of `search`."""

    k: int | None
    offset: int | None
    filter: Json | None
    include: Sequence[str] | None
    min_probability: float | None
    group_by: str | None
    group_size: int | None
    diversity: float | None
    emphasis: Mapping[str, float] | None


_COLLECTION, _ADMIN = "/v1/collections/{}", "/v1/admin/collections/{}"
_ITEM, _VERSION, _SEARCH = f"{_COLLECTION}/items/{{}}", f"{_ADMIN}/models/{{}}", "/search/{}-to-{}"


def _get(address: str, answer: type[_T], **query: Any) -> Call[_T]:
    """Return a call that changes nothing; parameters that are None are left out."""
    return Call("GET", address, answer, query=without_none(**query), is_repeatable=True)


def list_collections() -> Call[answers.Collections]:
    """List all collections."""
    return _get("/v1/collections", answers.Collections)


def create_collection(name: str, modalities: Mapping[str, Json]) -> Call[answers.Collection]:
    """Create a collection; `modalities` has the encoder of each, as ``{"type": "tfidf"}``."""
    encoders = {modality: {"encoder": encoder} for modality, encoder in modalities.items()}
    return Call("POST", "/v1/collections", answers.Collection, json={"name": name, "modalities": encoders})


def get_collection(collection: str) -> Call[answers.Collection]:
    """Return a collection with the numbers of its items."""
    return _get(path(_COLLECTION, collection), answers.Collection)


def delete_collection(collection: str) -> Call[None]:
    """Delete a collection with its items and models."""
    return Call("DELETE", path(_COLLECTION, collection), NoneType)


def list_encoders() -> Call[answers.Encoders]:
    """List the types of encoders with their options."""
    return _get("/v1/encoders", answers.Encoders)


def create_items(collection: str, items: Iterable[Json]) -> Call[answers.Written]:
    """Store new items, all of them or none; a `picture` or `sound` of an item is a file, or its content."""
    body = {"items": [_encode(item) for item in items]}
    return Call("POST", path(_COLLECTION + "/items", collection), answers.Written, json=body)


def import_items(collection: str, items: Iterable[Json]) -> Call[answers.Imported]:
    """Store a stream of items, as of `create_items`, all or nothing; those that are there are replaced."""
    return Call(
        "POST", path(_COLLECTION + "/items:import", collection), answers.Imported, lines=map(_encode, items)
    )


def export_items(
    collection: str, *, label: Sequence[str] = (), where: Sequence[str] = (), filter: Json | None = None
) -> Call[bytes]:
    """Return items with their originals as JSON lines, for `import_items`.

    Conditions are those of `list_items`; `iter_export` of the clients yields one item after the other.
    """
    address = path(_COLLECTION + "/items:export", collection)
    return _get(address, bytes, label=list(label), where=list(where), filter=_text_of(filter))


def delete_items(
    collection: str, *, filter: Json | None = None, all: bool | None = None, dry_run: bool | None = None
) -> Call[answers.Affected]:
    """Delete the items that pass a filter.

    Parameters
    ----------
    collection : str
    filter : mapping, optional
        As of `search`; one that lets every item through is refused.
    all : bool, optional
        True, in place of a filter: every item.
    dry_run : bool, optional
        Only count them.
    """
    body = without_none(filter=filter, all=all, dry_run=dry_run)
    address = path(_COLLECTION + "/items:delete", collection)
    return Call("POST", address, answers.Affected, json=body, is_repeatable=True, is_long=True)


def update_items(
    collection: str,
    *,
    filter: Json | None = None,
    all: bool | None = None,
    labels: Sequence[str] | None = None,
    add_labels: Sequence[str] = (),
    remove_labels: Sequence[str] = (),
    metadata: Json | None = None,
    dry_run: bool | None = None,
) -> Call[answers.Affected]:
    """Change labels and metadata of the items that pass a filter.

    Parameters
    ----------
    labels : sequence of str, optional
        In place of all that they have.
    add_labels, remove_labels : sequence of str
    metadata : mapping, optional
        Keys to set, or to remove where they are None.
    collection, filter, all, dry_run
        As of `delete_items`.
    """
    changes = without_none(labels=None if labels is None else list(labels), metadata=metadata)
    changes |= {"add_labels": list(add_labels), "remove_labels": list(remove_labels)}
    body = without_none(filter=filter, all=all, dry_run=dry_run) | changes
    address = path(_COLLECTION + "/items:update", collection)
    return Call("POST", address, answers.Affected, json=body, is_repeatable=True, is_long=True)


def list_items(
    collection: str,
    *,
    modality: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
    pair_id: str | None = None,
    label: Sequence[str] = (),
    where: Sequence[str] = (),
    filter: Json | None = None,
    item_id: Sequence[str] = (),
) -> Call[answers.ItemPage]:
    """Return a page of items in order of creation.

    Parameters
    ----------
    collection : str
    modality, pair_id : str, optional
        Only items of these.
    cursor : str, optional
        `next_cursor` of the page before; while it is set there is more.
    limit : int, optional
        Most items of a page; 100 by default.
    label, where : sequence of str
        Only items with any of these labels, and with metadata such as ``colour=red`` or ``price<50``.
    filter : mapping, optional
        As of `search`.
    item_id : sequence of str
        Only items of any of these ids, ten at most.
    """
    return _get(
        path(_COLLECTION + "/items", collection),
        answers.ItemPage,
        modality=modality,
        cursor=cursor,
        limit=limit,
        pair_id=pair_id,
        filter=_text_of(filter),
        label=list(label),
        where=list(where),
        item_id=list(item_id),
    )


def get_item(collection: str, item_id: str) -> Call[answers.Item]:
    """Return one item."""
    return _get(path(_ITEM, collection, item_id), answers.Item)


def put_item(collection: str, item_id: str, item: Json) -> Call[answers.Written]:
    """Store an item under this id, replacing one that is there."""
    address = path(_ITEM, collection, item_id)
    return Call("PUT", address, answers.Written, json=_encode(item), is_repeatable=True)


def put_labels(collection: str, item_id: str, labels: Sequence[str]) -> Call[answers.Written]:
    """Give an item these labels in place of all that it has."""
    address = path(_ITEM + "/labels", collection, item_id)
    return Call("PUT", address, answers.Written, json={"labels": list(labels)}, is_repeatable=True)


def delete_item(collection: str, item_id: str) -> Call[answers.Written]:
    """Delete one item."""
    return Call("DELETE", path(_ITEM, collection, item_id), answers.Written)


def get_content(collection: str, item_id: str) -> Call[bytes]:
    """Return the picture, sound or text of an item."""
    return _get(path(_ITEM + "/content", collection, item_id), bytes)


def list_partners(collection: str, item_ids: Sequence[str]) -> Call[answers.Partners]:
    """Return an item that shares the pair of each of the given ones."""
    return _get(path(_COLLECTION + "/partners", collection), answers.Partners, item_id=list(item_ids))


def count_values(
    collection: str, modality: str, *, limit: int | None = None, filter: Json | None = None
) -> Call[answers.Values]:
    """Return the labels and metadata values that a gallery can be filtered by, with numbers of items.

    Parameters
    ----------
    collection, modality : str
    limit : int, optional
        Most labels, and most values of each key.
    filter : mapping, optional
        Counts the items that pass it, as of `search`.
    """
    address = path(_COLLECTION + "/values", collection)
    return _get(address, answers.Values, modality=modality, limit=limit, filter=_text_of(filter))


def draw_map(collection: str, *, limit: int | None = None) -> Call[answers.Map]:
    """Return both galleries in two dimensions of the common space."""
    return _get(path(_COLLECTION + "/map", collection), answers.Map, limit=limit)


def search(
    collection: str,
    source: str,
    target: str,
    *,
    text: str | None = None,
    picture: File | None = None,
    sound: File | None = None,
    vector: Sequence[float] | None = None,
    item_id: str | None = None,
    **options: Unpack[SearchOptions],
) -> Call[answers.SearchResult]:
    """Search the items of one modality with one query.

    Parameters
    ----------
    collection : str
    source, target : str
        Modalities of the query and of the hits; they may be the same.
    text, picture, sound, vector, item_id : str, file, file, sequence of float or str
        The query, in one of these forms; the last is an item of `source`.
    k, offset : int, optional
        Hits to return, 10 by default, and how many better ones to leave out.
    filter : mapping, optional
        ``{"labels": ["red"], "metadata": {"brand": ["a", "b"], "price": {"lt": 50}}}``: what stands together
        holds together; lists are alternatives; ``all``, ``any`` and ``not`` take filters.
    include : sequence of str, optional
        Fields of a hit beside id, rank and score; all but ``"explanation"`` by default.
    **options
        Those above from ``k`` on, and ``min_probability`` of a match; ``group_by`` (a metadata key,
        ``"label"`` or ``"pair_id"``) with ``group_size``, the most hits of one group, 1 by default;
        ``diversity`` of hits, from 0 to 1; ``emphasis``, weights of parts of the score by their names in an
        explanation, or ``{"recall": 1}``.
    """
    numbers = None if vector is None else [float(value) for value in vector]
    query = without_none(text=text, picture=picture, sound=sound, vector=numbers, item_id=item_id)
    body = _encode(query) | without_none(**options)
    address = path(_COLLECTION + _SEARCH, collection, source, target)
    return Call("POST", address, answers.SearchResult, json=body, is_repeatable=True)


def search_batch(
    collection: str, source: str, target: str, queries: Iterable[Json], **options: Unpack[SearchOptions]
) -> Call[answers.SearchResults]:
    """Search with several queries.

    Parameters
    ----------
    queries : iterable of mapping
        Such as ``{"text": "red"}`` or ``{"picture": Path("a.jpg")}``.
    collection, source, target, **options
        As of `search`.
    """
    body = {"queries": [_encode(query) for query in queries]} | without_none(**options)
    address = path(_COLLECTION + _SEARCH + "/batch", collection, source, target)
    return Call("POST", address, answers.SearchResults, json=body, is_repeatable=True)


def search_composed(
    collection: str,
    target: str,
    queries: Iterable[Json],
    *,
    include_given: bool | None = None,
    **options: Unpack[SearchOptions],
) -> Call[answers.SearchResult]:
    """Search the items of one modality with several contents and items at once.

    Parameters
    ----------
    queries : iterable of mapping
        Up to 16, such as ``{"item_id": "i7"}`` and ``{"text": "blue", "weight": 2}``; results are less like
        those of negative weight. ``"modality"`` is needed where both take such content.
    include_given : bool, optional
        Whether items of the query may be hits, too.
    collection, target, **options
        As of `search`.
    """
    encoded = [_encode(query) for query in queries]
    body = {"queries": encoded, **without_none(include_given=include_given, **options)}
    address = path(_COLLECTION + "/search/{}", collection, target)
    return Call("POST", address, answers.SearchResult, json=body, is_repeatable=True)


def create_feedback(collection: str, feedback: Iterable[Json]) -> Call[answers.FeedbackIds]:
    """Store judgements: query (as of `search_batch`), source, target, item_id and whether it is relevant."""
    address = path(_COLLECTION + "/feedback", collection)
    entries = [{**entry, "query": _encode(entry["query"])} for entry in feedback]
    return Call("POST", address, answers.FeedbackIds, json={"feedback": entries})


def list_feedback(
    collection: str, *, cursor: str | None = None, limit: int | None = None
) -> Call[answers.FeedbackPage]:
    """Return a page of feedback."""
    return _get(path(_COLLECTION + "/feedback", collection), answers.FeedbackPage, cursor=cursor, limit=limit)


def delete_feedback(collection: str, feedback_id: int) -> Call[None]:
    """Delete one judgement."""
    return Call("DELETE", path(_COLLECTION + "/feedback/{}", collection, feedback_id), NoneType)


def retrain(collection: str, **options: Any) -> Call[answers.Job]:
    """Queue a training; options are those of REST, such as ``method="composite"``."""
    return Call("POST", path(_ADMIN + "/retrain", collection), answers.Job, json=options)


def set_retraining(
    collection: str,
    *,
    changed_items: int | None = None,
    judgements: int | None = None,
    hours: float | None = None,
    quiet_hours: tuple[int, int] | None = None,
) -> Call[answers.Collection]:
    """Say when a collection is trained by itself, in place of what was said before; never without limits.

    Parameters
    ----------
    changed_items, judgements : int or None
        Items written or deleted, and feedback stored, since the newest version.
    hours : float or None
        Since the newest version, if anything has changed.
    quiet_hours : (int, int) or None
        From and to which hour of the day, UTC, trainings may begin.
    """
    policy = without_none(
        changed_items=changed_items, judgements=judgements, hours=hours, quiet_hours=quiet_hours
    )
    address = path(_ADMIN + "/retraining", collection)
    return Call("PUT", address, answers.Collection, json=policy, is_repeatable=True)


def list_jobs(collection: str, *, limit: int | None = None) -> Call[answers.Jobs]:
    """List the trainings of a collection, newest first."""
    return _get(path(_ADMIN + "/jobs", collection), answers.Jobs, limit=limit)


def get_job(job_id: str) -> Call[answers.Job]:
    """Return a training with its progress."""
    return _get(path("/v1/admin/jobs/{}", job_id), answers.Job)


def cancel_job(job_id: str) -> Call[answers.Job]:
    """Cancel a training."""
    return Call("POST", path("/v1/admin/jobs/{}/cancel", job_id), answers.Job, is_repeatable=True)


def list_models(collection: str) -> Call[answers.Models]:
    """List model versions, newest first."""
    return _get(path(_ADMIN + "/models", collection), answers.Models)


def get_model(collection: str, version: int) -> Call[answers.Model]:
    """Return a model version with its whole report."""
    return _get(path(_VERSION, collection, version), answers.Model)


def get_plot(
    collection: str,
    version: int,
    kind: str,
    *,
    direction: str | None = None,
    theme: str | None = None,
    format: Literal["svg", "png"] | None = None,
) -> Call[bytes]:
    """Return a plot of what the report of a version holds.

    Parameters
    ----------
    collection : str
    version : int
    kind : {"singular-values", "convergence", "precision-recall", "precision-scope", "reliability"}
    direction : str, optional
        Of curves, such as "image-to-text"; both by default.
    theme : {"light", "dark"}, optional
        The ground to draw on.
    format : {"svg", "png"}, optional
    """
    address = path(_VERSION + "/plots/{}", collection, version, kind)
    return _get(address, bytes, direction=direction, theme=theme, format=format)


def activate_model(
    collection: str, version: int, *, expected_version: int | None = None, reason: str | None = None
) -> Call[answers.Model]:
    """Let a version serve.

    Parameters
    ----------
    collection : str
    version : int
    expected_version : int, optional
        Nothing is done, and WasChangedError raised, unless this one serves now.
    reason : str, optional
        For the history.
    """
    body = without_none(expected_version=expected_version, reason=reason)
    return Call("POST", path(_VERSION + "/activate", collection, version), answers.Model, json=body)


def roll_back(
    collection: str, *, expected_version: int | None = None, reason: str | None = None
) -> Call[answers.Model]:
    """Let the version serve that did before; `expected_version` and `reason` as of `activate_model`."""
    body = without_none(expected_version=expected_version, reason=reason)
    return Call("POST", path(_ADMIN + "/rollback", collection), answers.Model, json=body)


def search_version(
    collection: str, version: int, source: str, target: str, **query: Any
) -> Call[answers.SearchResult]:
    """Search by a version, whether it serves or not; other parameters as of `search`."""
    address = path(_VERSION + _SEARCH, collection, version, source, target)
    return replace(search(collection, source, target, **query), path=address)


def list_activations(collection: str, *, limit: int | None = None) -> Call[answers.Activations]:
    """Return which versions served when, by whom and why, newest first."""
    return _get(path(_ADMIN + "/activations", collection), answers.Activations, limit=limit)


def list_keys() -> Call[answers.Keys]:
    """List keys, without their secrets."""
    return _get("/v1/admin/keys", answers.Keys)


def create_key(
    scope: str,
    *,
    name: str | None = None,
    collections: Sequence[str] | None = None,
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
) -> Call[answers.Key]:
    """Create a key; its secret is in this answer only.

    Parameters
    ----------
    scope : str
        What it permits: "search", "write", "admin" or "metrics".
    name : str, optional
        For people.
    collections : sequence of str, optional
        The only ones that it can see; all by default.
    expires_at : datetime, optional
        When it stops working; with a time zone.
    requests_per_minute : int, optional
        A rate limit of its own; by default the service's.
    """
    body = without_none(
        scope=scope,
        name=name,
        collections=None if collections is None else list(collections),
        expires_at=None if expires_at is None else expires_at.isoformat(),
        requests_per_minute=requests_per_minute,
    )
    return Call("POST", "/v1/admin/keys", answers.Key, json=body)


def revoke_key(key_id: str) -> Call[None]:
    """Revoke a key."""
    return Call("DELETE", path("/v1/admin/keys/{}", key_id), NoneType)


def healthz() -> Call[answers.Status]:
    """Return whether the service is alive."""
    return _get("/healthz", answers.Status)


def readyz() -> Call[answers.Status]:
    """Return whether the service is ready; raises UnavailableError where it is not."""
    return Call("GET", "/readyz", answers.Status)


def metrics() -> Call[bytes]:
    """Return the metrics in the text format of Prometheus."""
    return _get("/metrics", bytes)


def _encode(entry: Json) -> dict[str, Any]:
    """Return an item or a query as the service reads it: a file as base64."""
    encoded = dict(entry)
    for name, encoded_name in (("picture", "image_base64"), ("sound", "sound_base64")):
        if name in encoded:
            file = encoded.pop(name)
            content = file if isinstance(file, bytes) else Path(file).read_bytes()
            encoded[encoded_name] = base64.b64encode(content).decode()
    return encoded


def _text_of(item_filter: Json | None) -> str | None:
    return None if item_filter is None else json.dumps(item_filter)


class Operations:
    """The operations as methods."""

    list_collections = Operation(list_collections)
    create_collection = Operation(create_collection)
    get_collection = Operation(get_collection)
    delete_collection = Operation(delete_collection)
    list_encoders = Operation(list_encoders)
    create_items = Operation(create_items)
    import_items = Operation(import_items)
    export_items = Operation(export_items)
    delete_items = Operation(delete_items)
    update_items = Operation(update_items)
    list_items = Operation(list_items)
    get_item = Operation(get_item)
    put_item = Operation(put_item)
    put_labels = Operation(put_labels)
    delete_item = Operation(delete_item)
    get_content = Operation(get_content)
    list_partners = Operation(list_partners)
    count_values = Operation(count_values)
    draw_map = Operation(draw_map)
    search = Operation(search)
    search_batch = Operation(search_batch)
    search_composed = Operation(search_composed)
    create_feedback = Operation(create_feedback)
    list_feedback = Operation(list_feedback)
    delete_feedback = Operation(delete_feedback)
    retrain = Operation(retrain)
    set_retraining = Operation(set_retraining)
    list_jobs = Operation(list_jobs)
    get_job = Operation(get_job)
    cancel_job = Operation(cancel_job)
    list_models = Operation(list_models)
    get_model = Operation(get_model)
    get_plot = Operation(get_plot)
    activate_model = Operation(activate_model)
    roll_back = Operation(roll_back)
    search_version = Operation(search_version)
    list_activations = Operation(list_activations)
    list_keys = Operation(list_keys)
    create_key = Operation(create_key)
    revoke_key = Operation(revoke_key)
    healthz = Operation(healthz)
    readyz = Operation(readyz)
    metrics = Operation(metrics)


__all__ = ["Operations", *(name for name in vars(Operations) if not name.startswith("_"))]
