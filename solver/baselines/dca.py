"""Discriminative component analysis in a common space."""

from __future__ import annotations

from solver.baselines._common_space import CommonSpace, WhitenedMetric
from solver.baselines._multiview import whitening
from solver.linalg.matrices import FloatArray


class DCA(WhitenedMetric):
    """Discriminative component analysis: what separates classes in the space of `CCA`, whitened within them.

    The metric ``A A^T`` of [1]_ maximises the variance between chunklets over that within them,

        max_A  |A^T C_b A| / |A^T C_w A|
        C_b ~ sum_{c, d} (m_c - m_d) (m_c - m_d)^T
        C_w = (1 / n_classes) sum_c (1 / n_c) sum_{i in c} (x_i - m_c) (x_i - m_c)^T

    by the algorithm of the paper: C_b is whitened in its range, and C_w in what that leaves. Here the
    chunklets are the classes, with the samples of both modalities, in the space of canonical correlations,
    and C_b takes all pairs of them.

    Parameters
    ----------
    n_components, reg, pairs
        As in `CCA`.
    shrinkage : float, >= 0
        Ridge on C_w, after C_b is whitened, as a share of its mean eigenvalue; 0 is the method as published.
    metric : {"distance", "cosine", "inner"}
        How projections are compared; "distance" is the method as published.

    Attributes
    ----------
    cca_ : CCA

    References
    ----------
    .. [1] S. C. H. Hoi et al., "Learning Distance Metrics with Contextual Constraints ...", CVPR 2006.
    """

    def _learn(self, space: CommonSpace) -> FloatArray:
        means, counts = space.class_means()
        centred = means - means.mean(axis=0)
        # The sum over pairs is a multiple of this one, and its factor cancels below. Rounding may leave
        # more directions than the classes have.
        whitened = whitening(centred.T @ centred, 0.0)[:, -(len(means) - 1) :]
        within = whitened.T @ space.scatter_within(1.0 / (len(means) * counts)) @ whitened
        return whitened @ whitening(within, self.shrinkage)
