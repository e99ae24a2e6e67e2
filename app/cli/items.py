"""The commands `lrbs items`: what a collection holds, one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import JsonFlag, JsonLinesFlag
from app.cli.filters import LabelFilter, WhereFilter, read_filter
from app.cli.ready import ready_services

if TYPE_CHECKING:
    from app.api.schemas.items import ItemOut
    from app.domain.entities import Item, ItemFilter
    from app.services.catalogue.service import CatalogueService

items = typer.Typer(no_args_is_help=True, help="Items of a collection: list, show, label and delete them.")
_PAGE = 1000
"""Items that are read at a time, as many as a page over HTTP may have."""
_SHOWN_CHARACTERS = 60
"""Of a text in a line that stands for an item."""


@items.command("list")
def list_items(
    collection: str,
    modality: Annotated[str | None, typer.Option(help="only items of this modality")] = None,
    pair: Annotated[str | None, typer.Option(help="only items of this pair_id")] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    limit: Annotated[int | None, typer.Option(min=1, help="list this many at most; default: all")] = None,
    as_json: JsonLinesFlag = False,
) -> None:
    """List items in order of creation."""
    from app.api.schemas.items import ItemOut

    item_filter = read_filter(label, where)
    listed = _all(ready_services().catalogue, collection, modality, pair, item_filter)
    for item in itertools.islice(listed, limit):
        _print(ItemOut.of(collection, item), as_json)


@items.command("show")
def show_item(collection: str, item_id: str, as_json: JsonFlag = False) -> None:
    """Show one item."""
    from app.api.schemas.items import ItemOut

    _print(ItemOut.of(collection, ready_services().catalogue.item(collection, item_id)), as_json)


@items.command("label")
def label_item(
    collection: str,
    item_id: str,
    labels: Annotated[
        list[str] | None, typer.Argument(help="the main one first; none takes all away")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give an item these labels in place of all that it has."""
    from app.api.schemas.items import WrittenOut

    written = ready_services().catalogue.change_labels(collection, item_id, labels or [])
    if as_json:
        typer.echo(WrittenOut(ids=list(written.ids), revision=written.revision).model_dump_json())


@items.command("delete")
def delete_item(collection: str, item_id: str, as_json: JsonFlag = False) -> None:
    """Delete one item, and the feedback that names it."""
    from app.api.schemas.items import WrittenOut

    revision = ready_services().catalogue.delete_item(collection, item_id)
    if as_json:
        typer.echo(WrittenOut(ids=[item_id], revision=revision).model_dump_json())


def _all(
    catalogue: CatalogueService,
    collection: str,
    modality: str | None,
    pair: str | None,
    item_filter: ItemFilter,
) -> Iterator[Item]:
    position: int | None = 0
    while position is not None:
        page = catalogue.page(collection, modality, position, _PAGE, pair, item_filter)
        yield from (item for _, item in page.rows)
        position = page.end


def _print(shown: ItemOut, as_json: bool) -> None:
    if as_json:
        typer.echo(shown.model_dump_json())
        return
    text = " ".join((shown.text or shown.content_url or "vector").split())
    short = text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
    rest = "" if shown.train else "  not learned from"
    typer.echo(f"{shown.id}  {shown.modality}  {', '.join(shown.labels)}  {short}{rest}")
