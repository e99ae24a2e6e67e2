"""A set of one's own from a CSV table of pictures and texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.compare.encoding import SetEncoder, encoder_words
from app.cli.compare.learned import CarriedRows, LearnedRows, learned_rows
from app.cli.compare.sets import ComparedSet, relevance_of
from app.cli.sources.contents import content_of, file_form
from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.domain.reports import Supervision
from solver.datasets import PairedFeatures, PictureTextRow, read_picture_text_table, training_rows

_SPLIT = "split"  # column that is taken for the split if none is named


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a table, and options of the encoders of its contents."""

    id: str
    picture: str
    text: str
    labels: tuple[str, ...] | None  # the main one first; None: "label", if there is one
    pair: str | None  # whose equal values make rows partners; None: the id
    split: str | None  # of "train" and "test"; None: "split", if there is one
    image_encoder: Mapping[str, Any]
    text_encoder: Mapping[str, Any]


def load_table(
    file: Path, columns: TableColumns, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    """Return the set of a UTF-8 CSV with a header, pictures in its folder or below it; rows without a class
    are left out. Raises DatasetError (names line or column) and InvalidFieldError (names the option)."""
    rows, learned = read_rows(file, columns, supervision, seed)
    pictures, texts = _encode(rows, columns, encoder, learned.is_train)
    ids = tuple(row.id for row in rows)
    types = [encoder_words(options) for options in (columns.image_encoder, columns.text_encoder)]
    classes = learned.classes
    return ComparedSet(
        name=file.stem,
        data=PairedFeatures(pictures, texts, classes.names, learned.is_train, ids, ids),
        features=f"pictures: {pictures.shape[1]}-d {types[0]}; texts: {texts.shape[1]}-d {types[1]}",
        relevance=relevance_of(classes.kind),
        rows=tuple(rows),
        annotations=learned.annotations,
        class_name=classes.kind,
    )


def read_rows(
    file: Path, columns: TableColumns, supervision: Supervision, seed: int
) -> tuple[list[PictureTextRow], LearnedRows]:
    """Return the rows of a table that have a class to learn from, and what they teach; see `load_table`."""
    all_rows = _rows(file, columns)
    partners = None if columns.pair is None else _column(all_rows, columns.pair, "--pair-column")
    used = (columns.pair, columns.split or _SPLIT)
    metadata = [{key: row.other[key] for key in row.other if key not in used} for row in all_rows]
    labels = [row.labels for row in all_rows]
    carried = CarriedRows((labels, labels), partners, (metadata, metadata), _split(all_rows, columns.split))
    learned = learned_rows(carried, supervision, "--table", seed)
    return [all_rows[row] for row in learned.rows.tolist()], learned


def contents_of(
    rows: Sequence[PictureTextRow], image_encoder: Mapping[str, Any]
) -> tuple[list[Content], list[Content]]:
    """Return the pictures of rows, or sounds where the encoder takes these, and the texts."""
    form = file_form(image_encoder)
    files = [content_of(form, row.picture.read_bytes(), f"{form} {row.picture.name}") for row in rows]
    return files, [Content(text=row.text) for row in rows]


def _rows(file: Path, columns: TableColumns) -> list[PictureTextRow]:
    rows = read_picture_text_table(
        file,
        id_column=columns.id,
        picture_column=columns.picture,
        text_column=columns.text,
        label_columns=columns.labels,
    )
    if not rows:
        raise InvalidFieldError("--table", f"{file} has no rows")
    return rows


def _split(rows: Sequence[PictureTextRow], name: str | None) -> npt.NDArray[np.bool] | None:
    if name is None and _SPLIT not in rows[0].other:
        return None
    return training_rows(_column(rows, name or _SPLIT, "--split-column"), f"column {name or _SPLIT!r}")


def _column(rows: Sequence[PictureTextRow], name: str, option: str) -> list[str]:
    if name not in rows[0].other:
        raise InvalidFieldError(
            option, f"there is no other column {name!r}, there are {join_words(rows[0].other)}"
        )
    return [row.other[name] for row in rows]


def _encode(
    rows: Sequence[PictureTextRow], columns: TableColumns, encoder: SetEncoder, is_train: npt.NDArray[np.bool]
) -> tuple[Matrix, Matrix]:
    pictures, texts = contents_of(rows, columns.image_encoder)
    return (
        encoder.encode(pictures, columns.image_encoder, "--image-encoder", is_train),
        encoder.encode(texts, columns.text_encoder, "--text-encoder", is_train),
    )
