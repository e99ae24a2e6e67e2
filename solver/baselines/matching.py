"""Semantic matching: both modalities as class posteriors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
from solver.baselines._common import PAIRS, Bases, BasisEstimator
from solver.baselines.subspace import CCA
from solver.linalg import FloatArray, Samples, project_affinely
from solver.logistic import Regression, class_targets
from solver.supervision.annotations import AnyLabels, check_sizes
from solver.supervision.kinds import AnySupervision
from solver.validation import COUNT, NOT_NEGATIVE, POSITIVE, optional, parameter


@dataclass(eq=False, repr=False)
class SemanticMatching(CrossModalEstimator):
    """Class posteriors of either modality, matched by their inner product.

    A multinomial logistic regression in each modality separately [1]_,

        p(c | x) = exp(w_c^T x + b_c) / sum_k exp(w_k^T x + b_k),
        min_{w, b}  1/2 sum_c |w_c|^2 - C sum_i log p(c_i | x_i),

    and likewise for z. The similarity ``sum_c p(c|x) p(c|z)`` is the probability that both samples are of one
    class, if the posteriors are true and the samples independent.

    Parameters
    ----------
    C : float, > 0
        Inverse strength of the L2 penalty.
    z_C : float, > 0, or None
        That of the second modality; the same as `C` when None. Two modalities rarely need the same strength.
    tol : float, > 0
        The optimiser stops where no entry of the gradient exceeds it.
    max_iter : int, >= 1
        Iteration limit of the optimiser; reaching it gives scikit-learn's `ConvergenceWarning`.

    Attributes
    ----------
    x_classifier_ : LinearClassifier
        Scores and posteriors of the first modality.
    z_classifier_ : LinearClassifier
        Those of the second modality.

    Notes
    -----
    Projections are posteriors over the classes of both modalities together; a class that one of them
    never shows has posterior 0 there. Under `MultiLabels` each label has a logistic regression of its
    own, and the posteriors do not sum to one; a label that all samples of a modality carry, or none
    does, has posterior 1 or 0. The classifiers are `sklearn.linear_model.LogisticRegression`. The paper
    compares posteriors by several measures; the inner product is the one that an index can search.

    References
    ----------
    .. [1] N. Rasiwasia et al., "A New Approach to Cross-Modal Multimedia Retrieval", ACM Multimedia 2010.
    """

    C: float = parameter(1.0, POSITIVE)
    _: KW_ONLY
    z_C: float | None = parameter(None, optional(POSITIVE))
    tol: float = parameter(1e-4, POSITIVE)
    max_iter: int = parameter(5000, COUNT)
    _fitted_attribute: ClassVar[str] = "z_classifier_"

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Learn the posteriors of classes; parameters and errors as of `CrossModalEstimator.fit`."""
        x, z, checked = self._check_inputs(X, Z, supervision)
        x, z = x.astype(np.float64, copy=False), z.astype(np.float64, copy=False)
        x_targets, z_targets = class_targets(checked, type(self).__name__)
        check_sizes(x, z, checked)
        self.x_classifier_, self.z_classifier_ = (
            Regression(targets.is_exclusive, np.float64, self.tol, self.max_iter).fit(samples, targets, C)
            for samples, targets, C in (
                (x, x_targets, self.C),
                (z, z_targets, self.C if self.z_C is None else self.z_C),
            )
        )
        return self

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return len(self.x_classifier_.coefficients)

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        classifier = self.x_classifier_ if side == "x" else self.z_classifier_
        factors, intercepts = classifier.coefficients, classifier.intercepts
        return classifier.to_posteriors(project_affinely(samples, factors, intercepts, side.upper()))


@dataclass(eq=False, repr=False, kw_only=True)
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

    reg: float = parameter(0.1, NOT_NEGATIVE)
    correlation_power: float = parameter(0.0, NOT_NEGATIVE)
    pairs: str = parameter("auto", PAIRS)
    C: float = parameter(1.0, POSITIVE)
    z_C: float | None = parameter(None, optional(POSITIVE))
    tol: float = parameter(1e-4, POSITIVE)
    max_iter: int = parameter(5000, COUNT)
    _fitted_attribute: ClassVar[str] = "semantic_matching_"
    _needs_classes: ClassVar[bool] = True

    @override
    def _fit(self, X: Samples, Z: Samples, supervision: AnySupervision, bases: Bases | None) -> None:
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
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        return self.semantic_matching_._project(self.cca_._project(samples, side), side)
