import dataclasses

import numpy as np
import pytest

from solver import make_low_rank_pairs
from solver.datasets import PairedFeatures


def paired(n: int = 120, noise: float = 2.0, seed: int = 0, n_classes: int = 3) -> PairedFeatures:
    """Draw paired rows whose classes are barely separable; every third is a test row."""
    drawn = make_low_rank_pairs(
        n, n, n_features_x=8, n_features_z=6, n_classes=n_classes, noise=noise, random_state=seed
    )
    x, z = (np.argsort(labels, kind="stable") for labels in (drawn.x_labels, drawn.z_labels))
    order = np.random.default_rng(seed).permutation(n)
    x, z = x[order], z[order]
    ids = tuple(str(row) for row in range(n))
    labels = drawn.x_labels[x].astype(np.str_)
    return PairedFeatures(drawn.X[x], drawn.Z[z], labels, np.arange(n) % 3 > 0, ids, ids)


@pytest.fixture
def data() -> PairedFeatures:
    return paired()


@pytest.fixture
def garbled(data: PairedFeatures) -> PairedFeatures:
    """The same training rows; test rows from which nothing can be learned."""
    rng = np.random.default_rng(1)
    X, Z, labels = data.X.copy(), data.Z.copy(), data.labels.copy()
    test = ~data.is_train
    X[test], Z[test] = 1e3 * rng.standard_normal(X[test].shape), -1e6 * rng.random(Z[test].shape)
    labels[test] = rng.permutation(labels[test])
    return dataclasses.replace(data, X=X, Z=Z, labels=labels)
