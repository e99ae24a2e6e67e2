"""Which items are held out: decided by their ids, so that the choice lasts while a collection grows."""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver import MIN_CLASS_SIZE, LabelledPair, SupervisionError, class_counts, hold_out_by_class

_Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledItems(LabelledPair):
    """Training items of both modalities.

    An item that was held out of the training of one version is held out of the next one's, too, as long as
    both use the same seed. So two versions can be compared on items that neither was trained on.

    Parameters
    ----------
    X, Z, x_labels, z_labels
        As of `LabelledPair`.
    x_ids, z_ids : ndarray of str
        Item of each row.
    """

    x_ids: npt.NDArray[np.str_]
    z_ids: npt.NDArray[np.str_]

    def split(
        self, holdout: float, max_samples: int, seed: int, fit_all_others: bool = False
    ) -> tuple[LabelledItems, LabelledItems]:
        """Return a fitting and a held-out part.

        The items of each class are ordered by a hash of id and seed, and the first of them are held out. Of
        more than about `max_samples` items the same share of each class is used, at least two of each.

        Parameters
        ----------
        holdout : float in (0, 1)
            Share of each class that is held out; at least one of two items or more.
        max_samples : int, >= 4
            Items of each modality in both parts together, about. Where it leaves less than two to each class,
            whole classes are left out, the same in both modalities.
        seed : int
            Hashed with each id.
        fit_all_others : bool
            Hold the same items out, but put all others into the fitting part.

        Raises
        ------
        SupervisionError
            If no class of a modality has two items.
        """
        x_keys, z_keys = _keys(self.x_ids, seed), _keys(self.z_ids, seed)
        classes = self._classes(max_samples, seed)
        x_fit, x_held = _split(self.x_labels, x_keys, classes, holdout, max_samples)
        z_fit, z_held = _split(self.z_labels, z_keys, classes, holdout, max_samples)
        if min(len(x_held), len(z_held)) == 0:
            raise SupervisionError("too few samples of each class to hold a part out for choosing alpha")
        if fit_all_others:
            x_fit, z_fit = _complement(x_held, x_keys), _complement(z_held, z_keys)
        return self._rows(x_fit, z_fit), self._rows(x_held, z_held)

    def without(self, item_ids: Container[str]) -> LabelledItems | None:
        """Return the other items; None when a modality has none."""
        x_rows, z_rows = (
            np.flatnonzero([name not in item_ids for name in ids.tolist()])
            for ids in (self.x_ids, self.z_ids)
        )
        return self._rows(x_rows, z_rows) if min(len(x_rows), len(z_rows)) else None

    def _classes(self, max_samples: int, seed: int) -> npt.NDArray[np.str_]:
        """Return the classes to use: all, or as many as can have two items each, shared ones first."""
        classes = np.union1d(self.x_labels, self.z_labels)
        if MIN_CLASS_SIZE * len(classes) <= max_samples:
            return classes
        counts = np.minimum(class_counts(self.x_labels, classes), class_counts(self.z_labels, classes))
        order = np.lexsort((_keys(classes, seed), -np.minimum(counts, MIN_CLASS_SIZE)))
        return classes[order[: max_samples // MIN_CLASS_SIZE]]

    def _rows(self, x_rows: _Rows, z_rows: _Rows) -> LabelledItems:
        return LabelledItems(
            self.X[x_rows],
            self.Z[z_rows],
            self.x_labels[x_rows],
            self.z_labels[z_rows],
            self.x_ids[x_rows],
            self.z_ids[z_rows],
        )


def _split(
    labels: npt.NDArray[np.str_],
    keys: npt.NDArray[np.uint64],
    classes: npt.NDArray[np.str_],
    holdout: float,
    max_samples: int,
) -> tuple[_Rows, _Rows]:
    order = np.argsort(keys, kind="stable")
    ordered = labels[order]
    n_all = int(np.isin(labels, classes).sum())
    share = min(max_samples / max(n_all, 1), 1.0)
    by_class = np.argsort(ordered, kind="stable")
    ordered, order = ordered[by_class], order[by_class]
    starts, stops = (np.searchsorted(ordered, classes, side) for side in ("left", "right"))
    members = [order[start:stop] for start, stop in zip(starts, stops, strict=True)]
    n_drawn = [max(int(len(rows) * share), min(len(rows), MIN_CLASS_SIZE)) for rows in members]
    fitting, held_out = hold_out_by_class(members, n_drawn, holdout)
    # In the order of the keys, which says nothing of the class: equal scores are ranked in the order of rows.
    return _sort_by_key(fitting, keys), _sort_by_key(held_out, keys)


def _complement(rows: _Rows, keys: npt.NDArray[np.uint64]) -> _Rows:
    return _sort_by_key(np.setdiff1d(np.arange(len(keys)), rows), keys)


def _sort_by_key(rows: _Rows, keys: npt.NDArray[np.uint64]) -> _Rows:
    return rows[np.argsort(keys[rows], kind="stable")]


def _keys(names: npt.NDArray[np.str_], seed: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each name and the seed, as good as drawn at random."""
    digests = (hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names.tolist())
    return np.fromiter((int.from_bytes(digest[:8]) for digest in digests), np.uint64, len(names))
