"""Paired features with all that their rows carry: labels, facets, and which rows are partners.

Methods that learn from one class of each row learn from labels where there are such. Without labels, rows
that are partners are a class of their own, and without partners either, rows of the same first facet are one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.datasets.files import (
    label_column,
    read_array,
    read_arrays,
    read_labels,
    read_row_arrays,
    split_features,
    stacked_features,
)
from solver.linalg import FloatArray
from solver.supervision.annotations import Annotations, Facet
from solver.validation import DatasetError

_MORE = "(?:dat(?:a|en)|set|split|image|img|picture|photo|file|sample|item|dir|folder|v|full|mini|small)s?"
"""Words beside the one that counts, as in "test_set", "train_images", "train_v2" and "minival"."""
_NAMES = {
    True: "train(?:ing|val)?|trn|learn(?:ing)?",
    False: "test(?:ing)?|tst|eval(?:uation)?|h[eo]ldout|val(?:id(?:ation|ate)?)?|dev(?:el(?:opment)?)?",
}
_PATTERNS = {
    is_training: re.compile(f"(?:{_MORE})*(?:(?:{names})s?(?:{_MORE})*)+")
    for is_training, names in _NAMES.items()
}


def is_training_split(name: str) -> bool | None:
    """Return whether the name of a split says that it is learned from; None if it is no such name.

    Parameters
    ----------
    name : str
        Such as "train", "Training-Set", "val2017" or "held out", in any case.
    """
    letters = re.sub(r"[\W\d_]", "", unicodedata.normalize("NFKC", name).casefold())
    return next((answer for answer, pattern in _PATTERNS.items() if pattern.fullmatch(letters)), None)


_SPLITS = (("train", "_tr"), ("test", "_te"))


@dataclass(frozen=True, slots=True, eq=False)
class PairedFeatures:
    """Rows of both modalities that belong together, with one class each and a train/test split.

    Parameters
    ----------
    X, Z : ndarray of shapes (n_samples, n_features_x) and (n_samples, n_features_z)
        Both modalities.
    labels : ndarray of shape (n_samples,)
    is_train : ndarray of bool, shape (n_samples,)
        True on the training split.
    x_ids, z_ids : tuple of str
        Names of the samples.
    """

    X: FloatArray
    Z: FloatArray
    labels: npt.NDArray[np.str_]
    is_train: npt.NDArray[np.bool]
    x_ids: tuple[str, ...]
    z_ids: tuple[str, ...]

    def __post_init__(self) -> None:
        """Reject columns of different lengths or without rows, and values that are not finite."""
        columns = (self.X, self.Z, self.labels, self.is_train, self.x_ids, self.z_ids)
        lengths = {len(column) for column in columns}
        if len(lengths) != 1:
            raise DatasetError(f"columns of different lengths: {sorted(lengths)}")
        if lengths == {0}:
            raise DatasetError("there are no rows")
        for name, features in (("X", self.X), ("Z", self.Z)):
            if features.ndim != 2 or features.dtype.kind not in "fiub":
                raise DatasetError(f"{name} must be a numeric matrix, got {features.dtype} {features.shape}")
            if not np.isfinite(features).all():
                raise DatasetError(f"{name} contains NaN or infinity")


def load_npz(file: str | Path, x: str | None = None, z: str | None = None) -> PairedFeatures:
    """Load an archive of arrays named ``<modality>_tr``, ``<modality>_te``, ``y_tr``, ``y_te``.

    Parameters
    ----------
    file : path
        As `read_arrays` takes it, such as a NumPy .npz archive. ``y_*`` hold one label per row: integers or
        strings, shaped (n,), (n, 1) or (1, n), as floats too when they are whole. ``class_names``
        (n_classes,), when present, names the integer ones, from 0.
    x, z : str, optional
        The two modalities; the first two in the archive when left out.

    Raises
    ------
    DatasetError
        If the file or one of the arrays is missing, damaged or does not fit the others; the message
        names the array or lists the modalities.
    """
    path = Path(file)
    names: list[str] = []

    def choose(members: list[str]) -> list[str]:
        sides = (*_modalities(members, x, z, path), "y")
        names.extend(f"{name}{suffix}" for name in sides for _, suffix in _SPLITS)
        return [name for name in (*names, "class_names") if name in members]

    arrays = read_arrays(path, choose)
    y = {name: label_column(arrays[name], name, path) for name in ("y_tr", "y_te")}
    rows = {"tr": y["y_tr"], "te": y["y_te"]}
    X, Z = (split_features(arrays, name[:-3], rows, path, "labels") for name in (names[0], names[2]))
    ids = tuple(f"{split}-{i:05d}" for split, suffix in _SPLITS for i in range(len(y[f"y{suffix}"])))
    return PairedFeatures(
        X=X,
        Z=Z,
        labels=_names(y, arrays.get("class_names"), path),
        is_train=np.arange(len(ids)) < len(y["y_tr"]),
        x_ids=ids,
        z_ids=ids,
    )


def _modalities(members: list[str], x: str | None, z: str | None, path: Path) -> tuple[str, str]:
    modalities = [name[:-3] for name in members if name.endswith("_tr") and name != "y_tr"]
    missing = [f"y{suffix}" for _, suffix in _SPLITS if f"y{suffix}" not in members]
    if missing or len(modalities) < 2:
        raise DatasetError(f"{path} lacks {missing or 'two modalities <name>_tr'}, it has {sorted(members)}")
    x = x or next(name for name in modalities if name != z)
    z = z or next(name for name in modalities if name != x)
    for name in (x, z):
        if not {f"{name}{suffix}" for _, suffix in _SPLITS} <= set(members):
            raise DatasetError(f"{path} has no modality {name!r}; it has {modalities}")
    return x, z


def _names(
    y: dict[str, npt.NDArray[Any]], class_names: npt.NDArray[Any] | None, path: Path
) -> npt.NDArray[np.str_]:
    """Return the class of each row, by name where the integer labels have one."""
    kinds = {labels.dtype.kind for labels in y.values() if len(labels)}
    if len(kinds) > 1:
        raise DatasetError(f"{path}: y_tr and y_te are not of one kind: one holds numbers, one strings")
    labels = np.concatenate([part for part in y.values() if len(part)] or [np.zeros(0, np.str_)])
    if class_names is None or labels.dtype.kind == "U":
        return labels.astype(np.str_)
    names = label_column(class_names, "class_names", path).astype(np.str_)
    if labels.min() < 0 or labels.max() >= len(names):
        raise DatasetError(
            f"{path}: class_names has {len(names)} names, labels lie in {labels.min()}..{labels.max()}"
        )
    named: npt.NDArray[np.str_] = names[labels]
    return named


LABEL = "label"
"""Name of the facet of the labels."""
PARTNER = "partner"
"""Name of what is learned from partners."""
_PREFIX = "facet_"  # of the arrays that hold a facet
_TEST_SHARE = 5  # one row in five tests where no split is given: enough queries, and most rows to learn from
_MOST_PARTNERS = 64  # partners of a row on average: names that more rows share are those of classes

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
    class_name : str
        What the classes are: "label", "partner", or a facet.
    """

    features: PairedFeatures
    annotations: Annotations
    class_name: str = LABEL


@dataclass(frozen=True, slots=True, eq=False)
class RowClasses:
    """One class of each row.

    Parameters
    ----------
    names : ndarray of shape (n_rows,)
        The classes; empty where a row has none.
    kind : str
        "label", "partner", or a facet.
    """

    names: npt.NDArray[np.str_]
    kind: str

    @property
    def rows(self) -> npt.NDArray[np.intp]:
        """Rows that have a class."""
        return np.flatnonzero(self.names != "")

    def draw_split(
        self, partners: Sequence[str] | None = None, random_state: int = 0
    ) -> npt.NDArray[np.bool]:
        """Return which rows are trained on, as `draw_split`; only labels are drawn one by one."""
        labels = self.names if self.kind == LABEL else np.full(len(self.names), "")
        return draw_split(labels, partners, random_state)


def row_classes(
    labels: Sequence[str], partners: Sequence[str], facets: Mapping[str, tuple[Values, Values]]
) -> RowClasses | None:
    """Return the classes to learn from: labels, or else partners, or else values of the first facet.

    Parameters
    ----------
    labels : sequence of str
        Label of each row; empty where it has none.
    partners : sequence of str
        Rows of the same name are partners; empty where a row has none.
    facets : mapping of str to tuple
        As `annotate_rows` takes them; of several values of a row the first counts.

    Returns
    -------
    RowClasses or None
        None if nothing is known of any row.
    """
    for kind, names in ((LABEL, labels), (PARTNER, partners)):
        if any(names):
            return RowClasses(np.asarray(names, np.str_), kind)
    for kind, sides in facets.items():
        values = [[*x, *z, ""][0] for x, z in zip(*sides, strict=True)]
        return RowClasses(np.asarray(values, np.str_), kind)
    return None


def annotate_rows(
    facets: Mapping[str, tuple[Values, Values]], partners: Sequence[str] | None = None
) -> Annotations:
    """Return what is known of rows of both modalities.

    Parameters
    ----------
    facets : mapping of str to tuple
        Values of the rows of the first and of the second modality, by facet; one facet at least, unless
        partners are named.
    partners : sequence of str, optional
        Rows of the same name are partners of each other; empty where a row has none. When left out, the two
        samples of each row are partners and no others.

    Raises
    ------
    DatasetError
        If rows have too many partners, as where the names are those of classes.
    """
    facet_objects = {name: Facet.of(*sides) for name, sides in facets.items()}
    n_rows = len(partners) if partners is not None else len(next(iter(facet_objects.values())).x_indicators)
    rows = np.arange(n_rows)
    pairs = np.column_stack([rows, rows]) if partners is None else _pairs(partners)
    return Annotations((n_rows, n_rows), facet_objects, pairs)


def draw_split(
    labels: npt.NDArray[np.str_], partners: Sequence[str] | None = None, random_state: int = 0
) -> npt.NDArray[np.bool]:
    """Return which rows are trained on, four in five of each class, drawn by a seed.

    Partners, named as `annotate_rows` takes them, are on the same side.
    """
    names = [""] * len(labels) if partners is None else partners
    units = [name or f"\x00{row}" for row, name in enumerate(names)]
    _, first, unit_of_row = np.unique(units, return_index=True, return_inverse=True)
    order = np.random.default_rng(random_state).permutation(len(first))
    by_class = order[np.argsort(labels[first[order]], kind="stable")]
    is_train = np.ones(len(first), np.bool)
    is_train[by_class[::_TEST_SHARE]] = False
    return is_train[unit_of_row]


def load_annotated(
    files: str | Path | Sequence[str | Path],
    random_state: int = 0,
    *,
    use_labels: bool = True,
    use_pairs: bool = True,
) -> AnnotatedFeatures:
    """Load features with labels, facets and partners; rows without a class are left out.

    Parameters
    ----------
    files : path, or sequence of paths
        Either files of x, of z, and perhaps of labels, as `read_array` and `read_labels` take them; or one
        archive as `read_arrays` takes it, in the layout of `load_npz`, or with these arrays, whose row i
        belongs together:

        * ``x`` (n, p) and ``z`` (n, q): features of both modalities;
        * ``labels`` (n,): the main label of each row, integers or strings; may be left out;
        * ``split`` (n,) of "train" and "test", or ``is_test`` (n,) of booleans; without either, a fifth of
          each class is drawn;
        * ``facet_NAME`` (n,), any number: another property; unknown where it is empty or negative;
        * ``pairs`` (n,): rows of the same value are partners of each other, such as several captions of one
          picture; none where it is empty or negative. Without it the two samples of a row are partners.
    random_state : int, >= 0
        Seed of the drawn split.
    use_labels, use_pairs : bool
        Whether labels, and partners, are looked at.

    Raises
    ------
    DatasetError
        If the file or one of the arrays is missing, damaged or does not fit the others; names the array.
        If nothing is left to learn from.
    """
    paths = [Path(file) for file in ([files] if isinstance(files, str | Path) else files)]
    path, arrays = paths[0], _read_files(paths)
    X, Z = (stacked_features({name: arrays[name]}, path) for name in ("x", "z"))
    if len(X) != len(Z):
        raise DatasetError(f"{path}: different lengths: z has {len(Z)} rows, x has {len(X)}")
    columns = {
        name: _words(array, name, path, len(X))
        for name, array in arrays.items()
        if name not in ("x", "z", "is_test")
    }
    if "" in columns.get("labels", ()):
        raise DatasetError(f"{path}: labels: row {columns['labels'].index('')} has none")
    ids, nothing = [f"row-{row:06d}" for row in range(len(X))], [""] * len(X)
    labels = columns.get("labels", nothing) if use_labels else nothing
    partners = columns.get("pairs", ids) if use_pairs else nothing
    values = {name: _as_values(columns[name]) for name in columns if name.startswith(_PREFIX)}
    facets = {name.removeprefix(_PREFIX): (rows, rows) for name, rows in values.items()}
    classes = row_classes(labels, partners, facets)
    if classes is None:
        raise DatasetError(f"{path} has no labels, pairs or facets to learn from")
    if classes.kind == LABEL:
        facets = {LABEL: (_as_values(labels),) * 2, **facets}
    is_train = _training_rows(columns.get("split"), arrays.get("is_test"), path, len(X))
    if is_train is None:
        is_train = classes.draw_split(columns.get("pairs") if use_pairs else None, random_state)
    rows = classes.rows
    annotations = annotate_rows(facets, partners).subset(rows, rows)
    names = tuple(ids[row] for row in rows)
    features = PairedFeatures(X[rows], Z[rows], classes.names[rows], is_train[rows], names, names)
    return AnnotatedFeatures(features, annotations, classes.kind)


def _as_values(words: Sequence[str]) -> Values:
    return [(word,) if word else () for word in words]


def _read_files(paths: Sequence[Path]) -> dict[str, npt.NDArray[Any]]:
    if len(paths) > 1:
        x, z, *labels = paths
        arrays = {"x": read_array(x), "z": read_array(z)}
        return arrays | ({"labels": read_labels(labels[0], len(arrays["x"]))} if labels else {})
    (path,) = paths
    arrays = read_row_arrays(path)
    if arrays:
        return arrays
    names: list[str] = []
    read_arrays(path, lambda members: names.extend(members) or [])  # type: ignore[func-returns-value]
    if not any(name.endswith("_tr") for name in names):
        raise DatasetError(f"{path} lacks x and z, or arrays <name>_tr and <name>_te; it has {sorted(names)}")
    data = load_npz(path)
    return {"x": data.X, "z": data.Z, "labels": data.labels, "is_test": ~data.is_train}


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
    """Return which rows are trained on, from a column of names such as "train" and "test", in any case.

    DatasetError, which says `name` and the row, if another word occurs, or one of both does not.
    """
    is_train = [is_training_split(word) for word in split]
    if None in is_train:
        row = is_train.index(None)
        raise DatasetError(f"{name}: row {row} has {split[row]!r}, expected 'train' or 'test'")
    if len(set(is_train)) < 2:
        raise DatasetError(f"{name}: all rows are {split[0]!r}; rows to train and rows to test are needed")
    return np.asarray(is_train, np.bool)


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
