"""The commands `lrbs items`: what a collection holds, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import LOG, JsonFlag, JsonLinesFlag, print_json, shorten
from app.cli.filters import LabelFilter, WhereFilter, read_conditions

if TYPE_CHECKING:
    from app.answers import Item

items = typer.Typer(no_args_is_help=True, help="Items of a collection: list, show, label and delete them.")
_PAGE = 1000  # items that are read at a time, as many as a page over HTTP may have


@items.command("list")
def list_items(
    collection: str,
    modality: Annotated[str | None, typer.Option(help="only items of this modality")] = None,
    pair: Annotated[str | None, typer.Option(help="only items of this pair_id")] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    limit: Annotated[int | None, typer.Option(min=1, help="list this many at most; default: all")] = None,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """List items in order of creation."""
    conditions = read_conditions(where)
    n_left, cursor = limit, None
    with open_backend(url, key) as backend:
        while n_left is None or n_left > 0:
            page = backend.list_items(
                collection,
                modality=modality,
                pair_id=pair,
                label=label or (),
                where=conditions,
                cursor=cursor,
                limit=min(n_left or _PAGE, _PAGE),
            )
            for notice in page.notices:
                LOG.print(Text(notice.message))
            for item in page.items:
                _print(item, as_json)
            n_left = None if n_left is None else n_left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


@items.command("show")
def show_item(
    collection: str,
    item_id: str,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Show one item."""
    with open_backend(url, key) as backend:
        _print(backend.get_item(collection, item_id), as_json)


@items.command("label")
def label_item(
    collection: str,
    item_id: str,
    labels: Annotated[
        list[str] | None, typer.Argument(help="the main one first; none takes all away")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Give an item these labels in place of all that it has."""
    with open_backend(url, key) as backend:
        written = backend.put_labels(collection, item_id, labels or [])
    if as_json:
        print_json(written)


@items.command("delete")
def delete_item(
    collection: str,
    item_id: str,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete one item, and the feedback that names it."""
    with open_backend(url, key) as backend:
        written = backend.delete_item(collection, item_id)
    if as_json:
        print_json(written)


def _print(shown: Item, as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    short = shorten(shown.text or str(shown.metadata.get("source") or shown.content_url or "vector"))
    rest = "" if shown.train else "  not learned from"
    typer.echo(f"{shown.id}  {shown.modality}  {', '.join(shown.labels)}  {short}{rest}")
