"""The commands `lrbs feedback`: which items are relevant to which queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import JsonFlag, JsonLinesFlag, print_json
from app.cli.queries import ItemQuery, PictureQuery, SoundQuery, TextQuery, read_query
from app.domain.names import LARGEST_FEEDBACK_ID

if TYPE_CHECKING:
    from app.answers import Feedback, FeedbackQuery
    from app.cli.backend import Backend

feedback = typer.Typer(
    no_args_is_help=True,
    help="Which items are relevant to which queries; the next retrain may learn from it.",
)
_PAGE = 1000  # entries that are read at a time, as many as a page over HTTP may have


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
    if as_json:
        print_json(stored)
    else:
        typer.echo(f"feedback {stored.ids[0]} stored")


@feedback.command("list")
def list_feedback(
    collection: str, as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """List feedback in the order in which it was stored."""
    with open_backend(url, key) as backend:
        for entry in _all(backend, collection):
            if as_json:
                print_json(entry)
            else:
                typer.echo(_line(entry))


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


def _all(backend: Backend, collection: str) -> Iterator[Feedback]:
    page = backend.list_feedback(collection, limit=_PAGE)
    yield from page.feedback
    while page.next_cursor is not None:
        page = backend.list_feedback(collection, cursor=page.next_cursor, limit=_PAGE)
        yield from page.feedback


def _line(entry: Feedback) -> str:
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
