"""Relevant component analysis in a common space."""

from __future__ import annotations

import numpy as np

from solver.baselines._common_space import CommonSpace, WhitenedMetric
from solver.baselines._multiview import whitening
from solver.linalg.matrices import FloatArray


class RCA(WhitenedMetric):
    """Relevant component analysis: the space of `CCA`, whitened within classes.

    The metric of [1]_ is the inverse of the covariance within chunklets, groups of samples of which it is
    known that they are of one class,

        d(x, z) = (x - z)^T C^(-1) (x - z),    C = (1 / n) sum_c sum_{i in c} (x_i - m_c) (x_i - m_c)^T

    Here the chunklets are the classes, with the samples of both modalities, in the space of canonical
    correlations.

    Parameters
    ----------
    n_components, reg, pairs
        As in `CCA`.
    shrinkage : float, >= 0
        Ridge on C as a share of its mean eigenvalue; 0 is the method as published.
    metric : {"distance", "cosine", "inner"}
        How projections are compared; "distance" is the method as published.

    Attributes
    ----------
    cca_ : CCA

    References
    ----------
    .. [1] A. Bar-Hillel et al., "Learning a Mahalanobis Metric from Equivalence Constraints", JMLR 6, 2005.
    """

    def _learn(self, space: CommonSpace) -> FloatArray:
        _, counts = space.class_means()
        covariance = space.scatter_within(np.full(len(counts), 1.0 / counts.sum()))
        return whitening(covariance, self.shrinkage)
