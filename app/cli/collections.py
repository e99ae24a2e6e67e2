"""The commands `lrbs collections` (those there are, a new one, one less) and `lrbs items` (what it holds)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import (
    LOG,
    ImageEncoderOption,
    JsonFlag,
    JsonLinesFlag,
    LabelFilter,
    ModalitiesOption,
    TextEncoderOption,
    WhereFilter,
    print_json,
    print_one,
    read_conditions,
    shorten,
)

if TYPE_CHECKING:
    from app.answers import Collection, Item

collections = typer.Typer(no_args_is_help=True, help="Collections: two modalities, their items and models.")
_PAGE = 1000  # items that are read at a time, as many as a page over HTTP may have


@collections.command("list")
def list_collections(as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """List collections."""
    with open_backend(url, key) as backend:
        for collection in backend.list_collections().collections:
            print_one(collection, as_json, _collection_line)


@collections.command("show")
def show_collection(
    collection: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Show one collection with its numbers of items."""
    with open_backend(url, key) as backend:
        print_one(backend.get_collection(collection), as_json, _collection_line)


@collections.command("create")
def create_collection(
    name: str,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Create a collection; `lrbs ingest` does so, too."""
    from app.cli.encoders import parse_modalities

    described = parse_modalities(modalities, image_encoder, text_encoder)
    with open_backend(url, key, may_create=True) as backend:
        print_one(backend.create_collection(name, described), as_json, _collection_line)


@collections.command("delete")
def delete_collection(
    collection: str,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Delete a collection with its items and models."""
    with open_backend(url, key) as backend:
        counts = backend.get_collection(collection).items or {}
        if not yes:
            size = " and ".join(f"{count} {name}" for name, count in counts.items() if count) or "no"
            question = f"Delete {collection!r} with {size} items and all its models?"
            typer.confirm(question, abort=True, err=True)
        backend.delete_collection(collection)


def _collection_line(shown: Collection) -> str:
    parts = [
        f"{name} ({modality.encoder['type']})"
        if shown.items is None
        else f"{shown.items[name]} {name} ({modality.encoder['type']})"
        for name, modality in shown.modalities.items()
    ]
    version = "no model yet" if shown.active_version is None else f"version {shown.active_version}"
    return f"{shown.name}  {', '.join(parts)}  {version}  {shown.created_at:%Y-%m-%d %H:%M}"


items = typer.Typer(no_args_is_help=True, help="Items of a collection: list, show, label and delete them.")


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
                print_one(item, as_json, _item_line)
            n_left = None if n_left is None else n_left - len(page.items)
            cursor = page.next_cursor
            if cursor is None:
                return


@items.command("show")
def show_item(
    collection: str, item_id: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Show one item."""
    with open_backend(url, key) as backend:
        print_one(backend.get_item(collection, item_id), as_json, _item_line)


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
    collection: str, item_id: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Delete one item, and the feedback that names it."""
    with open_backend(url, key) as backend:
        written = backend.delete_item(collection, item_id)
    if as_json:
        print_json(written)


def _item_line(shown: Item) -> str:
    short = shorten(shown.text or str(shown.metadata.get("source") or shown.content_url or "vector"))
    rest = "" if shown.train else "  not learned from"
    return f"{shown.id}  {shown.modality}  {', '.join(shown.labels)}  {short}{rest}"
