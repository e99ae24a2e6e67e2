"""The command `lrbs search`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from app.cli.backend import KeyOption, UrlOption, open_backend
from app.cli.console import LOG, JsonLinesFlag
from app.cli.filters import LabelFilter, WhereFilter, read_filter
from app.cli.queries import (
    ItemQuery,
    PictureQuery,
    SoundQuery,
    TextQuery,
    read_query,
)
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
    for notice in result.notices:
        LOG.print(Text(notice.message))
    for hit in result.hits:
        probability = "" if hit.probability is None else f"  {hit.probability:6.1%}"  # none within a modality
        figures = f"{hit.rank:3d}  {hit.score:8.4f}{probability}"
        line = f"{figures}  {hit.id}  {', '.join(hit.labels or ())}  {hit.text or ''}"
        typer.echo(json.dumps(msgspec.to_builtins(hit)) if as_json else line)
