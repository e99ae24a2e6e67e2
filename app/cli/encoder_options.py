"""Encoders as a command names them: ``hog-color+onnx:path=model.onnx,size=224``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.cli.console import read_names
from app.domain.errors import InvalidFieldError

if TYPE_CHECKING:
    from app.domain.entities import Modality

_COMMA = re.compile(r",(?![^\[]*\])")  # one that is not within square brackets
ENCODER_OPTIONS = ("--image-encoder", "--text-encoder")
"""Of a command that makes a collection, in the order of its modalities."""


def read_encoder(option: str, description: str) -> dict[str, Any]:
    """Return the options of an encoder that a command names: a type, ``:`` and its options, or several joined
    by ``+``, or a JSON object. Raises InvalidFieldError."""
    # A JSON object can hold any file name. Values are JSON where they can be read as such, else text, and may
    # be lists in square brackets; a relative path is one of the working directory. Errors name the `option`.
    options = _parse_encoder(option, description)
    check_encoder(option, options)
    return options


def check_encoder(option: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidFieldError, which names the option of the command, unless these are options of a type."""
    from app.encoders.registry import OPTIONS

    try:
        OPTIONS.check(options)
    except InvalidFieldError as error:
        raise InvalidFieldError(option, str(error)) from error


def read_encoders(option: str, descriptions: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options of encoders by modality, each once, as a command names them: ``image=hog-color``
    (`read_encoder`)."""
    encoders: dict[str, dict[str, Any]] = {}
    for text in descriptions:
        modality, equals, description = text.partition("=")
        if not equals or not modality.strip() or modality.strip() in encoders:
            raise InvalidFieldError(option, f"expected MODALITY=ENCODER, each modality once, got {text!r}")
        encoders[modality.strip()] = read_encoder(option, description)
    return encoders


def _parse_encoder(option: str, description: str) -> dict[str, Any]:
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
    from app.encoders.options import names_file

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
    from app.domain.entities import Modality

    described = parse_modalities(names, image_encoder, text_encoder)
    for option, encoder in zip(ENCODER_OPTIONS, described.values(), strict=True):
        check_encoder(option, encoder)
    return [Modality(name, encoder) for name, encoder in described.items()]


def parse_modalities(names: str, image_encoder: str, text_encoder: str) -> dict[str, dict[str, Any]]:
    """Return the encoders of the two modalities of a new collection; their options are not checked."""
    described = zip(ENCODER_OPTIONS, (image_encoder, text_encoder), strict=True)
    return dict(zip(read_names(names), [_parse_encoder(*one) for one in described], strict=True))
