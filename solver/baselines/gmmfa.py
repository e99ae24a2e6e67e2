"""Generalized multiview marginal Fisher analysis."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.metrics import pairwise_distances_chunked

from solver.baselines._multiview import MultiviewBaseline, View, class_anchors
from solver.linalg.matrices import FloatArray
from solver.validation.parameters import COUNT, Rule


class GMMFA(MultiviewBaseline):
    """Generalized multiview analysis with the graphs of marginal Fisher analysis.

    Solves the generalised eigenproblem of [1]_,

        [ A_x            a C_xz ] [u]            [ B_x           ] [u]
        [ a C_xz^T       mu A_z ] [v]  =  lambda [      gamma B_z] [v]

    where ``B = X^T L X`` with the Laplacian L of the intrinsic graph, which joins each sample with its
    nearest ones that share a class, and ``A = X^T L' X`` with that of the penalty graph, which joins it with
    its nearest ones that share none [2]_. ``C_xz = sum_c sqrt(n_xc n_zc) m_xc m_zc^T`` ties the class means
    of the two modalities together.

    Parameters
    ----------
    n_components, coupling, mu, gamma, reg, eigenvalue_power, metric
        As in `GMLDA`.
    n_intrinsic : int, >= 1
        Neighbours of a sample in the intrinsic graph (k_1); all where there are fewer.
    n_penalty : int, >= 1
        Neighbours of a sample in the penalty graph (k_2); all where there are fewer.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (rank,)
        Of the chosen directions, in descending order.

    Notes
    -----
    Choices that the papers leave open: neighbours are taken sample by sample (in [2]_ those of the penalty
    graph class by class), in Euclidean distance; an edge has weight 1, whether one end asked for it or
    both; the cross-view term takes class means, which need no pairs, each weighted by the root of its
    class sizes; dividing by traces and norms makes all weights independent of the features' scale.

    References
    ----------
    .. [1] A. Sharma et al., "Generalized Multiview Analysis: A Discriminative Latent Space", CVPR 2012.
    .. [2] S. Yan et al., "Graph Embedding and Extensions", IEEE TPAMI 29, 2007.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        **MultiviewBaseline._parameter_rules,
        "n_intrinsic": COUNT,
        "n_penalty": COUNT,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        coupling: float = 10.0,
        mu: float = 1.0,
        gamma: float = 1.0,
        n_intrinsic: int = 50,
        n_penalty: int = 20,
        reg: float = 0.1,
        eigenvalue_power: float = 0.0,
        metric: str = "cosine",
    ) -> None:
        self.n_components = n_components
        self.coupling = coupling
        self.mu = mu
        self.gamma = gamma
        self.n_intrinsic = n_intrinsic
        self.n_penalty = n_penalty
        self.reg = reg
        self.eigenvalue_power = eigenvalue_power
        self.metric = metric

    def _view(self, coordinates: FloatArray, indicators: FloatArray) -> View:
        intrinsic, penalty = _graphs(coordinates, indicators, self.n_intrinsic, self.n_penalty)
        return View(
            _laplacian_scatter(coordinates, penalty),
            _laplacian_scatter(coordinates, intrinsic),
            class_anchors(coordinates, indicators),
        )


def _graphs(coordinates: FloatArray, indicators: FloatArray, n_same: int, n_other: int) -> tuple[Any, Any]:
    """Return the symmetric (n_samples, n_samples) adjacencies among the same and the other classes."""

    def nearest(distances: FloatArray, start: int) -> tuple[Any, Any]:
        rows = np.arange(start, start + len(distances))
        share = indicators[rows] @ indicators.T > 0
        is_self = rows[:, None] == np.arange(len(coordinates))
        return _nearest(distances, share & ~is_self, n_same), _nearest(distances, ~share & ~is_self, n_other)

    # The results of `reduce_func` come block by block: the table of all distances is never in memory.
    parts = list(pairwise_distances_chunked(coordinates, reduce_func=nearest))
    same, other = (scipy.sparse.vstack(blocks, format="csr") for blocks in zip(*parts, strict=True))
    return same.maximum(same.T), other.maximum(other.T)


def _nearest(distances: FloatArray, allowed: Any, count: int) -> Any:
    """Return a sparse array with 1 at the `count` smallest allowed distances of each row."""
    masked = np.where(allowed, distances, np.inf)
    count = min(count, masked.shape[1])
    columns = np.argpartition(masked, count - 1, axis=1)[:, :count]
    rows = np.repeat(np.arange(len(masked)), columns.shape[1])
    reached = np.isfinite(masked[rows, columns.ravel()])
    edges = np.ones(int(reached.sum())), (rows[reached], columns.ravel()[reached])
    return scipy.sparse.csr_array(edges, shape=masked.shape)


def _laplacian_scatter(coordinates: FloatArray, graph: Any) -> FloatArray:
    """Return ``X^T (D - W) X``: half the sum of ``(x_i - x_j)(x_i - x_j)^T`` over edges in both ways."""
    degrees = graph.sum(axis=1)
    scatter: FloatArray = coordinates.T @ (coordinates * degrees[:, None] - graph @ coordinates)
    return (scatter + scatter.T) / 2.0
