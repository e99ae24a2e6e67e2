"""Encoders as a command names them (``hog-color+onnx:path=model.onnx,size=224``), and `lrbs codebook`: the
visual words of the encoder `sift-bovw`, learned from a folder of pictures."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from app.cli.console import JsonFlag, read_names
from app.domain.errors import InvalidFieldError, ServiceError
from app.encoders.pictures import PICTURE_ENDINGS, PixelBudget, opened_picture
from app.encoders.types.sift_bovw import MAX_WORDS, Floats, dense_descriptors, learn_codebook
from app.settings import Settings

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


def codebook(
    pictures: Annotated[Path, typer.Argument(help="a folder with pictures of the kind to be encoded")],
    output: Annotated[Path, typer.Argument(help="the codebook, an .npy file")],
    words: Annotated[int, typer.Option(min=2, max=MAX_WORDS, help="number of visual words")] = 500,
    as_json: JsonFlag = False,
) -> None:
    """Learn the visual words of the encoder sift-bovw from a folder of pictures."""
    paths = sorted(path for path in pictures.rglob("*") if path.suffix.lower() in PICTURE_ENDINGS)
    if not paths:
        raise InvalidFieldError("pictures", f"{pictures} holds no picture")
    # The first ones fill a codebook: those of one kind may lie beside each other.
    random.Random(0).shuffle(paths)
    try:
        learned = learn_codebook(_descriptors(paths), words)
    except ValueError as error:
        raise InvalidFieldError("--words", str(error)) from error
    with output.open("wb") as file:
        np.save(file, learned, allow_pickle=False)
    typer.echo(
        json.dumps({"output": str(output), "words": words}) if as_json else f"{output}: {words} visual words"
    )


def _descriptors(paths: list[Path]) -> Iterator[Floats]:
    """Yield the descriptors of each picture; one that cannot be opened is named and left out."""
    limits = Settings()
    budget = PixelBudget(limits.max_picture_pixels)
    for path in paths:
        try:
            content = path.read_bytes()
            with opened_picture(str(path), content, limits.max_picture_pixels, budget) as picture:
                descriptors = dense_descriptors(picture)
        except ServiceError as error:
            typer.echo(f"left out: {error}", err=True)
        else:
            yield descriptors
