"""Labelled samples of two modalities, and how a part of them is held out.

scikit-learn's `StratifiedKFold` and `StratifiedShuffleSplit` are not used: they reject or warn of classes
with fewer samples than parts, which are common here and are kept; and from the same seed they would draw
other parts than earlier versions did, which would change what is selected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg import Samples
from solver.validation import SupervisionError

MIN_CLASS_SIZE = 2
"""Fewest samples of a class that can be split: one to fit, one to hold out."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPair:
    """Samples of both modalities with their classes.

    Parameters
    ----------
    X, Z : ndarray or CSR array of shapes (n_samples_x, n_features_x) and (n_samples_z, n_features_z)
        Both modalities.
    x_labels : ndarray of shape (n_samples_x,)
        Classes of the first.
    z_labels : ndarray of shape (n_samples_z,)
        Classes of the second.

    Raises
    ------
    SupervisionError
        If a sample lacks a class, a modality has no samples, or only one has strings as classes.
    """

    X: Samples
    Z: Samples
    x_labels: npt.NDArray[np.str_]
    z_labels: npt.NDArray[np.str_]

    def __post_init__(self) -> None:
        for name, samples, labels in (("x", self.X, self.x_labels), ("z", self.Z, self.z_labels)):
            if labels.ndim != 1 or not len(labels) == samples.shape[0] > 0:
                raise SupervisionError(
                    f"{name}_labels of shape {labels.shape} do not give {samples.shape[0]} samples "
                    "a class each"
                )
        if (self.x_labels.dtype.kind in "US") != (self.z_labels.dtype.kind in "US"):
            raise SupervisionError(
                f"x_labels ({self.x_labels.dtype}) and z_labels ({self.z_labels.dtype}) are not of one kind"
            )


def stratified_folds(targets: npt.NDArray[Any], n_folds: int, rng: np.random.Generator) -> list[Rows]:
    """Deal samples to folds class by class, like cards, so that each fold has its share of each class.
    Samples with equal indicators of several classes count as one class."""
    order = rng.permutation(len(targets))
    keys = targets if targets.ndim == 1 else np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)
    by_label = order[np.argsort(keys[order], kind="stable")]
    return [by_label[fold::n_folds] for fold in range(n_folds)]


def hold_out_by_class(members: Iterable[Rows], n_drawn: Iterable[int], holdout: float) -> tuple[Rows, Rows]:
    """Draw rows of each class and hold a share of them out.

    Parameters
    ----------
    members : iterable of ndarray of int
        Rows of each class, in the order in which they are drawn; the first of them are held out.
    n_drawn : iterable of int
        How many rows of each class are drawn.
    holdout : float in (0, 1)
        Share of the drawn rows of a class that is held out: at least one of two or more, and never all.

    Returns
    -------
    fitting, held_out : ndarray of int
        The drawn rows, class by class.
    """
    fitting, held_out = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for rows, count in zip(members, n_drawn, strict=True):
        n_held_out = min(max(round(holdout * int(count)), 1), max(int(count) - 1, 0))
        held_out.append(rows[:n_held_out])
        fitting.append(rows[n_held_out:count])
    return np.concatenate(fitting), np.concatenate(held_out)


def class_counts(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Rows:
    """Return the (n_classes,) numbers of labels of each class, 0 for a class that is absent."""
    names, counts = np.unique(labels, return_counts=True)
    places = np.minimum(np.searchsorted(names, classes), len(names) - 1)
    return np.where(names[places] == classes, counts[places], 0)
