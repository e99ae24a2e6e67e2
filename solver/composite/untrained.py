"""What ranks samples before anything was learned: their words or likeness, and a space that both share."""

from __future__ import annotations

import numpy as np

from solver.composite.placement import CONTENT, content_width
from solver.composite.projector import NO_CURVE, CompositeProjector, CompositeSide, Head
from solver.linalg import Samples
from solver.scaling.feature_maps import FeatureMap
from solver.scaling.scaler import Scaler


def untrained_projector(
    X: Samples, Z: Samples, *, shares_space: bool = False, n_further: tuple[int, int] = (0, 0)
) -> CompositeProjector:
    """Return a projector that has learned nothing.

    Samples of one modality are compared by the cosines of their features, and with samples of the other
    by those of its partners, see `Projector.place`. Its probabilities are 0: nothing says what a match
    scores.

    Parameters
    ----------
    X, Z : ndarray or CSR array of shape (n_samples, n_features)
        Some samples of both modalities, for the number of features.
    shares_space : bool
        Whether both modalities have features of one pretrained space, whose cosine counts between them.
    n_further : tuple of int
        As of `CompositeBilinear.fit`.
    """
    sides = []
    for number, samples in enumerate((X, Z)):
        heads = [
            Head(f"{CONTENT}{name}", "content", content_width(owner.shape[1]), 1.0, is_own=number == place)
            for place, (name, owner) in enumerate((("x", X), ("z", Z)))
        ]
        if shares_space:
            heads.append(Head("cosine", "cosine", 0, 1.0))
        zeros = np.zeros(samples.shape[1] - n_further[number], np.float32)
        none = np.zeros((0, len(zeros)), np.float32)
        feature_map = FeatureMap(Scaler.restore("none", zeros, zeros + 1.0), "linear", 0.0, none, none)
        coefficients = np.zeros((feature_map.n_mapped, 0), np.float32)
        expected = np.zeros((0, content_width((Z, X)[number].shape[1])), np.float32)
        sides.append(
            CompositeSide(
                feature_map,
                coefficients,
                np.zeros(0, np.float32),
                tuple(heads),
                NO_CURVE,
                None,
                0.5,
                expected,
                n_further=n_further[number],
            )
        )
    return CompositeProjector(*sides)
