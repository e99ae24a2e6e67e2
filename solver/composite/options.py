"""How a composite similarity is learned, and what is chosen on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solver.scaling.feature_maps import FeatureMapConfig


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Parameters of `CompositeBilinear`, in its order."""

    scalings: tuple[str, ...]
    kernels: tuple[str, ...]
    n_landmarks: int
    n_components: int
    n_folds: int
    max_samples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen on held-out samples, and can be taken over by a fit on similar ones.

    Parameters
    ----------
    maps : tuple of FeatureMapConfig
        Feature maps of both modalities.
    pair_ridge : float or None
        Ridge of the canonical directions; None without pairs.
    weights : mapping of str to float
        Weight of each term; the largest is 1.
    """

    maps: tuple[FeatureMapConfig, FeatureMapConfig]
    pair_ridge: float | None
    weights: Mapping[str, float]
