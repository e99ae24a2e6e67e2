"""The command `lrbs search`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import LOG, JsonLinesFlag, read_names, shorten
from app.cli.filters import LabelFilter, WhereFilter, read_filter
from app.cli.queries import (
    ItemQuery,
    PictureQuery,
    SoundQuery,
    TextQuery,
    read_query,
)
from app.domain.names import MAX_K

if TYPE_CHECKING:
    from app.answers import Hit, Item
    from app.cli.backend import Backend

_PARTNERS_AT_ONCE = 100  # as many as one call may ask for


def search(
    collection: str,
    text: TextQuery = None,
    picture: PictureQuery = None,
    sound: SoundQuery = None,
    item: ItemQuery = None,
    to: Annotated[
        str | None, typer.Option(help="modality to search; default: the other one than the query's")
    ] = None,
    label: LabelFilter = None,
    where: WhereFilter = None,
    show: Annotated[
        str | None, typer.Option(help="metadata keys to show, comma-separated; those of --where are, too")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=MAX_K, help="number of results")] = 10,
    as_json: JsonLinesFlag = False,
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Search a collection from the command line."""
    import msgspec

    item_filter = read_filter(label, where)
    with open_backend(url, key) as backend:
        searched = backend.get_collection(collection)
        source, query = read_query(backend, searched, text, picture, sound, item)
        target = to or next(name for name in searched.modalities if name != source)
        result = backend.search(collection, source, target, **query, k=k, filter=item_filter)
        partners = {} if as_json else _read_partners(backend, collection, result.hits)
    for notice in result.notices:
        LOG.print(Text(notice.message))
        if notice.did_you_mean:
            LOG.print(Text(f"did you mean {' or '.join(map(repr, notice.did_you_mean))}?"))
    keys = dict.fromkeys([*item_filter["metadata"], *read_names(show or "")])
    for hit in result.hits:
        typer.echo(
            json.dumps(msgspec.to_builtins(hit)) if as_json else _line(hit, partners.get(hit.id), keys)
        )


def _read_partners(backend: Backend, collection: str, hits: Sequence[Hit]) -> dict[str, Item]:
    """Return the partners of hits that have no text of their own."""
    partners: dict[str, Item] = {}
    ids = [hit.id for hit in hits if not hit.text]
    for start in range(0, len(ids), _PARTNERS_AT_ONCE):
        partners |= backend.list_partners(collection, ids[start : start + _PARTNERS_AT_ONCE]).partners
    return partners


def _line(hit: Hit, partner: Item | None, keys: Iterable[str]) -> str:
    """Return what a person knows the item by, its labels, what was asked for, and its id."""
    probability = "" if hit.probability is None else f"  {hit.probability:6.1%}"  # none within a modality
    metadata = hit.metadata or {}
    source = str(metadata.get("source") or "")
    text = shorten(hit.text or (partner.text if partner is not None else None) or "")
    name = f"{text} ({source})" if text and source and not hit.text else text or source
    values = (f"{key}={_brief(metadata[key])}" for key in keys if key in metadata)
    parts = [name, ", ".join(hit.labels or ()), ", ".join(values), hit.id]
    return "  ".join([f"{hit.rank:3d}  {hit.score:8.4f}{probability}", *filter(None, parts)])


def _brief(value: Any) -> str:
    return shorten(value if isinstance(value, str) else json.dumps(value))
