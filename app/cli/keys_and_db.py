"""The commands of those who run the service: API keys, and the database."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.bootstrap import Services, build, build_on_existing
from app.domain.entities import ApiKey, KeyBounds, Scope
from app.settings import Settings

keys = typer.Typer(no_args_is_help=True, help="API keys.")
db = typer.Typer(no_args_is_help=True, help="The database: its schema and copies of it.")
_log = Console(stderr=True, soft_wrap=True)


@keys.command("create")
def create_key(
    scope: Annotated[Scope, typer.Option(help="what the key allows")] = Scope.SEARCH,
    name: Annotated[str | None, typer.Option(help="what to call it")] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option(
            help="the only collection it can see, unless searching is open; may be given several times"
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="when it stops working: 30d, 12h, or a date such as 2030-01-31")
    ] = None,
    rate_limit: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="requests a minute; LRBS_RATE_LIMIT when absent")
    ] = None,
) -> None:
    """Make a key and print its secret, this once; its id goes to standard error."""
    bounds = KeyBounds(tuple(collection) if collection else None, moment(expires), rate_limit)
    key, secret = _ready().access.create(scope, name, bounds=bounds)
    _log.print(f"key {key.id}, to be revoked by that id", highlight=False)
    typer.echo(secret)


@keys.command("list")
def list_keys() -> None:
    """List keys, without their secrets."""
    for key in _ready().access.list_keys():
        typer.echo(key_line(key))


@keys.command("revoke")
def revoke_key(key_id: str) -> None:
    """Revoke a key."""
    _ready().access.revoke(key_id)


@db.command("upgrade")
def upgrade() -> None:
    """Bring the database to the current schema; a second upgrade at the same time waits."""
    build(Settings()).upgrade_schema()
    typer.echo("the schema is current")


@db.command("backup")
def back_up(
    folder: Annotated[Path, typer.Argument(help="a new folder, to be used as LRBS_DATA_DIR some day")],
) -> None:
    """Copy a SQLite database, the pictures and the models, while the service goes on."""
    copied = build_on_existing(Settings()).back_up(folder)
    typer.echo(f"the database and {copied} files are in {folder}")


@db.command("adopt")
def adopt() -> None:
    """Say that the database and the data folder, as they are now, belong together."""
    build(Settings()).adopt()
    typer.echo("the database and the data folder belong together")


@db.command("sweep")
def sweep() -> None:
    """Move all files to the trash that no row of the database speaks of, however many they are."""
    services = build(Settings())
    services.require_current_schema()
    services.ownership.require_current()
    typer.echo(f"{services.garbage_collector.sweep(any_share=True)} unused files and folders were swept")


def moment(text: str | None, now: datetime | None = None) -> datetime | None:
    """Return the time that an option names: so many days or hours from now, or a date, UTC unless it says.

    Parameters
    ----------
    text : str or None
        Such as ``30d``, ``12h``, ``2030-01-31`` or ``2030-01-31T12:00+01:00``; None stays None.
    now : datetime, optional
        The present when None.
    """
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,5})([dh])", text)
    if span is not None:
        hours = int(span[1]) * (24 if span[2] == "d" else 1)
        return (now or datetime.now(UTC)) + timedelta(hours=hours)
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(f"expected 30d, 12h or a date such as 2030-01-31, got {text!r}") from error


def key_line(key: ApiKey) -> str:
    """Return what is known of a key, without its secret, on one line."""
    bounds = key.bounds
    facts = ["never used" if key.last_used_at is None else f"used {key.last_used_at:%Y-%m-%d %H:%M}"]
    if bounds.collections is not None:
        facts.append(f"only {', '.join(bounds.collections)}")
    if bounds.expires_at is not None:
        verb = "expired" if bounds.expires_at <= datetime.now(UTC) else "expires"
        facts.append(f"{verb} {bounds.expires_at:%Y-%m-%d %H:%M}")
    if bounds.requests_per_minute is not None:
        facts.append(f"{bounds.requests_per_minute} requests a minute")
    name = f"  {key.name}" if key.name else ""
    return f"{key.id}  {key.scope.value:6s}  {key.created_at:%Y-%m-%d %H:%M}  {'; '.join(facts)}{name}"


def _ready() -> Services:
    services = build(Settings())
    services.set_up()
    return services
