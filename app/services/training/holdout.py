"""Which items are partners; and which are held out: decided by ids, so that the choice lasts while a
collection grows."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from solver import MIN_CLASS_SIZE, class_counts, hold_out_by_class

Rows = npt.NDArray[np.intp]
Names = npt.NDArray[np.str_]
Keys = npt.NDArray[np.uint64]
Parts = tuple[list[Rows], list[Rows]]
"""Rows of both modalities of a fitting and of a held-out part."""
_MOST_COMBINATIONS = 64
"""Pairs of one `pair_id`: a picture with its captions, or some views of a product with some texts."""


def pairs_of(x_groups: Names, z_groups: Names) -> Rows:
    """Return which rows have the same `pair_id`, (n_pairs, 2); a row without a `pair_id` has an empty one."""
    # More than 64 pairs of one are thinned to as many as its larger side, each item in some: pairs are
    # bounded by items.
    members = [_rows_by_group(groups) for groups in (x_groups, z_groups)]
    pairs = [np.empty((0, 2), np.intp)]
    for name in sorted(members[0].keys() & members[1].keys()):
        x, z = members[0][name], members[1][name]
        if len(x) * len(z) <= _MOST_COMBINATIONS:
            pairs.append(np.stack([np.repeat(x, len(z)), np.tile(z, len(x))], axis=1))
        else:
            turns = np.arange(max(len(x), len(z)))
            pairs.append(np.stack([x[turns % len(x)], z[turns % len(z)]], axis=1))
    return np.concatenate(pairs)


def _rows_by_group(groups: Names) -> dict[str, Rows]:
    order = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {name: rows for name, rows in zip(names.tolist(), parts, strict=True) if name}


def split_by_class(
    ids: tuple[Names, Names], labels: tuple[Names, Names], holdout: float, max_samples: int, seed: int
) -> Parts:
    """Return a fitting and a held-out part of both modalities, class by class; see `LabelledItems.split`."""
    classes = _classes(*labels, max_samples, seed)
    x_split, z_split = (
        _split(side, keys_of(names, seed), classes, holdout, max_samples)
        for names, side in zip(ids, labels, strict=True)
    )
    return [x_split[0], z_split[0]], [x_split[1], z_split[1]]


def split_partners(
    names: tuple[Names, Names], labels: tuple[Names, Names], holdout: float, max_samples: int, seed: int
) -> Parts:
    """Return the rows of a fitting and of a held-out part, of both modalities; partners (of one name) are in
    the same one. An item without a label has an empty one."""
    # Groups of partners are ordered by a hash of name and seed within those of the same label and the same
    # modalities, and the first of them are held out. Where this holds nothing out, or leaves too few groups
    # to a label, labels do not count.
    groups, codes = np.unique(np.concatenate(names), return_inverse=True)
    keys = keys_of(groups, seed)
    sides = codes[: len(names[0])], codes[len(names[0]) :]
    modalities = np.zeros(len(keys), np.intp)
    group_labels = np.full(len(keys), "", dtype=np.result_type(*labels))
    for number, (rows, side) in reversed(list(enumerate(zip(sides, labels, strict=True)))):
        modalities[rows] |= 1 << number
        has_label = side != ""
        group_labels[rows[has_label][::-1]] = side[has_label][::-1]
    label_codes = np.unique(group_labels, return_inverse=True)[1]
    share = min(max_samples / max(len(side) for side in sides), 1.0)
    fine = label_codes * 4 + modalities
    choices = [modalities] if 2 * MIN_CLASS_SIZE * len(np.unique(fine)) > max_samples else [fine, modalities]
    for strata in choices:
        members = [
            rows[np.argsort(keys[rows], kind="stable")]
            for rows in (np.flatnonzero(strata == stratum) for stratum in np.unique(strata))
        ]
        n_drawn = [max(int(len(rows) * share), min(len(rows), MIN_CLASS_SIZE)) for rows in members]
        parts = [
            [np.flatnonzero(np.isin(side, drawn)) for side in sides]
            for drawn in hold_out_by_class(members, n_drawn, holdout)
        ]
        if all(len(rows) for part in parts for rows in part):
            break
    return parts[0], parts[1]


def keys_of(names: Names, seed: int) -> Keys:
    """Return a 64-bit hash of each name and the seed, as good as drawn at random."""
    digests = (hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names.tolist())
    return np.fromiter((int.from_bytes(digest[:8]) for digest in digests), np.uint64, len(names))


def _classes(x_labels: Names, z_labels: Names, max_samples: int, seed: int) -> Names:
    """Return the classes to use: all, or as many as can have two items each, shared ones first."""
    classes = np.union1d(x_labels, z_labels)
    if MIN_CLASS_SIZE * len(classes) <= max_samples:
        return classes
    counts = np.minimum(class_counts(x_labels, classes), class_counts(z_labels, classes))
    order = np.lexsort((keys_of(classes, seed), -np.minimum(counts, MIN_CLASS_SIZE)))
    return classes[order[: max_samples // MIN_CLASS_SIZE]]


def _split(labels: Names, keys: Keys, classes: Names, holdout: float, max_samples: int) -> tuple[Rows, Rows]:
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
    return fitting, held_out
