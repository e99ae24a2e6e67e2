"""Encoders as a command names them: ``hog-color+onnx:path=model.onnx,size=224``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.cli.console import read_names
from app.domain.entities import Collection, Modality
from app.domain.errors import InvalidFieldError
from app.encoders.options import names_file
from app.encoders.registry import OPTIONS, content_form

_COMMA = re.compile(r",(?![^\[]*\])")
"""One that is not within square brackets."""


def read_encoder(option: str, description: str) -> dict[str, Any]:
    """Return the options of an encoder that a command names.

    Parameters
    ----------
    option : str
        Of the command, for errors.
    description : str
        A type, after a colon its options; or several of these, joined by ``+``; or the options as a JSON
        object, which can hold any file name. Values are JSON where they can be read as such, else text, and
        may be lists in square brackets; a relative path is one of the working directory.

    Raises
    ------
    InvalidFieldError
        If it begins like a JSON object and is none, or there is no such type or option.
    """
    options = _read_options(option, description)
    try:
        OPTIONS.check(options)
    except InvalidFieldError as error:
        raise InvalidFieldError(option, str(error)) from error
    return options


def read_encoders(option: str, descriptions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of encoders by modality, as a command names them: ``image=hog-color``.

    Parameters
    ----------
    option : str
        Of the command, for errors.
    descriptions : sequence of str
        A modality, an equals sign, and an encoder as of `read_encoder`; each modality once.
    """
    encoders: dict[str, dict[str, Any]] = {}
    for text in descriptions:
        modality, equals, description = text.partition("=")
        if not equals or not modality.strip() or modality.strip() in encoders:
            raise InvalidFieldError(option, f"expected MODALITY=ENCODER, each modality once, got {text!r}")
        encoders[modality.strip()] = read_encoder(option, description)
    return encoders


def _read_options(option: str, description: str) -> dict[str, Any]:
    if description.lstrip().startswith("{"):
        try:
            options: dict[str, Any] = json.loads(description)
        except ValueError as error:
            raise InvalidFieldError(option, f"is no JSON object: {error}") from error
        return options
    parts = [_read_part(part) for part in description.split("+")]
    return parts[0] if len(parts) == 1 else {"type": "combine", "parts": parts}


def _read_part(description: str) -> dict[str, Any]:
    kind, _, rest = description.partition(":")
    options: dict[str, Any] = {"type": kind.strip()}
    for pair in _COMMA.split(rest) if rest else ():
        name, _, text = pair.partition("=")
        options[name.strip()] = _read_value(name.strip(), text.strip())
    return options


def _read_value(name: str, text: str) -> Any:
    if names_file(name):
        return str(Path(text).resolve())
    try:
        return json.loads(text)
    except ValueError:
        if text.startswith("[") and text.endswith("]"):
            return [_read_value("", one.strip()) for one in text[1:-1].split(",")]
        return text


def read_modalities(names: str, image_encoder: str, text_encoder: str) -> list[Modality]:
    """Return the two modalities of a new collection, as options of a command describe them."""
    encoders = [
        read_encoder("--image-encoder", image_encoder),
        read_encoder("--text-encoder", text_encoder),
    ]
    return [Modality(name, encoder) for name, encoder in zip(read_names(names), encoders, strict=True)]


def modality_for(collection: Collection, form: str) -> str:
    """Return the modality of a collection that takes ``"text"``, ``"picture"`` or ``"sound"``.

    Raises
    ------
    InvalidFieldError
        If there is none; names the option of `lrbs search`.
    """
    for modality in collection.modalities:
        if content_form(modality.encoder) == form:
            return modality.name
    content = "text" if form == "text" else f"{form}s"
    raise InvalidFieldError(
        f"--{form}", f"collection {collection.name!r} has no modality for {content}; search with --item"
    )
