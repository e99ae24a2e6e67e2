"""Metric learning as a second step: a common space by CCA, then a metric in it.
The metrics are written here, because metric-learn 0.7.0 does not work with scikit-learn 1.8 or newer (it
passes `force_all_finite`, which is gone) and its pairs are drawn within one set of samples."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.baselines._bases import Bases
from solver.baselines._basis_fit import BasisEstimator
from solver.baselines._distance import DISTANCE_METRIC, DistanceBaseline
from solver.baselines._pairs import PAIRS, class_indicators
from solver.baselines.cca import CCA
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, NOT_NEGATIVE, Rule, optional


@dataclass(frozen=True, slots=True, eq=False)
class CommonSpace:
    """The samples, (n_samples, n_dimensions), that a metric is learned from; 1 where one is of a class."""

    x: FloatArray
    z: FloatArray
    x_indicators: FloatArray
    z_indicators: FloatArray

    def map(self, directions: FloatArray) -> CommonSpace:
        """Return the samples along directions, the columns of an (n_dimensions, n_directions) array."""
        return replace(self, x=self.x @ directions, z=self.z @ directions)

    def class_means(self) -> tuple[FloatArray, FloatArray]:
        """Return the (n_classes, n_dimensions) means of both modalities together, and the class sizes.
        Classes without a sample are left out."""
        samples, indicators = self._together()
        counts = indicators.sum(axis=0)
        means: FloatArray = indicators.T @ samples / counts[:, None]
        return means, counts

    def scatter_within(self, class_weights: FloatArray) -> FloatArray:
        """Return ``sum_c w_c sum_{i in c} (x_i - m_c)(x_i - m_c)^T`` of both modalities together.
        InvalidInputError if it vanishes up to rounding."""
        samples, indicators = self._together()
        means, _ = self.class_means()
        scatter = np.zeros((samples.shape[1],) * 2)
        for mean, members, weight in zip(means, indicators.T > 0, class_weights, strict=True):
            centred = samples[members] - mean
            scatter += weight * centred.T @ centred
        spread = class_weights @ (indicators.T > 0) @ np.sum(samples**2, axis=1)
        if np.trace(scatter) <= len(samples) * np.finfo(np.float64).eps * spread:
            raise InvalidInputError(
                "in the common space no class varies within itself: there is nothing to learn from"
            )
        return scatter

    def _together(self) -> tuple[FloatArray, FloatArray]:
        indicators = np.vstack([self.x_indicators, self.z_indicators])
        return np.vstack([self.x, self.z]), indicators[:, indicators.any(axis=0)]


class CommonSpaceMetric(BasisEstimator, DistanceBaseline):
    """Base of the metrics that are learned in the space of canonical correlations.
    The projections of the first step, `cca_`, are compared by the learned metric."""

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "reg": NOT_NEGATIVE,
        "pairs": PAIRS,
        "metric": DISTANCE_METRIC,
    }
    _needs_classes: ClassVar[bool] = True

    n_components: int | None
    reg: float
    pairs: str
    cca_: CCA

    @override
    def _fit(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnySupervision, bases: Bases | None
    ) -> None:
        indicators = class_indicators(supervision, type(self).__name__)
        cca = CCA(self.n_components, reg=self.reg, metric="inner", pairs=self.pairs)
        cca.fit(X, Z, supervision, bases=bases)
        directions = self._learn(CommonSpace(cca.project_x(X), cca.project_z(Z), *indicators))
        if not directions.size:
            raise InvalidInputError(
                "the classes coincide in the common space: there is nothing to learn from"
            )
        self.cca_ = cca
        self._keep(
            (cca.x_factors_ @ directions, cca.x_intercept_ @ directions),
            (cca.z_factors_ @ directions, cca.z_intercept_ @ directions),
        )

    @abstractmethod
    def _learn(self, space: CommonSpace) -> FloatArray:
        """Return L, one column a direction, of the metric ``(x - z)^T L L^T (x - z)``."""


class WhitenedMetric(CommonSpaceMetric):
    """Base of the metrics that whiten the scatter within classes.
    `shrinkage` is a ridge on it, as a share of its mean eigenvalue; the rest is as in `CCA`."""

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        **CommonSpaceMetric._parameter_rules,
        "shrinkage": NOT_NEGATIVE,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        shrinkage: float = 0.0,
        pairs: str = "auto",
        metric: str = "distance",
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.shrinkage = shrinkage
        self.pairs = pairs
        self.metric = metric
