"""The commands `lrbs search`, and `lrbs feedback`: which items are relevant to which queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import (
    LOG,
    JsonFlag,
    JsonLinesFlag,
    LabelFilter,
    WhereFilter,
    print_one,
    read_filter,
    read_names,
    shorten,
)
from app.domain.errors import InvalidFieldError
from app.domain.names import LARGEST_FEEDBACK_ID, MAX_K

if TYPE_CHECKING:
    from app.answers import Collection, Feedback, FeedbackQuery, Hit, Item
    from app.cli.backend import Backend

TextQuery = Annotated[str | None, typer.Option("--text", help="text to search with")]
PictureQuery = Annotated[
    Path | None, typer.Option("--picture", exists=True, dir_okay=False, help="picture to search with")
]
SoundQuery = Annotated[
    Path | None, typer.Option("--sound", exists=True, dir_okay=False, help="sound to search with")
]
ItemQuery = Annotated[str | None, typer.Option("--item", help="stored item to search with")]
_PARTNERS_AT_ONCE = 100  # as many as one call may ask for
_PAGE = 1000  # entries that are read at a time, as many as a page over HTTP may have


def read_query(
    backend: Backend,
    collection: Collection,
    text: str | None,
    picture: Path | None,
    sound: Path | None,
    item: str | None,
) -> tuple[str, dict[str, Any]]:
    """Return the modality of a query, and the query in the words of the client."""
    # Raises BadParameter unless exactly one is given, and InvalidFieldError (names the option) if no modality
    # of the collection takes it.
    contents = {"text": text, "picture": picture, "sound": sound}
    if [*contents.values(), item].count(None) != 3:
        raise typer.BadParameter("give exactly one of --text, --picture, --sound, --item")
    if item is not None:
        return backend.get_item(collection.name, item).modality, {"item_id": item}
    (form,) = (name for name, content in contents.items() if content is not None)
    return _modality_for(collection, form), {form: contents[form]}


def _modality_for(collection: Collection, form: str) -> str:
    for name, modality in collection.modalities.items():
        if modality.content == form:
            return name
    content = "text" if form == "text" else f"{form}s"
    raise InvalidFieldError(
        f"--{form}", f"collection {collection.name!r} has no modality for {content}; search with --item"
    )


def search(
    collection: str,
    text: TextQuery = None,
    picture: PictureQuery = None,
    sound: SoundQuery = None,
    item: ItemQuery = None,
    to: Annotated[
        str | None, typer.Option(help="modality to search; default: the other one than the query's")
    ] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    show: Annotated[
        str | None, typer.Option(help="metadata keys to show, comma-separated; those of --where are, too")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=MAX_K, help="number of results")] = 10,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Search a collection from the command line."""
    import msgspec

    item_filter = read_filter(label, where)
    with open_backend(url, key) as backend:
        searched = backend.get_collection(collection)
        source, query = read_query(backend, searched, text, picture, sound, item)
        target = to or next(name for name in searched.modalities if name != source)
        result = backend.search(collection, source, target, **query, k=k, filter=item_filter)
        partners = {} if as_json else _read_partners(backend, collection, result.hits)
    for notice in result.notices:
        LOG.print(Text(notice.message))
        if notice.did_you_mean:
            LOG.print(Text(f"did you mean {' or '.join(map(repr, notice.did_you_mean))}?"))
    keys = dict.fromkeys([*item_filter["metadata"], *read_names(show or "")])
    for hit in result.hits:
        typer.echo(
            json.dumps(msgspec.to_builtins(hit)) if as_json else _hit_line(hit, partners.get(hit.id), keys)
        )


def _read_partners(backend: Backend, collection: str, hits: Sequence[Hit]) -> dict[str, Item]:
    """Return the partners of hits that have no text of their own."""
    partners: dict[str, Item] = {}
    ids = [hit.id for hit in hits if not hit.text]
    for start in range(0, len(ids), _PARTNERS_AT_ONCE):
        partners |= backend.list_partners(collection, ids[start : start + _PARTNERS_AT_ONCE]).partners
    return partners


def _hit_line(hit: Hit, partner: Item | None, keys: Iterable[str]) -> str:
    """Return what a person knows the item by, its labels, what was asked for, and its id."""
    probability = "" if hit.probability is None else f"  {hit.probability:6.1%}"  # none within a modality
    metadata = hit.metadata or {}
    source = str(metadata.get("source") or "")
    text = shorten(hit.text or (partner.text if partner is not None else None) or "")
    name = f"{text} ({source})" if text and source and not hit.text else text or source
    values = (f"{key}={_brief(metadata[key])}" for key in keys if key in metadata)
    parts = [name, ", ".join(hit.labels or ()), ", ".join(values), hit.id]
    return "  ".join([f"{hit.rank:3d}  {hit.score:8.4f}{probability}", *filter(None, parts)])


def _brief(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value))


feedback = typer.Typer(
    no_args_is_help=True,
    help="Which items are relevant to which queries; the next retrain may learn from it.",
)


@feedback.command("give")
def give_feedback(
    collection: str,
    item_id: Annotated[str, typer.Argument(help="item, such as one that a search returned")],
    relevant: Annotated[
        bool, typer.Option("--relevant/--not-relevant", help="whether the item answers the query")
    ],
    text: TextQuery = None,
    picture: PictureQuery = None,
    sound: SoundQuery = None,
    item: ItemQuery = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Store whether an item is relevant to a query: a text, a picture, a sound or a stored item."""
    with open_backend(url, key) as backend:
        source, query = read_query(backend, backend.get_collection(collection), text, picture, sound, item)
        judgement = {
            "query": query,
            "source": source,
            "target": backend.get_item(collection, item_id).modality,
            "item_id": item_id,
            "relevant": relevant,
        }
        stored = backend.create_feedback(collection, [judgement])
    print_one(stored, as_json, lambda answer: f"feedback {answer.ids[0]} stored")


@feedback.command("list")
def list_feedback(
    collection: str, as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """List feedback in the order in which it was stored."""
    with open_backend(url, key) as backend:
        for entry in _all_feedback(backend, collection):
            print_one(entry, as_json, _feedback_line)


@feedback.command("delete")
def delete_feedback(
    collection: str,
    feedback_id: Annotated[int, typer.Argument(min=1, max=LARGEST_FEEDBACK_ID)],
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete one feedback; the next retrain does not learn from it."""
    with open_backend(url, key) as backend:
        backend.delete_feedback(collection, feedback_id)


def _all_feedback(backend: Backend, collection: str) -> Iterator[Feedback]:
    page = backend.list_feedback(collection, limit=_PAGE)
    yield from page.feedback
    while page.next_cursor is not None:
        page = backend.list_feedback(collection, cursor=page.next_cursor, limit=_PAGE)
        yield from page.feedback


def _feedback_line(entry: Feedback) -> str:
    verdict = "relevant" if entry.relevant else "not relevant"
    query = f"{entry.source} {_query_words(entry.query)}"
    return f"{entry.id:6d}  {entry.created_at:%Y-%m-%d %H:%M}  {verdict:12s}  {entry.item_id}  to {query}"


def _query_words(query: FeedbackQuery) -> str:
    match query.form:
        case "item_id":
            return f"item {query.item_id}"
        case "text":
            return repr(query.text)
        case "image_base64":
            return f"picture {query.picture_sha256}"
        case "sound_base64":
            return f"sound {query.picture_sha256}"
        case _:
            return "vector"
