"""Semantic correlation matching: CCA, then class posteriors of the projections."""

from __future__ import annotations

from typing import ClassVar

import numpy.typing as npt
from typing_extensions import override

from solver.baselines._bases import Bases
from solver.baselines._basis_fit import BasisEstimator
from solver.baselines._pairs import PAIRS
from solver.baselines.cca import CCA
from solver.baselines.semantic_matching import SemanticMatching
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.parameters import COUNT, NOT_NEGATIVE, POSITIVE, Rule, optional


class SCM(BasisEstimator):
    """Semantic matching in the space of canonical correlations.

    `CCA` gives both modalities maximally correlated coordinates, and `SemanticMatching` learns class
    posteriors of them [1]_: the similarity is ``sum_c p(c | U^T x) p(c | V^T z)``.

    Parameters
    ----------
    n_components, reg, pairs
        As in `CCA`; without the ridge it is the method as published.
    correlation_power : float, >= 0
        Canonical variates are weighted by their correlation to this power, as in `CCA`, so that the penalty
        of the logistic regressions falls on weakly correlated directions.
    C, z_C, tol, max_iter
        As in `SemanticMatching`.

    Attributes
    ----------
    cca_ : CCA
        The first stage, scored by inner product.
    semantic_matching_ : SemanticMatching
        The second stage.

    References
    ----------
    .. [1] N. Rasiwasia et al., "A New Approach to Cross-Modal Multimedia Retrieval", ACM Multimedia 2010.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "reg": NOT_NEGATIVE,
        "correlation_power": NOT_NEGATIVE,
        "pairs": PAIRS,
        "C": POSITIVE,
        "z_C": optional(POSITIVE),
        "tol": POSITIVE,
        "max_iter": COUNT,
    }
    _fitted_attribute: ClassVar[str] = "semantic_matching_"
    _needs_classes: ClassVar[bool] = True

    cca_: CCA
    semantic_matching_: SemanticMatching

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        correlation_power: float = 0.0,
        pairs: str = "auto",
        C: float = 1.0,
        z_C: float | None = None,
        tol: float = 1e-4,
        max_iter: int = 5000,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.correlation_power = correlation_power
        self.pairs = pairs
        self.C = C
        self.z_C = z_C
        self.tol = tol
        self.max_iter = max_iter

    @override
    def _fit(
        self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnySupervision, bases: Bases | None
    ) -> None:
        cca = CCA(
            self.n_components,
            reg=self.reg,
            correlation_power=self.correlation_power,
            metric="inner",
            pairs=self.pairs,
        ).fit(X, Z, supervision, bases=bases)
        semantic_matching = SemanticMatching(self.C, z_C=self.z_C, tol=self.tol, max_iter=self.max_iter)
        semantic_matching.fit(cca.project_x(X), cca.project_z(Z), supervision)
        self.cca_, self.semantic_matching_ = cca, semantic_matching

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return self.cca_.n_features_in_

    @override
    def project_x(self, X: npt.ArrayLike) -> FloatArray:
        self._check_columns(X, "X")
        return self.semantic_matching_.project_x(self.cca_.project_x(X))

    @override
    def project_z(self, Z: npt.ArrayLike) -> FloatArray:
        self._check_columns(Z, "Z")
        return self.semantic_matching_.project_z(self.cca_.project_z(Z))
