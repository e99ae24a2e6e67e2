"""Queries as commands name them: a text, a picture or sound file, or a stored item."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.domain.entities import Content

if TYPE_CHECKING:
    from app.bootstrap import Services
    from app.services.serving.search import Query

TextQuery = Annotated[str | None, typer.Option("--text", help="text to search with")]
PictureQuery = Annotated[
    Path | None, typer.Option("--picture", exists=True, dir_okay=False, help="picture to search with")
]
SoundQuery = Annotated[
    Path | None, typer.Option("--sound", exists=True, dir_okay=False, help="sound to search with")
]
ItemQuery = Annotated[str | None, typer.Option("--item", help="stored item to search with")]


def read_query(
    services: Services,
    collection: str,
    text: str | None,
    picture: Path | None,
    sound: Path | None,
    item: str | None,
) -> tuple[str, Query]:
    """Return the modality of a query, and the query.

    Parameters
    ----------
    services : Services
        Over a schema that is current.
    collection : str
        Its name.
    text, item : str or None
        A text, or the id of an item.
    picture, sound : Path or None
        A file.

    Raises
    ------
    BadParameter
        Unless exactly one of them is given.
    CollectionNotFoundError, ItemNotFoundError
        If there is no such collection or item.
    InvalidFieldError
        If no modality of the collection takes it; names the option.
    """
    from app.cli.encoder_options import modality_for
    from app.services.serving.search import Query

    entry, _ = services.catalogue.collection(collection)
    if [text, picture, sound, item].count(None) != 3:
        raise typer.BadParameter("give exactly one of --text, --picture, --sound, --item")
    if item is not None:
        return services.catalogue.item(collection, item).modality, Query(item_id=item)
    if picture is not None:
        content = Content(picture=picture.read_bytes(), picture_field="--picture")
        return modality_for(entry, "picture"), Query(content)
    if sound is not None:
        content = Content(sound=sound.read_bytes(), sound_field="--sound")
        return modality_for(entry, "sound"), Query(content)
    return modality_for(entry, "text"), Query(Content(text=text))
