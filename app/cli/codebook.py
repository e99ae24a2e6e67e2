"""`lrbs codebook`: the visual words of the encoder `sift-bovw`, learned from a folder of pictures."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from app.cli.console import JsonFlag
from app.domain.errors import InvalidFieldError, ServiceError
from app.encoders.content import PICTURE_ENDINGS, PixelBudget, opened_picture
from app.encoders.types.sift_bovw import MAX_WORDS, Floats, dense_descriptors, learn_codebook
from app.settings import Settings


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
