"""Similarity learning from a click-through graph (M-PLS), for one type of features."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from solver.baselines._linear import METRIC, LinearBaseline
from solver.linalg.matrices import FloatArray, leading_triplets
from solver.supervision.conversion import AnyLabels
from solver.supervision.sizes import check_sizes
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, Rule, optional


class MsAlg(LinearBaseline):
    """Linear maps that make similar pairs similar in sum, under orthonormality.

    Solves the problem of [1]_, [2]_ for one type of features in each modality,

        max_{L_x, L_z}  (1 / |S|) sum_{(i, j) in S} x_i^T L_x L_z^T z_j
        subject to      L_x^T L_x = L_z^T L_z = I

    whose optimum is the leading singular vectors of ``sum_S x_i z_j^T``.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Columns of the maps at most; all when None.
    metric : {"inner", "cosine"}
        How projections are compared. The paper's similarity is the inner product.

    Attributes
    ----------
    singular_values_ : ndarray of shape (rank,)
        Share of each pair of columns in the objective, in descending order.

    Notes
    -----
    Choices where the paper leaves them, or is about another kind of data. The edges of the graph are the
    similar pairs, each of weight 1 (there: the number of clicks): pairs of one class under `Labels`,
    of which there are far more than the rows that `PLS` pairs. Dissimilar pairs are not used. Features
    are not centred, which is the other difference from PLS: where a common mean dominates the features, it
    dominates the first columns, too. The paper's combination of several types of features is left out, since
    a modality has one.

    References
    ----------
    .. [1] W. Wu et al., "Learning Similarity Function between Objects ...", report MSR-TR-2010-86, 2010.
    .. [2] W. Wu et al., "Learning Query and Document Similarities ...", WSDM 2013.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "metric": METRIC,
    }

    singular_values_: FloatArray

    def __init__(self, n_components: int | None = None, *, metric: str = "inner") -> None:
        self.n_components = n_components
        self.metric = metric

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Find the maps.

        Parameters
        ----------
        X, Z : array-like, sparse array or data frame of shape (n_samples, n_features)
            Both modalities.
        supervision : Labels, MultiLabels, PairedRows, SignedPairs, array-like, tuple or None
            Which pairs are similar, as in `LowRankBilinear.fit`.

        Raises
        ------
        InvalidParameterError, InvalidInputError, SupervisionError
            If a parameter is out of range, an array unusable, the supervision without pairs or of other
            samples, or the similar pairs sum to zero.
        """
        x, z, checked = self._check_inputs(X, Z, supervision)
        check_sizes(x, z, checked)
        cross = checked.sum_over_similar(x, z) / checked.n_similar
        triplets = leading_triplets(cross, self.n_components or min(cross.shape))
        if triplets.rank == 0:
            raise InvalidInputError("X and Z sum to zero over the similar pairs: there is nothing to learn")
        self.singular_values_ = triplets.s
        self._keep((triplets.U, np.zeros(triplets.rank)), (triplets.V, np.zeros(triplets.rank)))
        return self
