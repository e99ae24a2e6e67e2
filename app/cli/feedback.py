"""The commands `lrbs feedback`: which items are relevant to which queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import JsonFlag, JsonLinesFlag
from app.cli.queries import ItemQuery, PictureQuery, SoundQuery, TextQuery, read_query
from app.cli.ready import ready_services
from app.domain.entities import Feedback
from app.domain.limits import LARGEST_FEEDBACK_ID

if TYPE_CHECKING:
    from app.api.schemas.feedback import FeedbackOut, FeedbackQueryOut
    from app.bootstrap import Services

feedback = typer.Typer(
    no_args_is_help=True,
    help="Which items are relevant to which queries; the next retrain may learn from it.",
)
_PAGE = 1000
"""Entries that are read at a time, as many as a page over HTTP may have."""


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
) -> None:
    """Store whether an item is relevant to a query: a text, a picture, a sound or a stored item."""
    from app.api.schemas.feedback import FeedbackIdsOut
    from app.services.catalogue.feedback import NewFeedback

    services = ready_services()
    source, query = read_query(services, collection, text, picture, sound, item)
    target = services.catalogue.item(collection, item_id).modality
    new = NewFeedback(source, target, item_id, relevant, query.content, query.item_id)
    ids = services.feedback.add(collection, [new])
    typer.echo(FeedbackIdsOut(ids=list(ids)).model_dump_json() if as_json else f"feedback {ids[0]} stored")


@feedback.command("list")
def list_feedback(collection: str, as_json: JsonLinesFlag = False) -> None:
    """List feedback in the order in which it was stored."""
    from app.api.schemas.feedback import FeedbackOut

    for entry in _all(ready_services(), collection):
        shown = FeedbackOut.of(entry)
        typer.echo(shown.model_dump_json() if as_json else _line(shown))


@feedback.command("delete")
def delete_feedback(
    collection: str, feedback_id: Annotated[int, typer.Argument(min=1, max=LARGEST_FEEDBACK_ID)]
) -> None:
    """Delete one feedback; the next retrain does not learn from it."""
    ready_services().feedback.delete(collection, feedback_id)


def _all(services: Services, collection: str) -> Iterator[Feedback]:
    page = services.feedback.page(collection, 0, _PAGE)
    yield from page.feedback
    while not page.is_last:
        page = services.feedback.page(collection, page.feedback[-1].id, _PAGE)
        yield from page.feedback


def _line(entry: FeedbackOut) -> str:
    verdict = "relevant" if entry.relevant else "not relevant"
    query = f"{entry.source} {_query_words(entry.query)}"
    return f"{entry.id:6d}  {entry.created_at:%Y-%m-%d %H:%M}  {verdict:12s}  {entry.item_id}  to {query}"


def _query_words(query: FeedbackQueryOut) -> str:
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
