"""Which feature map suits a modality: the one from which ridge regressions predict best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.composite.facet_terms import RIDGES, RidgePath
from solver.composite.space import ROUNDING, centre, principal_axes
from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples
from solver.scaling.feature_maps import FeatureMapConfig, gamma_of, kernel_distances
from solver.scaling.scaler import Scaler
from solver.supervision.base import Indices
from solver.validation.errors import InvalidInputError

_WIDTHS = {"linear": (1.0,), "rbf": (0.5, 2.0), "laplacian": (0.5, 2.0)}
"""Kernel widths to try, as exponents at the median distance."""
_MARGIN = 1.03
"""A linear map is taken if its error is at most 3 % above the best one's: a query costs far less with it."""


def candidate_maps(
    samples: Samples, scalings: Sequence[str], kernels: Sequence[str]
) -> list[FeatureMapConfig]:
    """Return the kinds of feature maps that suit the samples; InvalidInputError if there is none."""
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
    heartbeat: Callable[[], None],
) -> FeatureMapConfig:
    """Return the kind of map with the smallest left-out error, or a linear one that is hardly worse.
    Targets are rows and what is known of them; kernels are taken as they are here, without landmarks."""
    tasks = _Task.of(targets)
    screen = _Screen(samples)
    errors: list[float] = []
    for config in configs:
        heartbeat()
        coordinates, variances = screen.coordinates(config)
        errors.append(
            float(np.mean([error for task in tasks for error in task.errors(coordinates, variances)]))
        )
    good = [config for config, error in zip(configs, errors, strict=True) if error <= _MARGIN * min(errors)]
    return next((config for config in good if config.kernel == "linear"), configs[int(np.argmin(errors))])


class _Screen:
    """Principal coordinates of the same samples under many maps; distances are computed once a scaling."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._distances: dict[tuple[str, str], FloatArray] = {}

    def coordinates(self, config: FeatureMapConfig) -> tuple[FloatArray, FloatArray]:
        """Return the (n_samples, rank) coordinates under a map, and the variance along each axis."""
        distances = self._of_kind(config.scaling, "laplacian" if config.kernel == "laplacian" else "rbf")
        if config.kernel == "linear":
            products = -0.5 * distances
        else:
            products = np.exp(-gamma_of(distances, config.width) * distances)
        vectors, values = principal_axes(centre(products), len(products), ROUNDING**2)
        return vectors * np.sqrt(values), values / len(products)

    def _of_kind(self, scaling: str, kernel: str) -> FloatArray:
        if (scaling, kernel) not in self._distances:
            scaled = Scaler(scaling).fit(self._samples).transform(self._samples)
            scaled = scaled.sparse if isinstance(scaled, Centered) else scaled
            self._distances = {(scaling, kernel): kernel_distances(kernel, scaled, scaled)}
        return self._distances[scaling, kernel]


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """Groups of targets, (n_rows, n_targets), of the same samples, predicted together."""

    rows: Indices
    targets: FloatArray
    group: Indices  # (n_targets,), group of each target, from 0

    @classmethod
    def of(cls, targets: Sequence[tuple[Indices, FloatArray]]) -> list[_Task]:
        """Return the tasks of groups of targets, each with its rows."""
        groups: dict[bytes, tuple[Indices, list[FloatArray]]] = {}
        for unordered, group in targets:
            order = np.argsort(unordered, kind="stable")
            rows = unordered[order].astype(np.intp)
            groups.setdefault(rows.tobytes(), (rows, []))[1].append(group[order])
        return [
            cls(rows, np.hstack(parts), np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts]))
            for rows, parts in groups.values()
        ]

    def errors(self, coordinates: FloatArray, variances: FloatArray) -> list[float]:
        """Return each group's smallest mean squared error of all penalties, relative to its variance."""
        is_whole = np.array_equal(self.rows, np.arange(len(coordinates)))
        path = RidgePath(coordinates if is_whole else coordinates[self.rows], variances if is_whole else None)
        errors = np.array(
            [np.sum((self.targets - fit.left_out) ** 2, axis=0) for fit in path.fits(self.targets, RIDGES)]
        )
        spread = np.sum((self.targets - self.targets.mean(axis=0)) ** 2, axis=0)
        chosen = [self.group == number for number in range(int(self.group[-1]) + 1)]
        return [
            float(errors[:, part].sum(axis=1).min() / spread[part].sum()) if spread[part].any() else 1.0
            for part in chosen
        ]
