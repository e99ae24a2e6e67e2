"""Paired features in NumPy archives."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.errors import DatasetError
from solver.linalg import FloatArray

_SPLITS = (("train", "_tr"), ("test", "_te"))


@dataclass(frozen=True, slots=True, eq=False)
class PairedFeatures:
    """Rows of both modalities that belong together, with one class each and a train/test split.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features_x)
        First modality.
    Z : ndarray of shape (n_samples, n_features_z)
        Second modality.
    labels : ndarray of shape (n_samples,)
        Class names, as strings.
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
        """Refuse columns of different lengths and values that are not finite."""
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
        A NumPy .npz archive without pickled objects. ``class_names`` (n_classes,), when present,
        names the integer classes of ``y_*``.
    x, z : str, optional
        The two modalities; the first two in the archive when left out.

    Raises
    ------
    DatasetError
        If the file or one of the arrays is missing or damaged; the message lists the modalities.
    """
    path = Path(file)
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays: dict[str, npt.NDArray[Any]] = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path} is not a readable .npz archive: {error}") from error
    modalities = [name[:-3] for name in arrays if name.endswith("_tr") and name != "y_tr"]
    missing = [f"y{suffix}" for _, suffix in _SPLITS if f"y{suffix}" not in arrays]
    if missing or len(modalities) < 2:
        raise DatasetError(f"{path} lacks {missing or 'two modalities <name>_tr'}, it has {sorted(arrays)}")
    x = x or next(name for name in modalities if name != z)
    z = z or next(name for name in modalities if name != x)
    for name in (x, z):
        if f"{name}_tr" not in arrays or f"{name}_te" not in arrays:
            raise DatasetError(f"{path} has no modality {name!r}; it has {modalities}")
        if arrays[f"{name}_tr"].shape[1:] != arrays[f"{name}_te"].shape[1:]:
            raise DatasetError(f"{path}: {name}_tr and {name}_te have different features")
    labels = np.concatenate([arrays["y_tr"], arrays["y_te"]])
    ids = tuple(f"{split}-{i:05d}" for split, suffix in _SPLITS for i in range(len(arrays[f"y{suffix}"])))
    return PairedFeatures(
        X=np.concatenate([arrays[f"{x}_tr"], arrays[f"{x}_te"]]),
        Z=np.concatenate([arrays[f"{z}_tr"], arrays[f"{z}_te"]]),
        labels=_names(labels, arrays.get("class_names")),
        is_train=np.arange(len(labels)) < len(arrays["y_tr"]),
        x_ids=ids,
        z_ids=ids,
    )


def _names(labels: npt.NDArray[Any], class_names: npt.NDArray[Any] | None) -> npt.NDArray[np.str_]:
    if class_names is None or labels.dtype.kind not in "iu":
        return labels.astype(np.str_)
    if labels.min() < 0 or labels.max() >= len(class_names):
        raise DatasetError(f"class_names has {len(class_names)} names, labels reach {labels.max()}")
    names: npt.NDArray[np.str_] = class_names.astype(np.str_)[labels]
    return names
