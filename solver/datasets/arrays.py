"""Paired features in NumPy archives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.datasets.boundary import label_column, stacked_features
from solver.datasets.files import read_arrays
from solver.linalg.matrices import FloatArray
from solver.validation.errors import DatasetError

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
        lengths = {
            len(self.X),
            len(self.Z),
            len(self.labels),
            len(self.is_train),
            len(self.x_ids),
            len(self.z_ids),
        }
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
    X, Z = (
        stacked_features({f"{name}{suffix}": arrays[f"{name}{suffix}"] for _, suffix in _SPLITS}, path)
        for name in (names[0][:-3], names[2][:-3])
    )
    for name in names[:4]:
        labels = y[f"y{name[-3:]}"]
        if len(arrays[name]) != len(labels):
            raise DatasetError(
                f"{path}: different lengths: {name} has {len(arrays[name])} rows for {len(labels)} labels"
            )
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
