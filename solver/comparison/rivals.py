"""Ablations of `SemanticBilinear`: how much worse each one is shows what the part it lacks is worth."""

from __future__ import annotations

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
from solver.validation.parameters import COUNT, POSITIVE, SEED, Rule

_MAP = Rule(
    lambda v: isinstance(v, tuple) and len(v) == 2 and v[0] in KERNELS and POSITIVE.accepts(v[1]),
    f"a pair of one of {KERNELS} and a width > 0",
)


class SemanticIdentity(SemanticBilinear):
    """`SemanticBilinear` with M the identity: the inner product of the same posteriors."""

    @override
    def _choose_alpha_fraction(self, *_: object) -> None:
        return None


class KernelSemanticMatching(CrossModalEstimator):
    """`SemanticMatching` of kernel features: a feature map of `SemanticBilinear` for each modality.
    A map is a kernel and its width; a Laplacian one takes at most 256 features."""

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "x_map": _MAP,
        "z_map": _MAP,
        "C": POSITIVE,
        "z_C": POSITIVE,
        "n_landmarks": COUNT,
        "random_state": SEED,
    }
    _fitted_attribute: ClassVar[str] = "semantic_matching_"

    x_features_: FeatureMap
    z_features_: FeatureMap
    semantic_matching_: SemanticMatching

    def __init__(
        self,
        x_map: tuple[str, float] = ("rbf", 1.0),
        z_map: tuple[str, float] = ("rbf", 1.0),
        *,
        C: float = 15.0,
        z_C: float = 15.0,
        n_landmarks: int = 400,
        random_state: int = 0,
    ) -> None:
        self.x_map = x_map
        self.z_map = z_map
        self.C = C
        self.z_C = z_C
        self.n_landmarks = n_landmarks
        self.random_state = random_state

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
        return len(self.x_features_.scaler.mean_)

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        self._check_columns(X, "X")
        return self.semantic_matching_.project_x(_apply_map(X, "X", self.x_features_))

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        self._check_columns(Z, "Z")
        return self.semantic_matching_.project_z(_apply_map(Z, "Z", self.z_features_))

    def _features(self, samples: Samples, kind: tuple[str, float]) -> FeatureMap:
        if not FeatureMapConfig("none", *kind).suits(samples):
            raise InvalidInputError(f"{samples.shape[1]} features are too many for the kernel {kind[0]!r}")
        return FeatureMap.fit(samples, "none", *kind, self.n_landmarks, self.random_state)


def _apply_map(samples: npt.ArrayLike, name: str, features: FeatureMap) -> Samples:
    return features.transform(check_features(samples, name, len(features.scaler.mean_)))
