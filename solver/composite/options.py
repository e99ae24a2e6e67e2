"""How a composite similarity is learned, and what is chosen on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solver.composite.pairs import Pairing
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
    """What is chosen on held-out samples, and can be taken over by a fit on similar ones."""

    maps: tuple[FeatureMapConfig, FeatureMapConfig]
    pairing: Pairing | None  # how pairs are learned from; None without pairs
    weights: Mapping[str, float]  # of each term; the largest is 1
