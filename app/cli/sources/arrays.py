"""Arrays of features of two modalities whose rows are partners, and columns that say more of each row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.sources.rows import Row, identifier_of
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

AnyArray = npt.NDArray[Any]
_FACET = "facet_"
"""Begins the names of arrays whose values become metadata."""
_SPLITS = ("train", "test")


@dataclass(frozen=True, slots=True)
class RowColumns:
    """What is known of each row beside its features.

    Parameters
    ----------
    labels : sequence of str, optional
        Label of each row; empty where it has none.
    partners : sequence of str, optional
        Rows of the same name are partners, and those of an empty one have none; when left out, the two
        samples of each row are.
    is_train : sequence of bool, optional
        Whether a retrain may learn from each row; from all when left out.
    facets : mapping of str to sequence
        Further properties, by metadata key; None where one is unknown.
    """

    labels: Sequence[str] | None = None
    partners: Sequence[str] | None = None
    is_train: Sequence[bool] | None = None
    facets: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Arrays:
    """Both modalities of an archive, or of two files.

    Parameters
    ----------
    name : str
        Begins the ids of its rows: other files have rows of the same numbers.
    arrays : (ndarray, ndarray)
        Row i of one and row i of the other belong together.
    places : (str, str)
        Where they stand, for messages.
    modality_names : (str, str)
        Their modalities.
    columns : RowColumns
        What is known of each row.
    """

    name: str
    arrays: tuple[AnyArray, AnyArray]
    places: tuple[str, str]
    modality_names: tuple[str, str]
    columns: RowColumns = field(default_factory=RowColumns)

    @property
    def total(self) -> int:
        """Number of rows of both modalities."""
        return sum(len(array) for array in self.arrays)

    def rows(self) -> Iterator[Row]:
        """Yield the items of one modality, then those of the other."""
        columns = self.columns
        for modality, place, array in zip(self.modality_names, self.places, self.arrays, strict=True):
            for row, vector in enumerate(array):
                name = identifier_of(f"{self.name}/{row:06d}")
                label = "" if columns.labels is None else columns.labels[row]
                partner = name if columns.partners is None else columns.partners[row]
                metadata = {key: values[row] for key, values in columns.facets.items()}
                metadata = {key: value for key, value in metadata.items() if value is not None}
                if columns.is_train is not None:
                    metadata["split"] = _SPLITS[not columns.is_train[row]]
                yield NewItem(
                    modality=modality,
                    content=Content(vector=vector.astype(np.float64).tolist()),
                    id=f"{modality}-{name}",
                    labels=(label,) if label else (),
                    pair_id=partner or None,
                    metadata=metadata,
                    train=columns.is_train is None or columns.is_train[row],
                    place=f"{place}, row {row}",
                )


def open_pair(files: tuple[Path, Path], labels: Path | None, names: tuple[str, str]) -> Arrays:
    """Open two .npy files without reading them into memory, and a file of labels.

    Parameters
    ----------
    files : (Path, Path)
        Of the two modalities.
    labels : Path or None
        An .npy file of one label a row, or a text file of one a line.
    names : (str, str)
        Their modalities.

    Raises
    ------
    InvalidFieldError
        If one is no matrix of numbers or the numbers of rows differ; names the file.
    """
    first, second = (open_matrix(file) for file in files)
    if len(first) != len(second):
        raise InvalidFieldError(str(files[1]), f"has {len(second)} rows, {files[0].name} has {len(first)}")
    columns = RowColumns()
    if labels is not None:
        words = _labels_of_file(labels)
        if len(words) != len(first):
            raise InvalidFieldError(
                str(labels), f"has {len(words)} labels, {files[0].name} has {len(first)} rows"
            )
        columns = RowColumns(labels=words)
    return Arrays(files[0].stem, (first, second), (files[0].name, files[1].name), names, columns)


def open_matrix(file: Path) -> AnyArray:
    """Open an .npy file without reading it into memory; raises InvalidFieldError unless it is a matrix."""
    array = _load(file, ".npy array", mmap_mode="r")
    return _checked_matrix(array, str(file))


def is_of_rows(file: Path) -> bool:
    """Return whether an .npz archive has the arrays ``x`` and ``z``, of which row i belongs together."""
    archive = _load(file, ".npz archive")
    return isinstance(archive, np.lib.npyio.NpzFile) and {"x", "z"} <= set(archive.files)


def read_rows(file: Path, names: tuple[str, str]) -> Arrays:
    """Read an .npz archive of the arrays ``x`` and ``z``.

    ``labels``, ``split`` ("train" or "test") or ``is_test``, ``pairs`` and ``facet_<name>`` say more of the
    rows, as in `lrbs compare --npz`. Integers below zero and empty words stand for what is unknown.

    Raises
    ------
    InvalidFieldError
        If an array does not fit; names it.
    """
    archive = _load(file, ".npz archive")
    arrays = {name: _load_member(archive, file, name) for name in archive.files}
    first, second = (_checked_matrix(arrays[name], f"{file}, array {name!r}") for name in ("x", "z"))
    for name, array in arrays.items():
        is_used = name in ("z", "labels", "split", "is_test", "pairs") or name.startswith(_FACET)
        if is_used and (array.ndim == 0 or len(array) != len(first)):
            n_rows = len(array) if array.ndim else 0
            raise InvalidFieldError(f"{file}, array {name!r}", f"has {n_rows} rows, 'x' has {len(first)}")
    if "split" in arrays and "is_test" in arrays:
        raise InvalidFieldError(f"{file}, array 'is_test'", "is there beside 'split': one of them is needed")
    columns = RowColumns(
        labels=_words(arrays["labels"], f"{file}, array 'labels'") if "labels" in arrays else None,
        partners=_words(arrays["pairs"], f"{file}, array 'pairs'") if "pairs" in arrays else None,
        is_train=_training_rows(arrays, file),
        facets={
            name.removeprefix(_FACET): _values(array, f"{file}, array {name!r}")
            for name, array in arrays.items()
            if name.startswith(_FACET)
        },
    )
    return Arrays(
        file.stem,
        (first, second),
        (f"{file.name}, array x", f"{file.name}, array z"),
        names,
        columns,
    )


def _load(file: Path, kind: str, **options: Any) -> Any:
    try:
        return np.load(file, allow_pickle=False, **options)
    # A damaged file makes readers raise a dozen types.
    except Exception as error:
        raise InvalidFieldError(str(file), f"is no readable {kind}: {error}") from error


def _load_member(archive: Any, file: Path, name: str) -> AnyArray:
    try:
        array: AnyArray = archive[name]
    except Exception as error:
        raise InvalidFieldError(f"{file}, array {name!r}", f"cannot be read: {error}") from error
    return array


def _checked_matrix(array: Any, place: str) -> AnyArray:
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InvalidFieldError(place, "is no matrix of numbers")
    return array


def _labels_of_file(file: Path) -> list[str]:
    if file.suffix == ".npy":
        return _words(_load(file, ".npy array"), str(file))
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidFieldError(str(file), "is no text in UTF-8") from error


def _words(array: AnyArray, place: str) -> list[str]:
    return ["" if value is None else str(value) for value in _values(array, place)]


def _values(array: AnyArray, place: str) -> list[Any]:
    """Return a column as Python's values; None where one is unknown."""
    if array.ndim != 1 or array.dtype.kind not in "iubfUS":
        raise InvalidFieldError(place, f"is no column of numbers or words, but {array.dtype} {array.shape}")
    if array.dtype.kind == "S":
        array = np.strings.decode(array, "utf-8", "replace")
    return [_value_of(value) for value in array.tolist()]


def _value_of(value: Any) -> Any:
    if isinstance(value, float):
        value = int(value) if value.is_integer() else value
        return value if math.isfinite(value) else None
    is_unknown = value == "" or (isinstance(value, int) and not isinstance(value, bool) and value < 0)
    return None if is_unknown else value


def _training_rows(arrays: Mapping[str, AnyArray], file: Path) -> list[bool] | None:
    if "is_test" in arrays:
        return [not value for value in _values(arrays["is_test"], f"{file}, array 'is_test'")]
    if "split" not in arrays:
        return None
    place = f"{file}, array 'split'"
    words = [word.strip().casefold() for word in _words(arrays["split"], place)]
    for row, word in enumerate(words):
        if word not in _SPLITS:
            raise InvalidFieldError(place, f"row {row} has {word!r}, expected 'train' or 'test'")
    return [word == "train" for word in words]
