"""Arrays of features of two modalities whose rows are partners, and columns that say more of each row."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.sources.columns import is_blank, plain_metadata
from app.cli.sources.rows import Refusal, Row, Source, identifier_of
from app.cli.sources.sheets import check_length, parquet_rows
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem
from solver.datasets import PairedFeatures, is_training_split, read_array, read_labels, read_row_arrays

AnyArray = npt.NDArray[Any]
_FACET = "facet_"  # begins the names of arrays whose values become metadata
_SPLITS = ("train", "test")
_PARTS = ("img_emb", "text_emb")
"""Folders of the two modalities, and how the names of the files in them begin."""
_METADATA = "metadata"


def _open(
    prefix: str,
    arrays: tuple[AnyArray, AnyArray],
    places: tuple[str, str],
    names: tuple[str, str],
    *,
    labels: Sequence[str] | None = None,
    partners: Sequence[str] | None = None,
    is_train: Sequence[bool] | None = None,
    facets: Mapping[str, Sequence[Any]] | None = None,
    ids: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Source:
    """Open both modalities of an archive, or of two files; row i of one and row i of the other belong
    together. Ids begin with the prefix: other files have rows of the same numbers."""
    # Of each row: a label, or an empty one; partners are rows of the same name, none of an empty one (None:
    # the two samples of each row); whether a retrain may learn from it; values by metadata key, None where
    # one is unknown; and what the rows of each modality are called elsewhere.

    def rows() -> Iterator[Row]:
        for side, (modality, place, array) in enumerate(zip(names, places, arrays, strict=True)):
            for row, vector in enumerate(array):
                name = identifier_of(f"{prefix}{row:06d}")
                label = "" if labels is None else labels[row]
                partner = name if partners is None else partners[row]
                metadata = {key: values[row] for key, values in (facets or {}).items()}
                metadata = {key: value for key, value in metadata.items() if value is not None}
                if is_train is not None:
                    metadata["split"] = _SPLITS[not is_train[row]]
                if ids is not None:
                    metadata["source_id"] = ids[side][row]
                yield _item(
                    modality,
                    vector,
                    name,
                    f"{place}, row {row}",
                    labels=(label,) if label else (),
                    pair_id=partner or None,
                    metadata=metadata,
                    train=is_train is None or is_train[row],
                )

    return Source(rows, sum(map(len, arrays)))


def _item(modality: str, vector: AnyArray, name: str, place: str, **facts: Any) -> NewItem:
    content = Content(vector=vector.astype(np.float64).tolist())
    return NewItem(modality, content, f"{modality}-{name}", place=place, **facts)


def open_pair(files: tuple[Path, Path], labels: Path | None, names: tuple[str, str]) -> Source:
    """Open a file of each modality, as `read_array` does, and one of labels, as `read_labels` does."""
    # Raises InvalidFieldError or DatasetError: it names the file that cannot be read, is no matrix of numbers
    # or has another number of rows.
    first, second = (open_matrix(file) for file in files)
    if len(first) != len(second):
        raise InvalidFieldError(str(files[1]), f"has {len(second)} rows, {files[0].name} has {len(first)}")
    words = None
    if labels is not None:
        words = _words(read_labels(labels, len(first)), str(labels))
        if len(words) != len(first):
            raise InvalidFieldError(
                str(labels), f"has {len(words)} labels, {files[0].name} has {len(first)} rows"
            )
    places = files[0].name, files[1].name
    return _open(f"{files[0].stem}/", (first, second), places, names, labels=words)


def open_matrix(file: Path) -> AnyArray:
    """Open the one array of a file, an .npy file without reading it; raises unless it is a matrix."""
    return _checked_matrix(read_array(file), str(file))


def read_rows(file: Path, names: tuple[str, str]) -> Source | None:
    """Read an archive of the arrays ``x`` and ``z``, of which row i belongs together; None of another layout.
    Raises InvalidFieldError or DatasetError, which name what cannot be read or does not fit."""
    # ``labels``, ``split`` ("train" or "test") or ``is_test``, ``pairs`` and ``facet_<name>`` say more of the
    # rows, as in `lrbs compare --features`. Integers below zero and empty words stand for what is unknown.
    arrays = read_row_arrays(file)
    if not arrays:
        return None
    first, second = (_checked_matrix(arrays[name], f"{file}, array {name!r}") for name in ("x", "z"))
    for name, array in arrays.items():
        is_used = name in ("z", "labels", "split", "is_test", "pairs") or name.startswith(_FACET)
        if is_used and (array.ndim == 0 or len(array) != len(first)):
            n_rows = len(array) if array.ndim else 0
            raise InvalidFieldError(f"{file}, array {name!r}", f"has {n_rows} rows, 'x' has {len(first)}")
    if "split" in arrays and "is_test" in arrays:
        raise InvalidFieldError(f"{file}, array 'is_test'", "is there beside 'split': one of them is needed")
    return _open(
        f"{file.stem}/",
        (first, second),
        (f"{file.name}, array x", f"{file.name}, array z"),
        names,
        labels=_words(arrays["labels"], f"{file}, array 'labels'") if "labels" in arrays else None,
        partners=_words(arrays["pairs"], f"{file}, array 'pairs'") if "pairs" in arrays else None,
        is_train=_training_rows(arrays, file),
        facets={
            name.removeprefix(_FACET): _values(array, f"{file}, array {name!r}")
            for name, array in arrays.items()
            if name.startswith(_FACET)
        },
    )


def _checked_matrix(array: Any, place: str) -> AnyArray:
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InvalidFieldError(place, "is no matrix of numbers")
    return array


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
    words = _words(arrays["split"], place)
    is_train = list(map(is_training_split, words))
    if None in is_train:
        row = is_train.index(None)
        raise InvalidFieldError(place, f"row {row} has {words[row]!r}, expected 'train' or 'test'")
    return [bool(answer) for answer in is_train]


def open_features(data: PairedFeatures, names: tuple[str, str], prefix: str = "") -> Source:
    """Open features that somebody else computed, X and Z; their ids begin with `prefix`."""
    labels, is_train = data.labels.tolist(), data.is_train.tolist()
    ids = data.x_ids, data.z_ids
    return _open(prefix, (data.X, data.Z), names, names, labels=labels, is_train=is_train, ids=ids)


def _shard_rows(
    number: str,
    arrays: tuple[AnyArray, AnyArray],
    metadata: Path | None,
    names: tuple[str, str],
    labels: Sequence[str],
) -> Iterator[Row]:
    """Yield the items of one modality, then of the other, of the files of a number; `labels` are columns of
    the metadata, a Parquet file with as many rows."""
    for modality, part, array in zip(names, _PARTS, arrays, strict=True):
        facts = itertools.repeat(("", {})) if metadata is None else parquet_rows(metadata)
        for row, (vector, (place, cells)) in enumerate(zip(array, facts, strict=False)):
            if isinstance(cells, str):
                yield Refusal(f"{Path(str(metadata)).name}, {place}", cells)
                break
            yield _item(
                modality,
                vector,
                f"{number}:{row}",
                f"{part}_{number}.npy, row {row}",
                labels=tuple(str(cells[name]) for name in labels if not is_blank(cells.get(name))),
                pair_id=f"{number}:{row}",
                metadata=plain_metadata({key: value for key, value in cells.items() if key not in labels}),
            )


def open_embeddings(
    folder: Path, names: tuple[str, str], labels: Sequence[str] = (), with_metadata: bool = True
) -> Source:
    """Open ``img_emb/img_emb_<n>.npy``, their partners in ``text_emb``, and perhaps
    ``metadata/metadata_<n>.parquet`` of a folder, as tools around CLIP write them."""
    # No array is read. `labels` are columns of the metadata. Raises InvalidFieldError, which names a file
    # that is missing, does not fit or needs an extra.
    first, second = _PARTS
    numbers = [
        path.stem.removeprefix(f"{first}_") for path in sorted((folder / first).glob(f"{first}_*.npy"))
    ]
    if not numbers:
        raise InvalidFieldError(str(folder), f"has no files {first}/{first}_<number>.npy")
    shards: list[Callable[[], Iterator[Row]]] = []
    total = 0
    for number in numbers:
        pictures, texts = (open_matrix(folder / part / f"{part}_{number}.npy") for part in _PARTS)
        if len(pictures) != len(texts):
            place = str(folder / second / f"{second}_{number}.npy")
            raise InvalidFieldError(place, f"has {len(texts)} rows, the pictures have {len(pictures)}")
        metadata = folder / _METADATA / f"{_METADATA}_{number}.parquet"
        is_used = with_metadata and metadata.is_file()
        if is_used:
            check_length(metadata, len(pictures))
        arrays, facts = (pictures, texts), metadata if is_used else None
        shards.append(partial(_shard_rows, number, arrays, facts, names, labels))
        total += len(pictures) + len(texts)
    return Source(lambda: (row for rows in shards for row in rows()), total)
