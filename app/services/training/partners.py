"""Pairs of items that belong together because they have the same `pair_id`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Names = npt.NDArray[np.str_]
_MOST_COMBINATIONS = 64
"""Pairs of one `pair_id`: a picture with its captions, or some views of a product with some texts."""


def pairs_of(x_groups: Names, z_groups: Names) -> Rows:
    """Return which rows belong together, (n_pairs, 2); a row without a `pair_id` has an empty one."""
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
