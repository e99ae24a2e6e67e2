"""The command `lrbs search`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from app.cli.console import LOG, JsonLinesFlag
from app.cli.filters import LabelFilter, WhereFilter, read_filter
from app.cli.queries import (
    ItemQuery,
    PictureQuery,
    SoundQuery,
    TextQuery,
    read_query,
)
from app.cli.ready import ready_services
from app.domain.limits import MAX_K


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
    k: Annotated[int, typer.Option("-k", min=1, max=MAX_K, help="number of results")] = 10,
    as_json: JsonLinesFlag = False,
) -> None:
    """Search a collection from the command line."""
    from app.api.schemas.searches import SHOWN_FIELDS, hit_fields

    item_filter = read_filter(label, where)
    services = ready_services()
    source, query = read_query(services, collection, text, picture, sound, item)
    entry, _ = services.catalogue.collection(collection)
    target = to or next(name for name in entry.modality_names if name != source)
    (result,) = services.search.search(collection, source, target, [query], k, 0, item_filter, SHOWN_FIELDS)
    for notice in result.notices:
        LOG.print(Text(notice.message))
    for hit in result.hits:
        probability = "" if hit.probability is None else f"  {hit.probability:6.1%}"  # none within a modality
        figures = f"{hit.rank:3d}  {hit.score:8.4f}{probability}"
        line = f"{figures}  {hit.id}  {', '.join(hit.item.labels)}  {hit.item.text or ''}"
        typer.echo(json.dumps(hit_fields(collection, hit, SHOWN_FIELDS)) if as_json else line)
