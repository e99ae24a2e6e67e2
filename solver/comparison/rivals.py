"""Ablations of `SemanticBilinear`: how much worse each one is shows what the part it lacks is worth."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.baselines import SemanticMatching
from solver.linalg.matrices import FloatArray, Samples
from solver.scaling.feature_maps import KERNELS, FeatureMap, FeatureMapConfig, check_features
from solver.semantic.estimator import SemanticBilinear
from solver.supervision.conversion import AnyLabels
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, POSITIVE, SEED, Rule, parameter

_MAP = Rule(
    lambda v: isinstance(v, tuple) and len(v) == 2 and v[0] in KERNELS and POSITIVE.accepts(v[1]),
    f"a pair of one of {KERNELS} and a width > 0",
)


class SemanticIdentity(SemanticBilinear):
    """`SemanticBilinear` with M the identity: the inner product of the same posteriors."""

    @override
    def _choose_alpha_fraction(self, *_: object) -> None:
        return None


@dataclass(eq=False, repr=False)
class KernelSemanticMatching(CrossModalEstimator):
    """`SemanticMatching` of kernel features: a feature map of `SemanticBilinear` for each modality.
    A map is a kernel and its width; a Laplacian one takes at most 256 features."""

    x_map: tuple[str, float] = parameter(("rbf", 1.0), _MAP)
    z_map: tuple[str, float] = parameter(("rbf", 1.0), _MAP)
    _: KW_ONLY
    C: float = parameter(15.0, POSITIVE)
    z_C: float = parameter(15.0, POSITIVE)
    n_landmarks: int = parameter(400, COUNT)
    random_state: int = parameter(0, SEED)
    _fitted_attribute: ClassVar[str] = "semantic_matching_"

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Learn the feature maps of scaled samples, then the posteriors; the classes are as in
        `LowRankBilinear.fit`."""
        x, z, checked = self._check_inputs(X, Z, supervision)
        x, z = check_features(x, "X"), check_features(z, "Z")
        x_features, z_features = self._features(x, self.x_map), self._features(z, self.z_map)
        matching = SemanticMatching(self.C, z_C=self.z_C)
        matching.fit(x_features.transform(x), z_features.transform(z), checked)
        self.x_features_, self.z_features_, self.semantic_matching_ = x_features, z_features, matching
        return self

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return self.x_features_.n_features

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        features = self.x_features_ if side == "x" else self.z_features_
        array = check_features(samples, side.upper(), features.n_features)
        return self.semantic_matching_._project(features.transform(array), side)

    def _features(self, samples: Samples, kind: tuple[str, float]) -> FeatureMap:
        if not FeatureMapConfig("none", *kind).suits(samples):
            raise InvalidInputError(f"{samples.shape[1]} features are too many for the kernel {kind[0]!r}")
        return FeatureMap.fit(samples, "none", *kind, self.n_landmarks, self.random_state)
