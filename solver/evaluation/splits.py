"""Labelled samples of two modalities, and how a part of them is held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.errors import SupervisionError
from solver.linalg.matrices import Samples
from solver.parameters import FRACTION, integer_from

_LEAST = 2  # of a class: one to fit, one to hold out


@dataclass(frozen=True, slots=True, eq=False)
class LabelledPair:
    """Samples of both modalities with their classes.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples_x, n_features_x)
        First modality.
    Z : ndarray or CSR array of shape (n_samples_z, n_features_z)
        Second modality.
    x_labels : ndarray of shape (n_samples_x,)
        Classes of the first.
    z_labels : ndarray of shape (n_samples_z,)
        Classes of the second.

    Raises
    ------
    SupervisionError
        If there is not one class for each sample, a modality has none, or their kinds differ.
    """

    X: Samples
    Z: Samples
    x_labels: npt.NDArray[np.str_]
    z_labels: npt.NDArray[np.str_]

    def __post_init__(self) -> None:
        """Refuse labels that do not fit the samples."""
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

    def split(self, holdout: float, max_samples: int, seed: int) -> tuple[LabelledPair, LabelledPair]:
        """Return a fitting and a held-out part, drawn class by class and then shuffled.

        Parameters
        ----------
        holdout : float in (0, 1)
            Share of each class that is held out; at least one of two samples or more.
        max_samples : int, >= 4
            Samples of each modality in both parts together, at most. Where it leaves less than two
            to each class, whole classes are left out, the same in both modalities.
        seed : int
            Of all that is drawn.

        Raises
        ------
        InvalidParameterError
            If `holdout` or `max_samples` is not as described.
        SupervisionError
            If no class of a modality has two samples.
        """
        FRACTION.check("holdout", holdout)
        integer_from(4).check("max_samples", max_samples)
        rng = np.random.default_rng(seed)
        kept = self._classes_within(max_samples, rng)
        x_fit, x_held = _stratified(self.x_labels, kept, holdout, max_samples, rng)
        z_fit, z_held = _stratified(self.z_labels, kept, holdout, max_samples, rng)
        if min(len(x_held), len(z_held)) == 0:
            raise SupervisionError("too few samples of each class to hold a part out")
        return self._take(x_fit, z_fit), self._take(x_held, z_held)

    def _classes_within(self, max_samples: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Return classes that can have two samples each, first those of which both modalities have two."""
        classes = rng.permutation(np.union1d(self.x_labels, self.z_labels))
        least = np.minimum([_counts(labels, classes) for labels in (self.x_labels, self.z_labels)], _LEAST)
        order = np.argsort(-least.min(axis=0), kind="stable")
        fits = (np.cumsum(least[:, order], axis=1) <= max_samples).all(axis=0)
        return classes[order][fits]

    def _take(self, x_rows: npt.NDArray[np.intp], z_rows: npt.NDArray[np.intp]) -> LabelledPair:
        return LabelledPair(self.X[x_rows], self.Z[z_rows], self.x_labels[x_rows], self.z_labels[z_rows])


def stratified_folds(
    targets: npt.NDArray[Any], n_folds: int, rng: np.random.Generator
) -> list[npt.NDArray[np.intp]]:
    """Deal samples to folds label by label, like cards, so that each fold has its share of each.

    Parameters
    ----------
    targets : ndarray of shape (n_samples,) or (n_samples, n_classes)
        What each sample is of.
    n_folds : int, >= 2
        Number of folds.
    rng : Generator
        Draws who is dealt first.
    """
    order = rng.permutation(len(targets))
    keys = targets if targets.ndim == 1 else np.unique(targets, axis=0, return_inverse=True)[1].reshape(-1)
    by_label = order[np.argsort(keys[order], kind="stable")]
    return [by_label[fold::n_folds] for fold in range(n_folds)]


def _stratified(
    labels: npt.NDArray[np.str_],
    classes: npt.NDArray[Any],
    holdout: float,
    max_samples: int,
    rng: np.random.Generator,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Draw rows of each class; shuffled, because equal scores are ranked in the order of the rows."""
    fitting, held = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for label, n_drawn in zip(classes, _quotas(_counts(labels, classes), max_samples), strict=True):
        members = rng.permutation(np.flatnonzero(labels == label))[:n_drawn]
        n_held = min(max(round(holdout * len(members)), 1), max(len(members) - 1, 0))
        held.append(members[:n_held])
        fitting.append(members[n_held:])
    return rng.permutation(np.concatenate(fitting)), rng.permutation(np.concatenate(held))


def _quotas(counts: npt.NDArray[np.intp], max_samples: int) -> npt.NDArray[np.intp]:
    """Share `max_samples` out among classes: two each, the rest in proportion to what they have left."""
    least = np.minimum(counts, _LEAST)
    n_left = counts - least
    n_spare = min(max_samples - int(least.sum()), int(n_left.sum()))
    return least + n_left * n_spare // max(int(n_left.sum()), 1)


def _counts(labels: npt.NDArray[np.str_], classes: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return how many samples there are of each class."""
    names, counts = np.unique(labels, return_counts=True)
    where = np.minimum(np.searchsorted(names, classes), len(names) - 1)
    return np.where(names[where] == classes, counts[where], 0)
