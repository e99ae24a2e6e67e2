"""Parts of the samples such that those that belong together are in the same one."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from solver.supervision.annotations import Annotations
from solver.supervision.base import Indices

Part = tuple[Indices, Indices]  # rows of both modalities


def make_parts(annotations: Annotations, n_parts: int, rng: np.random.Generator) -> list[Part]:
    """Return a partition of the samples of both modalities; partners, and their partners, stay together.
    Parts are of about the same size where no group of partners is large."""
    n_x, n_z = annotations.shape
    ones, pairs = np.ones(len(annotations.pairs), np.int8), annotations.pairs
    graph = scipy.sparse.csr_array((ones, (pairs[:, 0], n_x + pairs[:, 1])), shape=(n_x + n_z, n_x + n_z))
    n_groups, group = scipy.sparse.csgraph.connected_components(graph, directed=False)
    part = rng.permutation(np.arange(n_groups) % n_parts)[group]
    return [
        (np.flatnonzero(part[:n_x] == number), np.flatnonzero(part[n_x:] == number))
        for number in range(n_parts)
    ]


def draw(rows: Part, max_samples: int, pairs: Indices, rng: np.random.Generator) -> Part:
    """Return at most `max_samples` rows of each modality: of the second, partners of the first come first."""
    x_rows, z_rows = rows
    if len(x_rows) > max_samples:
        x_rows = np.sort(rng.permutation(x_rows)[:max_samples])
    if len(z_rows) > max_samples:
        is_partner = np.isin(z_rows, pairs[np.isin(pairs[:, 0], x_rows), 1])
        order = np.lexsort((rng.permutation(len(z_rows)), ~is_partner))
        z_rows = np.sort(z_rows[order[:max_samples]])
    return x_rows, z_rows
