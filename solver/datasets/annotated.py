"""Paired features with all that their rows carry: labels, facets, and which rows are partners."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.datasets.arrays import PairedFeatures
from solver.datasets.boundary import label_column, reading, stacked_features
from solver.supervision.annotations import Annotations, Facet
from solver.validation.errors import DatasetError

LABEL = "label"
"""Name of the facet of the labels."""
_PREFIX = "facet_"
"""Of the arrays that hold a facet."""
_TEST_SHARE = 5
"""One row in five tests where no split is given: enough queries, and most rows to learn from."""
_MOST_PARTNERS = 64
"""Partners of a row on average: names that more rows share are those of classes."""
_REQUIRED = ("x", "z", "labels")
_READ = (*_REQUIRED, "split", "is_test", "pairs")

Values = Sequence[Collection[str]]
"""Values of each row; none where they are unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatedFeatures:
    """A set to compare methods on.

    Parameters
    ----------
    features : PairedFeatures
        Rows of both modalities with one class each and a split.
    annotations : Annotations
        What is known of the rows.
    """

    features: PairedFeatures
    annotations: Annotations


def annotate_rows(
    facets: Mapping[str, tuple[Values, Values]], partners: Sequence[str] | None = None
) -> Annotations:
    """Return what is known of rows of both modalities.

    Parameters
    ----------
    facets : mapping of str to tuple
        Values of the rows of the first and of the second modality, by facet; one facet at least.
    partners : sequence of str, optional
        Rows of the same name are partners of each other; empty where a row has none. When left out, the two
        samples of each row are partners and no others.

    Raises
    ------
    DatasetError
        If rows have too many partners, as where the names are those of classes.
    """
    facet_objects = {name: Facet.of(*sides) for name, sides in facets.items()}
    n_rows = len(next(iter(facet_objects.values())).x_indicators)
    rows = np.arange(n_rows)
    pairs = np.column_stack([rows, rows]) if partners is None else _pairs(partners)
    return Annotations((n_rows, n_rows), facet_objects, pairs)


def draw_split(
    labels: npt.NDArray[np.str_], partners: Sequence[str] | None = None, random_state: int = 0
) -> npt.NDArray[np.bool]:
    """Return which rows are trained on, four in five of each class; partners are on the same side.

    Parameters
    ----------
    labels : ndarray of shape (n_rows,)
        Class of each row.
    partners : sequence of str, optional
        As `annotate_rows` takes them.
    random_state : int, >= 0
        Seed.
    """
    names = [""] * len(labels) if partners is None else partners
    units = [name or f"\x00{row}" for row, name in enumerate(names)]
    _, first, unit_of_row = np.unique(units, return_index=True, return_inverse=True)
    order = np.random.default_rng(random_state).permutation(len(first))
    by_class = order[np.argsort(labels[first[order]], kind="stable")]
    is_train = np.ones(len(first), np.bool)
    is_train[by_class[::_TEST_SHARE]] = False
    return is_train[unit_of_row]


def load_annotated_npz(file: str | Path, random_state: int = 0) -> AnnotatedFeatures:
    """Load an archive of features with labels, facets and partners.

    Parameters
    ----------
    file : path
        A NumPy .npz archive without pickled objects. Row i of all arrays belongs together:

        * ``x`` (n, p) and ``z`` (n, q): features of both modalities;
        * ``labels`` (n,): the main label, integers or strings;
        * ``split`` (n,) of "train" and "test", or ``is_test`` (n,) of booleans; without either, a fifth of
          each class is drawn;
        * ``facet_NAME`` (n,), any number: another property; unknown where it is empty or negative;
        * ``pairs`` (n,): rows of the same value are partners of each other, such as several captions of one
          picture; none where it is empty or negative. Without it the two samples of a row are partners.
    random_state : int, >= 0
        Seed of the drawn split.

    Raises
    ------
    DatasetError
        If the file or one of the arrays is missing, damaged or does not fit the others; names the array.
    """
    path = Path(file)
    arrays = _read_arrays(path)
    X, Z = (stacked_features({name: arrays[name]}, path) for name in ("x", "z"))
    columns = {
        name: _words(array, name, path, len(X))
        for name, array in arrays.items()
        if name not in ("x", "z", "is_test")
    }
    if "" in columns["labels"]:
        raise DatasetError(f"{path}: labels: row {columns['labels'].index('')} has none")
    labels, partners = np.asarray(columns["labels"], np.str_), columns.get("pairs")
    is_train = _training_rows(columns.get("split"), arrays.get("is_test"), path, len(X))
    if is_train is None:
        is_train = draw_split(labels, partners, random_state)
    ids = tuple(f"row-{row:06d}" for row in range(len(X)))
    facets = {LABEL: columns["labels"]}
    facets |= {name.removeprefix(_PREFIX): columns[name] for name in columns if name.startswith(_PREFIX)}
    values = {name: [(word,) if word else () for word in column] for name, column in facets.items()}
    return AnnotatedFeatures(
        PairedFeatures(X, Z, labels, is_train, ids, ids),
        annotate_rows({name: (rows, rows) for name, rows in values.items()}, partners),
    )


def _read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    with reading(path, ".npz archive"), path.open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DatasetError(f"{path} is not a readable .npz archive: it holds a single array")
        missing = [name for name in _REQUIRED if name not in archive.files]
        if missing:
            raise DatasetError(f"{path} lacks {', '.join(missing)}; it has {sorted(archive.files)}")
        names = [name for name in archive.files if name in _READ or name.startswith(_PREFIX)]
        return {name: archive[name] for name in names}


def _words(array: npt.NDArray[Any], name: str, path: Path, n_rows: int) -> list[str]:
    """Return a column as words, empty where it is unknown."""
    if name in (_PREFIX, f"{_PREFIX}{LABEL}"):
        raise DatasetError(f"{path}: {name}: another name is needed, {LABEL!r} is the facet of the labels")
    column = label_column(array, name, path)
    if len(column) != n_rows:
        raise DatasetError(f"{path}: different lengths: {name} has {len(column)} rows, x has {n_rows}")
    return ["" if not isinstance(value, str) and value < 0 else str(value) for value in column.tolist()]


def _training_rows(
    split: list[str] | None, is_test: npt.NDArray[Any] | None, path: Path, n_rows: int
) -> npt.NDArray[np.bool] | None:
    if split is not None and is_test is not None:
        raise DatasetError(f"{path} has both split and is_test: one of them is needed")
    if split is not None:
        return training_rows(split, f"{path}: split")
    if is_test is None:
        return None
    if is_test.shape != (n_rows,) or not np.isin(is_test, (0, 1)).all():
        raise DatasetError(f"{path}: is_test must be {n_rows} booleans, got {is_test.dtype} {is_test.shape}")
    return np.asarray([not value for value in is_test.tolist()])


def training_rows(split: Sequence[str], name: str) -> npt.NDArray[np.bool]:
    """Return which rows are trained on, from a column of "train" and "test", in any case.

    Parameters
    ----------
    split : sequence of str
        The column.
    name : str
        Named in the message.

    Raises
    ------
    DatasetError
        If another word occurs, or one of both does not; names the row.
    """
    words = [word.strip().casefold() for word in split]
    for row, word in enumerate(words):
        if word not in ("train", "test"):
            raise DatasetError(f"{name}: row {row} has {split[row]!r}, expected 'train' or 'test'")
    if len(set(words)) < 2:
        raise DatasetError(f"{name}: all rows are {words[0]!r}; rows to train and rows to test are needed")
    return np.asarray([word == "train" for word in words])


def _pairs(partners: Sequence[str]) -> npt.NDArray[np.intp]:
    names, codes = np.unique(np.asarray(partners, np.str_), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1])
    members = [rows for name, rows in zip(names.tolist(), groups, strict=True) if name]
    if sum(len(rows) ** 2 for rows in members) > _MOST_PARTNERS * len(partners):
        raise DatasetError(
            f"rows have more than {_MOST_PARTNERS} partners on average: what so large groups share is a facet"
        )
    pairs = [np.column_stack([np.repeat(rows, len(rows)), np.tile(rows, len(rows))]) for rows in members]
    return np.concatenate([np.empty((0, 2), np.intp), *pairs])
