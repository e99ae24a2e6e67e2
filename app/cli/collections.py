"""The commands `lrbs collections`: what is there, a new one, and none of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.console import ImageEncoderOption, JsonFlag, JsonLinesFlag, ModalitiesOption, TextEncoderOption
from app.cli.ready import ready_services

if TYPE_CHECKING:
    from app.api.schemas.collections import CollectionOut

collections = typer.Typer(no_args_is_help=True, help="Collections: two modalities, their items and models.")


@collections.command("list")
def list_collections(as_json: JsonLinesFlag = False) -> None:
    """List collections."""
    from app.api.schemas.collections import CollectionOut

    for collection in ready_services().catalogue.collections():
        _print(CollectionOut.of(collection), as_json)


@collections.command("show")
def show_collection(collection: str, as_json: JsonFlag = False) -> None:
    """Show one collection with its numbers of items."""
    from app.api.schemas.collections import CollectionOut

    _print(CollectionOut.of(*ready_services().catalogue.collection(collection)), as_json)


@collections.command("create")
def create_collection(
    name: str,
    modalities: ModalitiesOption = "image,text",
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    as_json: JsonFlag = False,
) -> None:
    """Create a collection; `lrbs ingest` does so, too."""
    from app.api.schemas.collections import CollectionOut
    from app.cli.encoder_options import read_modalities

    described = read_modalities(modalities, image_encoder, text_encoder)
    _print(CollectionOut.of(ready_services().catalogue.create(name, described)), as_json)


@collections.command("delete")
def delete_collection(
    collection: str,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Delete a collection with its items and models."""
    services = ready_services()
    _, counts = services.catalogue.collection(collection)
    if not yes:
        size = " and ".join(f"{count} {name}" for name, count in counts.items()) or "no"
        typer.confirm(f"Delete {collection!r} with {size} items and all its models?", abort=True, err=True)
    services.catalogue.delete_collection(collection)


def _print(shown: CollectionOut, as_json: bool) -> None:
    if as_json:
        typer.echo(shown.model_dump_json())
        return
    parts = [
        f"{name} ({modality.encoder['type']})"
        if shown.items is None
        else f"{shown.items[name]} {name} ({modality.encoder['type']})"
        for name, modality in shown.modalities.items()
    ]
    version = "no model yet" if shown.active_version is None else f"version {shown.active_version}"
    typer.echo(f"{shown.name}  {', '.join(parts)}  {version}  {shown.created_at:%Y-%m-%d %H:%M}")
