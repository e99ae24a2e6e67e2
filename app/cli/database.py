"""The commands `lrbs db`: schema, backup, ownership and garbage collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.backend import ready_services
from app.cli.console import LOG, JsonFlag, progress
from app.domain.errors import InvalidFieldError

db = typer.Typer(no_args_is_help=True, help="The database: its schema and copies of it.")


@db.command("upgrade")
def upgrade(as_json: JsonFlag = False) -> None:
    """Upgrade the database to the current schema; a concurrent upgrade waits."""
    ready_services(is_checked=False).schema.upgrade()
    _print({"schema": "current"}, as_json, "the schema is current")


@db.command("backup")
def back_up(
    folder: Annotated[Path, typer.Argument(help="a new folder; serve it with LRBS_DATA_DIR")],
    as_json: JsonFlag = False,
) -> None:
    """Copy the database with its pictures and models while the service runs."""
    copied = ready_services(may_create=False, is_checked=False).backup.make(folder)
    answer = {"folder": str(folder), "files": copied}
    _print(answer, as_json, f"the database and {copied} files are in {folder}")


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
    copied = ready_services(is_checked=False).backup.restore(folder, remove_galleries)
    answer = {"folder": str(folder), "files": copied}
    _print(answer, as_json, f"the database and {copied} files are those of {folder}")


@db.command("copy")
def copy(
    target_url: Annotated[
        str,
        typer.Argument(help="of an empty database, or of one that was copied in part; not its data folder"),
    ],
    collection: Annotated[
        list[str] | None, typer.Option(help="only these, with all keys; may be repeated")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy the rows into a database of either kind, which takes the place of this one; resumes."""
    services, names = ready_services(may_create=False), collection or []
    with progress(LOG, f"Copying {', '.join(map(repr, names)) or 'all collections'}.") as show:
        source, target = services.copy_to(
            target_url, names, lambda table, done, total: show("rows", done, total, table)
        )
    lines = [f"{table}: {_list_counts(counts)}" for table, counts in source.items()]
    _print({"source": source, "target": target}, as_json, "\n".join(lines))
    different = [
        f"{table}: {_list_counts(target[table])}" for table in source if source[table] != target[table]
    ]
    if different:
        raise InvalidFieldError("TARGET_URL", f"the database has other rows, {'; '.join(different)}")


@db.command("adopt")
def adopt(as_json: JsonFlag = False) -> None:
    """Declare that the database and the data folder belong together as they are."""
    ready_services(is_checked=False).schema.adopt()
    _print({"adopted": True}, as_json, "the database and the data folder belong together")


@db.command("reindex")
def reindex(
    collection: Annotated[
        str | None, typer.Argument(help="its name; all that have a model if left out")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Build a vector engine's galleries again from the database, beside those that serve."""
    services = ready_services(may_create=False)
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
        words = " and ".join(f"{size} {modality}" for modality, size in sizes.items())
        _print({"collection": name, "items": sizes}, as_json, f"{name}: {words}")


@db.command("sweep")
def sweep(as_json: JsonFlag = False) -> None:
    """Move all files that the database does not refer to into the trash, however many they are."""
    services = ready_services(may_create=False)
    services.ownership.require_current()
    swept = services.garbage_collector.sweep(any_share=True)
    _print({"swept": swept}, as_json, f"{swept} unused files and folders were swept")


def _list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} of {name}" if name else str(count) for name, count in counts.items()) or "0"


def _print(answer: dict[str, Any], as_json: bool, words: str) -> None:
    typer.echo(json.dumps(answer) if as_json else words)
