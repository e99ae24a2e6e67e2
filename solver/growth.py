"""Beginning a large problem on some of its samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from solver.errors import SupervisionError
from solver.pair_list import SignedPairs
from solver.problem import AnySupervision
from solver.supervision import Indices, PairedRows, Supervision

_SMALL = 3000
_GROWTH = 3.0
_SEED = 0


def growing_samples(supervision: AnySupervision) -> Iterator[tuple[Indices, Indices, Supervision]]:
    """Yield ever larger parts of both modalities' samples, short of all of them.

    Parameters
    ----------
    supervision : Supervision or SignedPairs
        Of all samples. Lists of pairs are cheap as they are and give nothing.

    Yields
    ------
    x_rows, z_rows : ndarray of int
        Ascending rows, drawn at random with a fixed seed; each part holds the one before. Sizes grow
        threefold, from a geometric mean of about 3000 samples.
    part : Supervision
        Of these rows. Rows without any similar or any dissimilar pair are passed over.
    """
    if isinstance(supervision, SignedPairs):
        return
    m, n = len(supervision.x_order), len(supervision.z_order)
    rng = np.random.default_rng(_SEED)
    x_drawn = rng.permutation(m)
    z_drawn = x_drawn if isinstance(supervision, PairedRows) else rng.permutation(n)
    shares = [1.0]
    while shares[-1] * np.sqrt(float(m) * n) > _GROWTH * _SMALL / 2:
        shares.append(shares[-1] / _GROWTH)
    for share in shares[:0:-1]:
        x_rows = np.sort(x_drawn[: max(int(share * m), 2)])
        z_rows = np.sort(z_drawn[: max(int(share * n), 2)])
        try:
            part = supervision.restricted(x_rows, z_rows)
        except SupervisionError:
            continue
        yield x_rows, z_rows, part
