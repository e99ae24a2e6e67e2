"""The commands `lrbs collections`: what is there, a new one, and none of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import (
    ImageEncoderOption,
    JsonFlag,
    JsonLinesFlag,
    ModalitiesOption,
    TextEncoderOption,
    print_json,
)

if TYPE_CHECKING:
    from app.answers import Collection

collections = typer.Typer(no_args_is_help=True, help="Collections: two modalities, their items and models.")


@collections.command("list")
def list_collections(as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """List collections."""
    with open_backend(url, key) as backend:
        for collection in backend.list_collections().collections:
            _print(collection, as_json)


@collections.command("show")
def show_collection(
    collection: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None
) -> None:
    """Show one collection with its numbers of items."""
    with open_backend(url, key) as backend:
        _print(backend.get_collection(collection), as_json)


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
    from app.cli.encoder_options import parse_modalities

    described = parse_modalities(modalities, image_encoder, text_encoder)
    with open_backend(url, key, may_create=True) as backend:
        _print(backend.create_collection(name, described), as_json)


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


def _print(shown: Collection, as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    parts = [
        f"{name} ({modality.encoder['type']})"
        if shown.items is None
        else f"{shown.items[name]} {name} ({modality.encoder['type']})"
        for name, modality in shown.modalities.items()
    ]
    version = "no model yet" if shown.active_version is None else f"version {shown.active_version}"
    typer.echo(f"{shown.name}  {', '.join(parts)}  {version}  {shown.created_at:%Y-%m-%d %H:%M}")
