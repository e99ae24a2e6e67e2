"""Sets to compare methods on: of one's own (a table, an archive, a collection), and of the real data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from app.bootstrap import Services
from app.cli.console import whole_file
from app.cli.sources.rows import content_of, file_form
from app.domain.entities import Collection, Content, Item, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.domain.reports import Supervision
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.encoders.types.tfidf import TfidfEncoder
from app.services.models.originals import fit_encoder, item_features
from app.services.models.placement import facet_name, facet_values
from app.services.training.facets import MetadataSides, categorical_keys
from app.services.training.requests import class_of
from solver import Annotations, DatasetError, datasets, is_sparse
from solver.comparison import CellOutcome
from solver.datasets.files import read_cells, reading

_Arrays = dict[str, npt.NDArray[Any]]
_Value = TypeVar("_Value")

_SCALARS = "facts"  # name of the member that holds all fields that are not arrays, as JSON
_logger = logging.getLogger(__name__)


class FileCache:
    """One .npz file (no pickle) for each outcome or set of features, put in place by renaming."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> CellOutcome | None:
        """Return the outcome stored under a key; None if there is none, or it is damaged."""
        return self._read(key, _outcome)

    def save(self, key: str, outcome: CellOutcome) -> None:
        values = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        scalars = {name: value for name, value in values.items() if name not in arrays}
        self.store(key, {**arrays, _SCALARS: np.asarray(json.dumps(scalars, default=_as_number))})

    def store(self, key: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._folder / f"{key}.npz") as stream:
            np.savez(stream, **dict(arrays))  # type: ignore[arg-type] # the stubs take them for allow_pickle

    def get_or_compute(self, key: str, compute: Callable[[], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the array stored under a key; compute and store it if there is none."""
        stored = self._read(key, lambda arrays: arrays["array"])
        if stored is not None:
            return stored
        array = compute()
        self.store(key, {"array": array})
        return array

    def _read(self, key: str, decode: Callable[[_Arrays], _Value]) -> _Value | None:
        path = self._folder / f"{key}.npz"
        if not path.is_file():
            return None
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                return decode({name: archive[name] for name in archive.files})
        # Damaged bytes raise nearly anything in the decoders: NotImplementedError, RuntimeError, KeyError,
        # OSError, TypeError and more. None of them matters: whatever is stored here can be computed again.
        except Exception as error:
            _logger.warning("%s is damaged and will be computed again: %s", path.name, error)
            return None


def _outcome(arrays: _Arrays) -> CellOutcome:
    values: dict[str, Any] = {**json.loads(str(arrays.pop(_SCALARS))), **arrays}
    values["n_features"], values["notes"] = tuple(values["n_features"]), tuple(values["notes"])
    outcome = CellOutcome(**values)
    for name in ("x_test", "z_test", "singular_values"):
        if not isinstance(getattr(outcome, name), np.ndarray):
            raise TypeError(f"{name} is no array")
    return outcome


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be stored")


LIMITS = ContentLimits(max_picture_bytes=10 << 20, max_picture_pixels=40_000_000, max_text_chars=20_000)
"""Largest contents, as a server has them by default."""
IsTrain = npt.NDArray[np.bool]
Values = list[tuple[str, ...]]
"""Values of each row; none where they are unknown."""
_LABEL, _SPLIT = "label", "split"  # columns that are taken for labels and split if none are named


@dataclass(frozen=True, slots=True)
class PictureTextRow:
    """A row of a table: a picture file, its text, and what else it says."""

    id: str  # unique within the table
    picture: Path
    text: str
    labels: tuple[str, ...]  # the main one first
    other: Mapping[str, str]  # the remaining columns

    def without(self, *names: str | None) -> dict[str, str]:
        """Return the remaining columns but for some."""
        return {name: cell for name, cell in self.other.items() if name not in names}


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSet:
    """A set with what a reader of its results needs to know."""

    name: str  # on the command line
    data: datasets.PairedFeatures
    features: str  # describes those of both modalities
    relevance: str = "same class"  # when an item answers a query
    # the originals, one for each row of `data`; empty where only features are there
    rows: tuple[PictureTextRow, ...] = ()
    modalities: tuple[str, str] = ("image", "text")
    annotations: Annotations | None = None  # what is known of the rows; None: label and partner
    class_name: str = datasets.LABEL  # what the classes are: "label", "partner", or a facet

    @property
    def classes(self) -> str:
        """What the classes are, in words."""
        words = {datasets.LABEL: "classes", datasets.PARTNER: "groups of partners"}
        return words.get(self.class_name, f"values of {self.class_name!r}")


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
            made.fit([content.text for content in marked_rows(contents, is_train)])
            return _dense(made.encode_learned(contents))
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
        fit_encoder(made, marked_rows(items, is_train))
        return _dense(made.without_further(item_features(items, made)))


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


def facets_of(
    sides: MetadataSides, is_train: Sequence[bool], names: Sequence[str] | None
) -> dict[str, tuple[Values, Values]]:
    """Return the values of each facet of the rows of both modalities, by name or as a training finds them in
    training rows."""
    # Raises InvalidFieldError (names the option) if a named key has no value in one of the modalities.
    if names is None:
        x_train, z_train = (marked_rows(side, is_train) for side in sides)
        names = categorical_keys((x_train, z_train), labels=None)
    facets = {}
    for key in names:
        first, second = ([facet_values(metadata, key) for metadata in side] for side in sides)
        if not any(first) or not any(second):
            keys = sorted({key for side in sides for metadata in side for key in metadata})
            raise InvalidFieldError(
                "--facets", f"no item has a value of {key!r}, there are {join_words(keys)}"
            )
        facets[facet_name(key)] = first, second
    return facets


# The words are those of a training: labels, facets and pairs, each of which may be left out. Methods of a
# comparison learn from one class of each row: its label, or else its partners, or else its first facet
# (`solver.datasets.row_classes`). Rows without one are left out.
@dataclass(frozen=True, slots=True, eq=False)
class LearnedRows:
    """The rows that have a class."""

    rows: list[int]  # their numbers
    classes: datasets.RowClasses
    is_train: IsTrain
    annotations: Annotations  # what they are measured by

    def make_set(
        self,
        name: str,
        features: str,
        sides: tuple[Matrix, Matrix],
        ids: Sequence[Sequence[str]],
        **shown: Any,
    ) -> ComparedSet:
        """Return the set of these rows, by what both sides of them were encoded to."""
        x_ids, z_ids = map(tuple, ids)
        data = datasets.PairedFeatures(*sides, self.classes.names, self.is_train, x_ids, z_ids)
        facts = {"annotations": self.annotations, **classes_in_words(self.classes.kind), **shown}
        return ComparedSet(name, data, features, **facts)


def classes_in_words(kind: str) -> dict[str, Any]:
    """Return what a set says of classes that are "label", "partner", or a facet."""
    return {"class_name": kind, "relevance": datasets.PARTNER if kind == datasets.PARTNER else f"same {kind}"}


def learned_rows(
    labels: tuple[Values, Values],
    partners: Sequence[str] | None,
    metadata: MetadataSides,
    is_train: IsTrain | None,
    supervision: Supervision,
    option: str,
    seed: int,
) -> LearnedRows:
    """Return the rows to compare methods on, by what both sides carry. Raises InvalidFieldError (names the
    option) if nothing is left to learn from, or a facet does not exist."""
    # Labels have the main one first. Partners are rows of the same name, empty where a row has none; None:
    # each row is its own. A split that is not given is drawn by the seed.
    names = None if supervision.facets == "auto" else supervision.facets
    n_rows = len(labels[0])
    nothing = [""] * n_rows
    own = [str(row) for row in range(n_rows)] if partners is None else partners
    main = [class_of(x or z) if x or z else "" for x, z in zip(*labels, strict=True)]
    classes = datasets.row_classes(
        main if supervision.labels else nothing, own if supervision.pairs else nothing, {}
    )
    if classes is None:
        drawn = datasets.draw_split(np.asarray(nothing), partners, seed) if is_train is None else is_train
        classes = datasets.row_classes(nothing, nothing, facets_of(metadata, drawn.tolist(), names))
    if classes is None or not len(classes.rows):
        raise InvalidFieldError(option, "its rows have no labels, pairs or facets to learn from")
    rows = classes.rows.tolist()
    classes = datasets.RowClasses(classes.names[rows], classes.kind)
    x_labels, z_labels = ([side[row] for row in rows] for side in labels)
    x_metadata, z_metadata = ([side[row] for row in rows] for side in metadata)
    partners = None if partners is None else [partners[row] for row in rows]
    is_train = classes.draw_split(partners, seed) if is_train is None else is_train[rows]
    if not supervision.pairs:
        partners = [""] * len(rows)
    facets = {datasets.LABEL: (x_labels, z_labels)} if classes.kind == datasets.LABEL else {}
    facets |= facets_of((x_metadata, z_metadata), is_train.tolist(), names)
    if not facets and partners is None:
        partners = [str(row) for row in range(len(rows))]
    return LearnedRows(rows, classes, is_train, datasets.annotate_rows(facets, partners))


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
    """Return the set of a table; rows without a class are left out. Raises DatasetError (names line or
    column) and InvalidFieldError (names the option)."""
    rows, learned = read_rows(file, columns, supervision, seed)
    files, words = contents_of(rows, columns.image_encoder)
    pictures = encoder.encode(files, columns.image_encoder, "--image-encoder", learned.is_train)
    texts = encoder.encode(words, columns.text_encoder, "--text-encoder", learned.is_train)
    types = [encoder_words(options) for options in (columns.image_encoder, columns.text_encoder)]
    features = f"pictures: {pictures.shape[1]}-d {types[0]}; texts: {texts.shape[1]}-d {types[1]}"
    ids = [row.id for row in rows]
    return learned.make_set(file.stem, features, (pictures, texts), (ids, ids), rows=tuple(rows))


def read_rows(
    file: Path, columns: TableColumns, supervision: Supervision, seed: int
) -> tuple[list[PictureTextRow], LearnedRows]:
    """Return the rows of a table that have a class to learn from, and what they teach; see `load_table`."""
    rows = read_table(file, columns.id, columns.picture, columns.text, columns.labels)
    if not rows:
        raise InvalidFieldError("--table", f"{file} has no rows")
    split = columns.split or _SPLIT
    partners = None if columns.pair is None else _column(rows, columns.pair, "--pair-column")
    is_train = None
    if columns.split is not None or _SPLIT in rows[0].other:
        is_train = datasets.training_rows(_column(rows, split, "--split-column"), f"column {split!r}")
    labels, metadata = [row.labels for row in rows], [row.without(columns.pair, split) for row in rows]
    learned = learned_rows(
        (labels, labels), partners, (metadata, metadata), is_train, supervision, "--table", seed
    )
    return [rows[row] for row in learned.rows], learned


def read_table(
    file: Path,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_columns: tuple[str, ...] | None = None,
) -> list[PictureTextRow]:
    """Return the rows of a CSV file with a header, whose pictures are files in its folder or below it. Raises
    DatasetError, which names the line, or a column that is missing or there twice."""
    contents = (id_column, picture_column, text_column)
    table = read_cells(file, (*contents, *(label_columns or ())))
    header = table.header
    if label_columns is None:
        label_columns = (_LABEL,) if _LABEL in header else ()
    names = (*contents, *label_columns)
    missing = [name for name in names if name not in header]
    if missing:
        raise DatasetError(f"{file} has no column {_quote(missing)}; it has {_quote(header)}")
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise DatasetError(f"{file} has the columns {_quote(repeated)} more than once")
    rows: dict[str, PictureTextRow] = {}
    for place, values in table.rows():
        where = f"{file}, {place}"
        if isinstance(values, str):
            raise DatasetError(f"{where}: {values}")
        if not values:
            continue
        cells = dict(zip(header, values, strict=True))
        picture = file.parent / cells[picture_column]
        with reading(picture, f"picture ({where})"):
            exists = picture.is_file()
        if not exists:
            raise DatasetError(f"{where}: picture {picture} does not exist")
        if not cells[text_column].strip():
            raise DatasetError(f"{where}: column {text_column!r} is empty")
        name = cells[id_column]
        if not name or name in rows:
            raise DatasetError(f"{where}: id {name!r} is empty or repeated")
        labels = tuple(cells[column] for column in label_columns if cells[column])
        other = {column: cell for column, cell in cells.items() if column not in names}
        rows[name] = PictureTextRow(name, picture, cells[text_column], labels, other)
    return list(rows.values())


def _quote(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def contents_of(
    rows: Sequence[PictureTextRow], image_encoder: Mapping[str, Any]
) -> tuple[list[Content], list[Content]]:
    """Return the pictures of rows, or sounds where the encoder takes these, and the texts."""
    form = file_form(image_encoder)
    files = [content_of(form, row.picture.read_bytes(), f"{form} {row.picture.name}") for row in rows]
    return files, [Content(text=row.text) for row in rows]


def _column(rows: Sequence[PictureTextRow], name: str, option: str) -> list[str]:
    if name not in rows[0].other:
        raise InvalidFieldError(
            option, f"there is no other column {name!r}, there are {join_words(rows[0].other)}"
        )
    return [row.other[name] for row in rows]


def load_features(files: Sequence[Path], supervision: Supervision, seed: int) -> ComparedSet:
    """Return the set of an archive, or of files of x, of z and perhaps of labels."""
    loaded = datasets.load_annotated(files, seed, use_labels=supervision.labels, use_pairs=supervision.pairs)
    data = loaded.features
    features = f"x: {data.X.shape[1]}-d; z: {data.Z.shape[1]}-d (from {files[0].name})"
    facts = {"annotations": loaded.annotations, **classes_in_words(loaded.class_name)}
    return ComparedSet(files[0].stem, data, features, modalities=("x", "z"), **facts)


def load_collection(
    services: Services, name: str, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    """Return the pairs of a collection: items of both modalities with the same `pair_id`."""
    # Raises CollectionNotFoundError, and InvalidFieldError (names the option) for no pair, nothing to learn
    # from, or an unknown facet. An item that may not be trained on is for the test, and so is its partner;
    # without any, a fifth of each class is (by the seed). Pairs without a class to learn from are left out.
    # The schema must be current.
    with services.database.read_of(name) as (work, collection):
        items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
        items = services.originals.encodable(work, collection, items)
    pairs = _pairs_of(collection, items)
    if not pairs:
        raise InvalidFieldError(
            "--collection", f"no two items of {name!r} have the same pair_id: nothing to compare"
        )
    is_train = np.asarray([x.train and z.train for x, z in pairs])
    learned = learned_rows(
        ([x.labels for x, _ in pairs], [z.labels for _, z in pairs]),
        [x.pair_id or "" for x, _ in pairs],
        ([x.metadata for x, _ in pairs], [z.metadata for _, z in pairs]),
        None if is_train.all() else is_train,
        supervision,
        "--collection",
        seed,
    )
    pairs = [pairs[row] for row in learned.rows]
    sides = [x for x, _ in pairs], [z for _, z in pairs]
    first, second = (
        encoder.encode_items(side, modality.encoder, learned.is_train)
        for side, modality in zip(sides, collection.modalities, strict=True)
    )
    ids = [[item.id for item in side] for side in sides]
    features = _description(collection, (first, second), len(items) - 2 * len(pairs))
    return learned.make_set(name, features, (first, second), ids, modalities=collection.modality_names)


def _pairs_of(collection: Collection, items: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Return items with the same `pair_id`, each item in one pair at most, in the order of their ids."""
    sides: dict[str, dict[str, list[Item]]] = {name: {} for name in collection.modality_names}
    for item in sorted(items, key=lambda item: item.id):
        if item.pair_id is not None:
            sides[item.modality].setdefault(item.pair_id, []).append(item)
    first, second = sides.values()
    return [pair for name in first if name in second for pair in zip(first[name], second[name], strict=False)]


def _description(collection: Collection, features: Sequence[Matrix], n_left_out: int) -> str:
    words = "; ".join(
        f"{modality.name}: {rows.shape[1]}-d {encoder_words(modality.encoder)}"
        for modality, rows in zip(collection.modalities, features, strict=True)
    )
    return f"{words}; {n_left_out} items are in no pair that is used" if n_left_out else words


_RESPLIT = re.compile(r"(?P<name>.+)@(?P<seed>[0-9]{1,9})")
_TERMS = 1000  # words and pairs of words, as many as the texts of the set `wikipedia_tfidf` have
_MAX_TEXT_CHARS = 20_000  # the limit that the encoder requires; far beyond the longest product name
_MIN_CLASS_ROWS = 25  # rows of a colour below which it cannot be learned: some are named once


class SetLoader:
    """Loads sets by name from the folder of the real data."""

    def __init__(self, root: Path | None, encoders: EncoderRegistry, cache: FileCache) -> None:
        self._folder, self._encoders, self._cache = root, encoders, cache
        # what reads each, by name, from its first file in the folder of the real data
        self._loaders: Mapping[str, tuple[str, Callable[[str, Path], ComparedSet]]] = {
            "wikipedia": ("wikipedia/raw_features.mat", _wikipedia),
            "wikipedia_tfidf": ("wikipedia/wikipedia.npz", _wikipedia_tfidf),
            "wikipedia_cnn": ("wikipedia_cnn/wikipedia_cnn.npz", _wikipedia_cnn),
            "audio_digits": ("audio_digits/audio_digits.npz", _audio_digits),
            "products": ("products/items.csv", self._products),
            "products_colour": ("products/items.csv", self._products),
        }

    def check(self, names: Sequence[str]) -> None:
        """Reject unknown names and missing files before anything is computed; raises InvalidFieldError."""
        for name in names:
            base, _ = self._base_and_seed(name)
            path = self._root / self._loaders[base][0]
            if not path.exists():
                raise InvalidFieldError("sets", f"{name!r} needs {path}, which is not there")

    def load(self, name: str) -> ComparedSet:
        """Return a set; ``name@seed`` draws another split at random, with the same share of each class.
        Raises InvalidFieldError for its name, and DatasetError if its files are missing or damaged."""
        base, seed = self._base_and_seed(name)
        file, read = self._loaders[base]
        compared = read(base, self._root / file)
        return compared if seed is None else resplit(compared, seed)

    def _base_and_seed(self, name: str) -> tuple[str, int | None]:
        """Return the name of the set without a seed, and the seed."""
        match = _RESPLIT.fullmatch(name)
        base, seed = (name, None) if match is None else (match["name"], int(match["seed"]))
        if base not in self._loaders:
            raise InvalidFieldError("sets", f"unknown set {name!r}, expected {join_words(self._loaders)}")
        return base, seed

    @property
    def _root(self) -> Path:
        if self._folder is None:
            raise InvalidFieldError(
                "LRBS_TEST_DATA", "expected the folder that holds the sets, it is not set"
            )
        return self._folder

    def _products(self, name: str, file: Path) -> ComparedSet:
        column = "label" if name == "products" else "colour"
        rows = read_table(file, label_columns=(column,))
        if column == "colour":
            counts = Counter(row.labels for row in rows)
            rows = [row for row in rows if row.labels and counts[row.labels] >= _MIN_CLASS_ROWS]
        is_train = datasets.training_rows([row.other["split"] for row in rows], "column 'split'")
        labels, metadata = [row.labels for row in rows], [row.without("split") for row in rows]
        learned = learned_rows(
            (labels, labels), None, (metadata, metadata), is_train, Supervision(), "sets", 0
        )
        pictures, described = self._pictures(rows, is_train)
        texts = _text_features(rows, is_train)
        features = f"pictures: {described}; names: {texts.shape[1]}-d tf-idf of words and pairs of words"
        relevance = "same category" if column == "label" else "same colour"
        ids = [row.id for row in rows]
        return learned.make_set(
            name, features, (pictures, texts), (ids, ids), relevance=relevance, rows=tuple(rows)
        )

    def _pictures(self, rows: Sequence[PictureTextRow], is_train: npt.NDArray[np.bool]) -> tuple[Matrix, str]:
        """Return features of the pictures and what they are, without a model where none can be run."""
        weights = self._root / "weights" / "mobilenet_v2.onnx"
        options = {"type": "onnx", "path": str(weights), "output": "features"}
        described = "1280-d MobileNetV2"
        try:
            self._encoders.settle(options)
        except InvalidFieldError:
            options, described = {"type": "hog-color"}, "hog-color (no ONNX model to run)"
        contents = [Content(picture=row.picture.read_bytes()) for row in rows]
        encoder = SetEncoder(self._encoders, self._cache)
        return encoder.encode(contents, options, "sets", is_train), described


def _wikipedia(name: str, file: Path) -> ComparedSet:
    return ComparedSet(
        name, datasets.load_wikipedia(file.parent), "pictures: 128-d SIFT words; texts: 10-d LDA topics"
    )


def _wikipedia_tfidf(name: str, file: Path) -> ComparedSet:
    features = "pictures: 128-d SIFT words; texts: 1000-d tf-idf"
    return ComparedSet(name, datasets.load_npz(file, "I", "T_tfidf"), features)


def _wikipedia_cnn(name: str, file: Path) -> ComparedSet:
    features = "pictures: 128-d PCA of CNN features; texts: 100-d word embedding (kinds inferred)"
    return ComparedSet(name, datasets.load_npz(file, "I", "T"), features)


def _audio_digits(name: str, file: Path) -> ComparedSet:
    data = datasets.load_npz(file, "I", "A")
    features = "written digits: 8 x 8 pixels; spoken digits: 91-d MFCC statistics"
    labels = [(label,) for label in data.labels.tolist()]
    # A digit was paired with some recording of it: no two are partners.
    annotations = datasets.annotate_rows({datasets.LABEL: (labels, labels)}, [""] * len(labels))
    return ComparedSet(name, data, features, modalities=("image", "sound"), annotations=annotations)


def resplit(compared: ComparedSet, seed: int) -> ComparedSet:
    """Return the same rows, split at random; each class has the overall share of training rows."""
    data = compared.data
    rng = np.random.default_rng(seed)
    share = float(data.is_train.mean())
    is_train = np.zeros(len(data.labels), np.bool)
    for label in np.unique(data.labels):
        members = rng.permutation(np.flatnonzero(data.labels == label))
        is_train[members[: round(share * len(members))]] = True
    split = dataclasses.replace(data, is_train=is_train)
    if compared.rows:  # the vocabulary of the texts is learned from the training split only
        split = dataclasses.replace(split, Z=_text_features(compared.rows, is_train))
    return dataclasses.replace(compared, name=f"{compared.name}@{seed}", data=split)


def marked_rows(rows: Sequence[_Value], marks: IsTrain | Sequence[bool]) -> list[_Value]:
    """Return the rows with a mark, such as those to learn from; there is one for each."""
    return [row for row, is_marked in zip(rows, marks, strict=True) if is_marked]


def _text_features(rows: Sequence[PictureTextRow], is_train: npt.NDArray[np.bool]) -> Matrix:
    """Return tf-idf features whose vocabulary and weights come from the training rows."""
    encoder = TfidfEncoder({"max_features": _TERMS}, max_chars=_MAX_TEXT_CHARS)
    encoder.fit([row.text for row in marked_rows(rows, is_train)])
    return _dense(encoder.encode_learned([Content(text=row.text) for row in rows]))
