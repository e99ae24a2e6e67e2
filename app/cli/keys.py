"""The commands `lrbs keys`: API keys."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import LOG, JsonFlag, JsonLinesFlag, print_json, print_one
from app.domain.names import Scope

if TYPE_CHECKING:
    from app.answers import Key

keys = typer.Typer(no_args_is_help=True, help="API keys.")


@keys.command("create")
def create_key(
    scope: Annotated[Scope, typer.Option(help="what the key permits")] = Scope.SEARCH,
    name: Annotated[str | None, typer.Option(help="name of the key")] = None,
    collection: Annotated[
        list[str] | None,
        typer.Option(
            help="limit the key to this collection (may be repeated); without effect where search is open"
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="when it expires: 30d, 12h, 15m, or a date such as 2030-01-31")
    ] = None,
    rate_limit: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="requests a minute; default: LRBS_RATE_LIMIT")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Create a key and print its secret, which is shown only once; its id goes to standard error."""
    expires_at = parse_expiry(expires)
    with open_backend(url, key, may_create=True) as backend:
        created = backend.create_key(
            scope.value,
            name=name,
            collections=collection or None,
            expires_at=expires_at,
            requests_per_minute=rate_limit,
        )
    if as_json:
        print_json(created)
        return
    LOG.print(
        "The secret below is shown only this once: send it as 'Authorization: Bearer SECRET', or paste it "
        f"into the page. lrbs keys revoke {created.id} takes it back.",
        highlight=False,
    )
    typer.echo(created.secret)


@keys.command("list")
def list_keys(as_json: JsonLinesFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """List keys, without their secrets."""
    with open_backend(url, key) as backend:
        for stored in backend.list_keys().keys:
            print_one(stored, as_json, _key_line)


@keys.command("revoke")
def revoke_key(key_id: str, as_json: JsonFlag = False, url: UrlOption = None, key: KeyOption = None) -> None:
    """Revoke a key."""
    with open_backend(url, key) as backend:
        backend.revoke_key(key_id)
    if as_json:
        typer.echo(json.dumps({"id": key_id}))


def parse_expiry(text: str | None, now: datetime | None = None) -> datetime | None:
    """Parse the value of --expires: ``30d``, ``12h`` or ``15m`` from now, or a date, in UTC unless it has an
    offset."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,5})([dhm])", text)
    if span is not None:
        unit = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}[span[2]]
        return (now or datetime.now(UTC)) + int(span[1]) * unit
    try:
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        expected = "expected 30d, 12h, 15m or a date such as 2030-01-31"
        raise typer.BadParameter(f"{expected}, got {text!r}", param_hint="--expires") from error


def _key_line(key: Key) -> str:
    details = ["never used" if key.last_used_at is None else f"used {key.last_used_at:%Y-%m-%d %H:%M}"]
    if key.collections is not None:
        details.append(f"only {', '.join(key.collections)}")
    if key.expires_at is not None:
        verb = "expired" if key.expires_at <= datetime.now(UTC) else "expires"
        details.append(f"{verb} {key.expires_at:%Y-%m-%d %H:%M}")
    if key.requests_per_minute is not None:
        details.append(f"{key.requests_per_minute} requests a minute")
    name = f"  {key.name}" if key.name else ""
    return f"{key.id}  {key.scope:7s}  {key.created_at:%Y-%m-%d %H:%M}  {'; '.join(details)}{name}"
