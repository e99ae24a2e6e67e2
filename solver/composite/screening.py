"""Which feature map suits a modality: the one from which ridge regressions predict best."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from solver.composite.ridge import RIDGES, RidgePath
from solver.composite.space import PrincipalSpace
from solver.linalg.matrices import FloatArray, Samples
from solver.semantic.feature_maps import FeatureMapConfig
from solver.supervision.base import Indices
from solver.validation.errors import InvalidInputError

_WIDTHS = {"linear": (1.0,), "rbf": (0.5, 2.0), "laplacian": (0.5, 2.0)}
"""Kernel widths to try, as exponents at the median distance."""
_MARGIN = 1.03
"""A linear map is taken if its error is at most 3 % above the best one's: a query costs far less with it."""


def candidate_maps(
    samples: Samples, scalings: Sequence[str], kernels: Sequence[str]
) -> list[FeatureMapConfig]:
    """Return the kinds of feature maps that suit the samples.

    Raises
    ------
    InvalidInputError
        If there is none.
    """
    configs = [
        FeatureMapConfig(scaling, kernel, width)
        for scaling in scalings
        for kernel in kernels
        for width in _WIDTHS[kernel]
    ]
    suitable = [config for config in configs if config.suits(samples)]
    if not suitable:
        raise InvalidInputError(
            "no feature map suits the samples: add 'l2' to scalings, or 'linear' to kernels"
        )
    return suitable


def choose_map(
    samples: Samples,
    configs: Sequence[FeatureMapConfig],
    targets: Sequence[tuple[Indices, FloatArray]],
    n_landmarks: int,
    seed: int,
    heartbeat: Callable[[], None],
) -> FeatureMapConfig:
    """Return the kind of map with the smallest left-out error, or a linear one that is hardly worse.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Raw features, a few hundred or thousand of them.
    configs : sequence of FeatureMapConfig
        Kinds to try.
    targets : sequence of tuple
        Rows, and what is known of them: (n_rows, n_targets).
    n_landmarks : int
        Landmarks of kernel maps.
    seed : int
        Seed of the landmarks.
    heartbeat : callable
        Called at each step.
    """
    errors: list[float] = []
    for config in configs:
        heartbeat()
        _, coordinates = PrincipalSpace.fit(samples, config, n_landmarks, samples.shape[0], seed)
        errors.append(float(np.mean([_left_out_error(coordinates[rows], group) for rows, group in targets])))
    good = [config for config, error in zip(configs, errors, strict=True) if error <= _MARGIN * min(errors)]
    return next((config for config in good if config.kernel == "linear"), configs[int(np.argmin(errors))])


def _left_out_error(coordinates: FloatArray, targets: FloatArray) -> float:
    """Return the smallest mean squared error of all penalties, relative to the variance of the targets."""
    path = RidgePath(coordinates)
    variance = float(np.sum((targets - targets.mean(axis=0)) ** 2))
    errors = [float(np.sum((targets - path.fit(targets, ridge).left_out) ** 2)) for ridge in RIDGES]
    return min(errors) / variance if variance > 0.0 else 1.0
