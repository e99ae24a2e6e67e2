"""Sets of one's own: a CSV table of pictures and texts, or the items of a stored collection, encoded here.
What an encoder learns, it learns from training rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.bootstrap import Services
from app.cli.compare.cache import FileCache
from app.cli.compare.sets import ComparedSet, Values, facets_of, relevance_of
from app.cli.sources.rows import content_of, file_form
from app.domain.entities import Collection, Content, Item, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.domain.reports import Supervision
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.services.models.originals import fit_encoder, item_features
from app.services.training.facets import MetadataSides
from app.services.training.requests import class_of
from solver import Annotations, is_sparse
from solver.datasets import (
    LABEL,
    PairedFeatures,
    PictureTextRow,
    RowClasses,
    annotate_rows,
    draw_split,
    read_picture_text_table,
    row_classes,
    training_rows,
)

LIMITS = ContentLimits(max_picture_bytes=10 << 20, max_picture_pixels=40_000_000, max_text_chars=20_000)
"""Largest contents, as a server has them by default."""
IsTrain = npt.NDArray[np.bool]
_SPLIT = "split"  # column that is taken for the split if none is named


class SetEncoder:
    """Encodes pictures and texts; features that do not depend on the training rows are cached."""

    def __init__(self, encoders: EncoderRegistry, cache: FileCache) -> None:
        self._encoders, self._cache = encoders, cache

    def encode(
        self, contents: Sequence[Content], encoder: Mapping[str, Any], option: str, is_train: IsTrain
    ) -> Matrix:
        """Return features of contents, at least one. Raises InvalidFieldError, which names the option of the
        command line, if there is no such encoder, or it takes other contents."""
        options, made = make_encoder(self._encoders, encoder, option, contents[0])
        if made.is_fitted_with_model:
            made.fit(
                [content.text for content, is_fitted in zip(contents, is_train, strict=True) if is_fitted]
            )
            return _dense(made.encode(contents))
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
        for content in contents:
            raw = content.file if content.file is not None else (content.text or "").encode()
            digest.update(hashlib.sha256(raw).digest())
        stored = self._cache.get_or_compute(
            digest.hexdigest(), lambda: _dense(made.encode_to_store(contents))
        )
        if made.learns_from_stored:
            made.fit_to_stored(stored[is_train])
        return _dense(made.from_stored(stored))

    def encode_items(self, items: Sequence[Item], options: Mapping[str, Any], is_train: IsTrain) -> Matrix:
        """Return the stored features of items, or those of an encoder fitted to their training texts."""
        made: Any = self._encoders.make(options)
        fit_encoder(made, [item for item, is_fitted in zip(items, is_train, strict=True) if is_fitted])
        return _dense(item_features(items, made))


def make_encoder(
    encoders: EncoderRegistry, encoder: Mapping[str, Any], option: str, first: Content
) -> tuple[dict[str, Any], Any]:
    """Return the options of an encoder with those that its making settles, and the encoder, for the first of
    the contents. Raises as `SetEncoder.encode` does."""
    try:
        options = encoders.settle(encoder)
        made = encoders.make(options)
        made.check("content", first)
    except InvalidFieldError as error:
        raise InvalidFieldError(option, str(error)) from error
    return options, made


def encoder_words(options: Mapping[str, Any]) -> str:
    """Return the type of an encoder, or those of its parts: ``hog-color+onnx``."""
    return "+".join(str(part.get("type")) for part in options.get("parts", [options]))


def _dense(features: Any) -> Matrix:
    matrix: Matrix = features.toarray() if is_sparse(features) else features
    return matrix


# The words are those of a training: labels, facets and pairs, each of which may be left out. Methods of a
# comparison learn from one class of each row: its label, or else its partners, or else its first facet
# (`solver.datasets.row_classes`). Rows without one are left out.
@dataclass(frozen=True, slots=True)
class CarriedRows:
    """What rows of both modalities carry."""

    labels: tuple[Values, Values]  # the main one first
    # rows of the same name, empty where a row has none; None: each row is its own
    partners: Sequence[str] | None
    metadata: MetadataSides
    is_train: IsTrain | None  # drawn when None


@dataclass(frozen=True, slots=True, eq=False)
class LearnedRows:
    """The rows that have a class."""

    rows: npt.NDArray[np.intp]  # their numbers
    classes: RowClasses
    is_train: IsTrain
    annotations: Annotations  # what they are measured by

    def make_set(
        self,
        name: str,
        features: str,
        sides: tuple[Matrix, Matrix],
        ids: tuple[tuple[str, ...], tuple[str, ...]],
        **shown: Any,
    ) -> ComparedSet:
        """Return the set of these rows, by what both sides of them were encoded to."""
        classes = self.classes
        return ComparedSet(
            name,
            PairedFeatures(*sides, classes.names, self.is_train, *ids),
            features,
            relevance_of(classes.kind),
            annotations=self.annotations,
            class_name=classes.kind,
            **shown,
        )


def learned_rows(carried: CarriedRows, supervision: Supervision, option: str, seed: int) -> LearnedRows:
    """Return the rows to compare methods on; the seed is of a split that is drawn. Raises InvalidFieldError
    (names the option) if nothing is left to learn from, or a facet does not exist."""
    names = None if supervision.facets == "auto" else supervision.facets
    n_rows = len(carried.labels[0])
    nothing = [""] * n_rows
    own = [str(row) for row in range(n_rows)] if carried.partners is None else carried.partners
    labels = [class_of(x or z) if x or z else "" for x, z in zip(*carried.labels, strict=True)]
    classes = row_classes(
        labels if supervision.labels else nothing, own if supervision.pairs else nothing, {}
    ) or row_classes(nothing, nothing, _first_facets(carried, names, seed))
    if classes is None or not len(classes.rows):
        raise InvalidFieldError(option, "its rows have no labels, pairs or facets to learn from")
    rows = classes.rows
    numbers, classes = rows.tolist(), RowClasses(classes.names[rows], classes.kind)
    x_labels, z_labels = ([side[row] for row in numbers] for side in carried.labels)
    x_metadata, z_metadata = ([side[row] for row in numbers] for side in carried.metadata)
    partners = None if carried.partners is None else [carried.partners[row] for row in numbers]
    is_train = classes.draw_split(partners, seed) if carried.is_train is None else carried.is_train[rows]
    if not supervision.pairs:
        partners = [""] * len(rows)
    facets = {LABEL: (x_labels, z_labels)} if classes.kind == LABEL else {}
    facets |= facets_of((x_metadata, z_metadata), is_train.tolist(), names)
    if not facets and partners is None:
        partners = [str(row) for row in range(len(rows))]
    return LearnedRows(rows, classes, is_train, annotate_rows(facets, partners))


def _first_facets(
    carried: CarriedRows, names: Sequence[str] | None, seed: int
) -> dict[str, tuple[Values, Values]]:
    is_train = carried.is_train
    if is_train is None:
        is_train = draw_split(np.full(len(carried.labels[0]), ""), carried.partners, seed)
    return facets_of(carried.metadata, is_train.tolist(), names)


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
    files, words = contents_of(rows, columns.image_encoder)
    pictures = encoder.encode(files, columns.image_encoder, "--image-encoder", learned.is_train)
    texts = encoder.encode(words, columns.text_encoder, "--text-encoder", learned.is_train)
    ids = tuple(row.id for row in rows)
    types = [encoder_words(options) for options in (columns.image_encoder, columns.text_encoder)]
    features = f"pictures: {pictures.shape[1]}-d {types[0]}; texts: {texts.shape[1]}-d {types[1]}"
    return learned.make_set(file.stem, features, (pictures, texts), (ids, ids), rows=tuple(rows))


def read_rows(
    file: Path, columns: TableColumns, supervision: Supervision, seed: int
) -> tuple[list[PictureTextRow], LearnedRows]:
    """Return the rows of a table that have a class to learn from, and what they teach; see `load_table`."""
    all_rows = read_picture_text_table(
        file,
        id_column=columns.id,
        picture_column=columns.picture,
        text_column=columns.text,
        label_columns=columns.labels,
    )
    if not all_rows:
        raise InvalidFieldError("--table", f"{file} has no rows")
    partners = None if columns.pair is None else _column(all_rows, columns.pair, "--pair-column")
    used = (columns.pair, columns.split or _SPLIT)
    metadata = [{key: row.other[key] for key in row.other if key not in used} for row in all_rows]
    labels = [row.labels for row in all_rows]
    carried = CarriedRows((labels, labels), partners, (metadata, metadata), _splits(all_rows, columns.split))
    learned = learned_rows(carried, supervision, "--table", seed)
    return [all_rows[row] for row in learned.rows.tolist()], learned


def contents_of(
    rows: Sequence[PictureTextRow], image_encoder: Mapping[str, Any]
) -> tuple[list[Content], list[Content]]:
    """Return the pictures of rows, or sounds where the encoder takes these, and the texts."""
    form = file_form(image_encoder)
    files = [content_of(form, row.picture.read_bytes(), f"{form} {row.picture.name}") for row in rows]
    return files, [Content(text=row.text) for row in rows]


def _splits(rows: Sequence[PictureTextRow], name: str | None) -> npt.NDArray[np.bool] | None:
    if name is None and _SPLIT not in rows[0].other:
        return None
    return training_rows(_column(rows, name or _SPLIT, "--split-column"), f"column {name or _SPLIT!r}")


def _column(rows: Sequence[PictureTextRow], name: str, option: str) -> list[str]:
    if name not in rows[0].other:
        raise InvalidFieldError(
            option, f"there is no other column {name!r}, there are {join_words(rows[0].other)}"
        )
    return [row.other[name] for row in rows]


def load_collection(
    services: Services, name: str, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    """Return the pairs of a collection: items of both modalities with the same `pair_id`."""
    # Raises CollectionNotFoundError, and InvalidFieldError (names the option) for no pair, nothing to learn
    # from, or an unknown facet. An item that may not be trained on is for the test, and so is its partner;
    # without any, a fifth of each class is (by the seed). Pairs without a class to learn from are left out.
    # The schema must be current.
    with services.database.read() as work:
        collection = work.collections.get(name)
        items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
        items = services.originals.encodable(work, collection, items)
    pairs = _pairs_of(collection, items)
    if not pairs:
        raise InvalidFieldError(
            "--collection", f"no two items of {name!r} have the same pair_id: nothing to compare"
        )
    learned = learned_rows(_rows_of(pairs), supervision, "--collection", seed)
    pairs = [pairs[row] for row in learned.rows.tolist()]
    sides = [x for x, _ in pairs], [z for _, z in pairs]
    first, second = (
        encoder.encode_items(side, modality.encoder, learned.is_train)
        for side, modality in zip(sides, collection.modalities, strict=True)
    )
    x_ids, z_ids = (tuple(item.id for item in side) for side in sides)
    features = _description(collection, (first, second), len(items) - 2 * len(pairs))
    modalities = collection.modality_names
    return learned.make_set(name, features, (first, second), (x_ids, z_ids), modalities=modalities)


def _rows_of(pairs: Sequence[tuple[Item, Item]]) -> CarriedRows:
    is_train = np.asarray([x.train and z.train for x, z in pairs])
    return CarriedRows(
        ([x.labels for x, _ in pairs], [z.labels for _, z in pairs]),
        [x.pair_id or "" for x, _ in pairs],
        ([x.metadata for x, _ in pairs], [z.metadata for _, z in pairs]),
        None if is_train.all() else is_train,
    )


def _pairs_of(collection: Collection, items: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Return items with the same `pair_id`, each item in one pair at most, in the order of their ids."""
    sides: list[dict[str, list[Item]]] = []
    for name in collection.modality_names:
        by_pair: dict[str, list[Item]] = {}
        for item in sorted((item for item in items if item.modality == name), key=lambda item: item.id):
            if item.pair_id is not None:
                by_pair.setdefault(item.pair_id, []).append(item)
        sides.append(by_pair)
    first, second = sides
    return [pair for name in first if name in second for pair in zip(first[name], second[name], strict=False)]


def _description(collection: Collection, features: Sequence[Matrix], n_left_out: int) -> str:
    words = "; ".join(
        f"{modality.name}: {rows.shape[1]}-d {encoder_words(modality.encoder)}"
        for modality, rows in zip(collection.modalities, features, strict=True)
    )
    return f"{words}; {n_left_out} items are in no pair that is used" if n_left_out else words
