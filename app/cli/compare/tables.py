"""A set of one's own from a CSV table of pictures and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from app.cli.compare.encoding import SetEncoder, encoder_options
from app.cli.compare.facets import facets_of
from app.cli.compare.sets import ComparedSet
from app.domain.entities import Content, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.services.training.eligibility import class_of
from solver.datasets import (
    LABEL,
    PairedFeatures,
    PictureTextRow,
    annotate_rows,
    draw_split,
    read_picture_text_table,
    training_rows,
)

_SPLIT = "split"
"""Column that is taken for the split if none is named."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a table, and encoders of its contents.

    Parameters
    ----------
    id, picture, text : str
        Columns.
    labels : tuple of str
        Columns of the labels, the main one first.
    facets : tuple of str or None
        Columns that are facets; those that put rows together when absent.
    pair : str or None
        Column whose equal values make rows partners; the id when absent.
    split : str or None
        Column of "train" and "test"; "split" when absent, if there is one.
    picture_encoder, text_encoder : str
        As of `encoder_options`.
    """

    id: str
    picture: str
    text: str
    labels: tuple[str, ...]
    facets: tuple[str, ...] | None
    pair: str | None
    split: str | None
    picture_encoder: str
    text_encoder: str


def load_table(file: Path, columns: TableColumns, encoder: SetEncoder, seed: int) -> ComparedSet:
    """Return the set of a table; rows without a label are left out.

    Parameters
    ----------
    file : Path
        UTF-8 CSV with a header, the pictures in its folder or below it.
    columns : TableColumns
        What its columns hold.
    encoder : SetEncoder
        Encodes pictures and texts.
    seed : int
        Of the split, where the table has none.

    Raises
    ------
    DatasetError
        If the table cannot be read; names the line or the column.
    InvalidFieldError
        If a column or an encoder does not fit; names the option.
    """
    rows = _labelled_rows(file, columns)
    labels = np.asarray([class_of(row.labels) for row in rows], np.str_)
    partners = None if columns.pair is None else _column(rows, columns.pair, "--pair-column")
    is_train = _split(rows, columns.split, labels, partners, seed)
    used = (columns.pair, columns.split or _SPLIT)
    metadata = [{key: row.other[key] for key in row.other if key not in used} for row in rows]
    facets = facets_of((metadata, metadata), is_train.tolist(), columns.facets)
    pictures, texts = _encode(rows, columns, encoder, is_train)
    ids, values = tuple(row.id for row in rows), [row.labels for row in rows]
    types = [encoder_options(name)["type"] for name in (columns.picture_encoder, columns.text_encoder)]
    return ComparedSet(
        name=file.stem,
        data=PairedFeatures(pictures, texts, labels, is_train, ids, ids),
        features=f"pictures: {pictures.shape[1]}-d {types[0]}; texts: {texts.shape[1]}-d {types[1]}",
        relevance="same label",
        rows=tuple(rows),
        annotations=annotate_rows({LABEL: (values, values), **facets}, partners),
    )


def _labelled_rows(file: Path, columns: TableColumns) -> list[PictureTextRow]:
    rows = read_picture_text_table(
        file,
        id_column=columns.id,
        picture_column=columns.picture,
        text_column=columns.text,
        label_columns=columns.labels,
    )
    if not rows:
        raise InvalidFieldError("--table", f"{file} has no rows")
    rows = [row for row in rows if row.labels]
    if not rows:
        raise InvalidFieldError(
            "--label-column", f"no row of {file} has a value in {join_words(columns.labels)}"
        )
    return rows


def _split(
    rows: Sequence[PictureTextRow],
    name: str | None,
    labels: npt.NDArray[np.str_],
    partners: Sequence[str] | None,
    seed: int,
) -> npt.NDArray[np.bool]:
    if name is None and _SPLIT not in rows[0].other:
        return draw_split(labels, partners, seed)
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
    pictures = [
        Content(picture=row.picture.read_bytes(), picture_field=f"picture {row.picture.name}") for row in rows
    ]
    texts = [Content(text=row.text) for row in rows]
    return (
        encoder.encode(pictures, columns.picture_encoder, "--picture-encoder", is_train),
        encoder.encode(texts, columns.text_encoder, "--text-encoder", is_train),
    )
