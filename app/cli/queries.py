"""Queries as commands name them: a text, a picture or sound file, or a stored item."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.domain.errors import InvalidFieldError

if TYPE_CHECKING:
    from app.answers import Collection
    from app.cli.backend import Backend

TextQuery = Annotated[str | None, typer.Option("--text", help="text to search with")]
PictureQuery = Annotated[
    Path | None, typer.Option("--picture", exists=True, dir_okay=False, help="picture to search with")
]
SoundQuery = Annotated[
    Path | None, typer.Option("--sound", exists=True, dir_okay=False, help="sound to search with")
]
ItemQuery = Annotated[str | None, typer.Option("--item", help="stored item to search with")]


def read_query(
    backend: Backend,
    collection: Collection,
    text: str | None,
    picture: Path | None,
    sound: Path | None,
    item: str | None,
) -> tuple[str, dict[str, Any]]:
    """Return the modality of a query, and the query in the words of the client."""
    # Raises BadParameter unless exactly one is given, and InvalidFieldError (names the option) if no modality
    # of the collection takes it.
    contents = {"text": text, "picture": picture, "sound": sound}
    if [*contents.values(), item].count(None) != 3:
        raise typer.BadParameter("give exactly one of --text, --picture, --sound, --item")
    if item is not None:
        return backend.get_item(collection.name, item).modality, {"item_id": item}
    (form,) = (name for name, content in contents.items() if content is not None)
    return _modality_for(collection, form), {form: contents[form]}


def _modality_for(collection: Collection, form: str) -> str:
    for name, modality in collection.modalities.items():
        if modality.content == form:
            return name
    content = "text" if form == "text" else f"{form}s"
    raise InvalidFieldError(
        f"--{form}", f"collection {collection.name!r} has no modality for {content}; search with --item"
    )
