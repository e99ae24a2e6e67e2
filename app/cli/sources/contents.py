"""Contents of files, whose kind follows from their endings, or from the encoder that takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.cli.sources.rows import decode_text
from app.domain.entities import Content, Modality
from app.domain.errors import InvalidFieldError
from app.encoders.content import PICTURE_ENDINGS
from app.encoders.registry import content_form

SUFFIXES: Mapping[str, frozenset[str]] = {
    "picture": PICTURE_ENDINGS,
    "sound": frozenset({".wav", ".flac"}),
    "text": frozenset({".txt"}),
}
"""Endings of files, by what they hold."""


def form_of(suffix: str) -> str | None:
    """Return what files of an ending hold, ``"picture"``, ``"sound"`` or ``"text"``; None of others."""
    return next((form for form, suffixes in SUFFIXES.items() if suffix.lower() in suffixes), None)


def file_form(encoder: Mapping[str, Any]) -> str:
    """Return what the files hold that a column names for an encoder: sounds, or else pictures."""
    return "sound" if content_form(encoder) == "sound" else "picture"


def names_by_form(modalities: Sequence[Modality]) -> dict[str, str]:
    """Return the name of the modality that takes pictures, sounds, or texts; of two, that of the first."""
    names: dict[str, str] = {}
    for modality in modalities:
        form = content_form(modality.encoder)
        if form is not None and form in SUFFIXES:
            names.setdefault(form, modality.name)
    return names


def content_of(form: str, content: bytes, field: str = "") -> Content:
    """Return the content of a file that holds a ``"picture"``, ``"sound"`` or ``"text"``; messages call it
    `field`. Raises InvalidFieldError without a field if a text cannot be decoded."""
    if form == "picture":
        return Content(picture=content, picture_field=field)
    if form == "sound":
        return Content(sound=content, sound_field=field)
    try:
        return Content(text=decode_text(content))
    except UnicodeDecodeError as error:
        raise InvalidFieldError("", "is a text in neither UTF-8, UTF-16 nor Windows-1252") from error
