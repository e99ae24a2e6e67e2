"""The commands `lrbs db`: schema, backup, ownership and garbage collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from app.cli.console import JsonFlag
from app.cli.ready import existing_services, new_services

db = typer.Typer(no_args_is_help=True, help="The database: its schema and copies of it.")


@db.command("upgrade")
def upgrade(as_json: JsonFlag = False) -> None:
    """Upgrade the database to the current schema; a concurrent upgrade waits."""
    new_services().schema.upgrade()
    typer.echo(json.dumps({"schema": "current"}) if as_json else "the schema is current")


@db.command("backup")
def back_up(
    folder: Annotated[Path, typer.Argument(help="a new folder; serve it with LRBS_DATA_DIR")],
    as_json: JsonFlag = False,
) -> None:
    """Copy the database with its pictures and models while the service runs."""
    copied = existing_services().backup.make(folder)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "files": copied}))
        return
    typer.echo(f"the database and {copied} files are in {folder}")


@db.command("restore")
def restore(
    folder: Annotated[Path, typer.Argument(help="a folder made by `lrbs db backup`")],
    remove_galleries: Annotated[
        bool,
        typer.Option(
            "--remove-galleries",
            help="also where the Milvus server has some, which a service may be searching",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fill an empty database and the data folder with a copy; files that lie there stay."""
    copied = new_services().backup.restore(folder, remove_galleries)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "files": copied}))
        return
    typer.echo(f"the database and {copied} files are those of {folder}")


@db.command("adopt")
def adopt(as_json: JsonFlag = False) -> None:
    """Declare that the database and the data folder belong together as they are."""
    new_services().schema.adopt()
    typer.echo(
        json.dumps({"adopted": True}) if as_json else "the database and the data folder belong together"
    )


@db.command("reindex")
def reindex(
    collection: Annotated[
        str | None, typer.Argument(help="its name; all that have a model if left out")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Build a vector engine's galleries again from the database, beside those that serve."""
    services = existing_services()
    services.schema.require_current()
    if services.rebuild_galleries is None:
        message = "is faiss: each process builds its galleries from the database when it starts"
        raise typer.BadParameter(message, param_hint="LRBS_VECTOR_ENGINE")
    names = (
        [collection]
        if collection
        else [one.name for one in services.catalogue.collections() if one.active_version]
    )
    for name in names:
        sizes = services.rebuild_galleries(name)
        if as_json:
            typer.echo(json.dumps({"collection": name, "items": sizes}))
        else:
            typer.echo(f"{name}: " + " and ".join(f"{size} {modality}" for modality, size in sizes.items()))


@db.command("sweep")
def sweep(as_json: JsonFlag = False) -> None:
    """Move all files that the database does not refer to into the trash, however many they are."""
    services = existing_services()
    services.schema.require_current()
    services.ownership.require_current()
    swept = services.garbage_collector.sweep(any_share=True)
    if as_json:
        typer.echo(json.dumps({"swept": swept}))
        return
    typer.echo(f"{swept} unused files and folders were swept")
