"""Discriminant analysis of both modalities together: generalized multiview analysis and its relatives."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.metrics import pairwise_distances_chunked
from typing_extensions import override

from solver.baselines._common import (
    BasisBaseline,
    CentredBasis,
    class_indicators,
    smallest_allowed,
    whitening,
)
from solver.linalg import FloatArray, Sides
from solver.supervision.kinds import AnySupervision
from solver.validation import COUNT, NOT_NEGATIVE, POSITIVE, InvalidInputError, parameter


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One modality's part of the problem, in the coordinates of its centred basis."""

    spread: FloatArray  # A, (rank, rank), to be maximised: scatter between classes, or penalty graph
    compactness: FloatArray  # B, (rank, rank), to be minimised: scatter within, or intrinsic graph
    anchors: FloatArray  # (n_classes, rank), row c of one modality goes with row c of the other


@dataclass(eq=False, repr=False, kw_only=True)
class MultiviewBaseline(BasisBaseline):
    """Base of the methods that solve the eigenproblem of generalized multiview analysis."""

    coupling: float = parameter(10.0, NOT_NEGATIVE)
    mu: float = parameter(1.0, POSITIVE)
    gamma: float = parameter(1.0, POSITIVE)
    reg: float = parameter(0.1, NOT_NEGATIVE)
    eigenvalue_power: float = parameter(0.0, NOT_NEGATIVE)

    _needs_classes: ClassVar[bool] = True

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        indicators = class_indicators(supervision, type(self).__name__)
        x_view, z_view = (
            self._view(basis.coordinates, side) for basis, side in zip((x, z), indicators, strict=True)
        )
        self.eigenvalues_, left, right = self._solve(x_view, z_view)
        # Those below zero are directions in which the modalities contradict each other.
        weights = np.maximum(self.eigenvalues_, 0.0) ** self.eigenvalue_power
        return left * weights, right * weights

    @abstractmethod
    def _view(self, coordinates: FloatArray, indicators: FloatArray) -> View:
        """Describe one modality by its centred coordinates and the classes of its samples."""

    def _solve(self, x: View, z: View) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the leading eigenvalues with the directions of either modality."""
        x, z = _normalise(x), _normalise(z)
        x_whitening = whitening(x.compactness, self.reg)
        z_whitening = whitening(z.compactness, self.reg) / np.sqrt(self.gamma)
        block = self.coupling * x_whitening.T @ (x.anchors.T @ z.anchors) @ z_whitening
        pencil = np.block(
            [
                [x_whitening.T @ x.spread @ x_whitening, block],
                [block.T, self.mu * z_whitening.T @ z.spread @ z_whitening],
            ]
        )
        size = len(pencil)
        count = min(self.n_components or len(x.anchors) - 1, size)
        values, vectors = scipy.linalg.eigh(pencil, subset_by_index=[size - count, size - 1])
        left, right = np.split(vectors[:, ::-1], [x_whitening.shape[1]])
        return values[::-1], x_whitening @ left, z_whitening @ right


def class_anchors(coordinates: FloatArray, indicators: FloatArray) -> FloatArray:
    """Return the (n_classes, rank) means of the classes, times the root of their sizes."""
    counts = indicators.sum(axis=0)
    anchors: FloatArray = (indicators.T @ coordinates) / np.sqrt(np.maximum(counts, 1.0))[:, None]
    return anchors


def _normalise(view: View) -> View:
    """Scale both traces and the norm of the anchors to 1."""
    spread, compactness = float(np.trace(view.spread)), float(np.trace(view.compactness))
    rounding = len(view.spread) * np.finfo(np.float64).eps * (spread + compactness)
    if min(spread, compactness) <= rounding:
        variation = "differ" if spread <= rounding else "vary within themselves"
        raise InvalidInputError(
            f"the classes of a modality do not {variation}: there is nothing to learn from"
        )
    anchors = view.anchors / np.linalg.norm(view.anchors)
    return View(view.spread / spread, view.compactness / compactness, anchors)


class GMLDA(MultiviewBaseline):
    """Generalized multiview analysis with the scatters of linear discriminant analysis.

    Solves the generalised eigenproblem of [1]_,

        [ A_x            a C_xz ] [u]            [ B_x           ] [u]
        [ a C_xz^T       mu A_z ] [v]  =  lambda [      gamma B_z] [v]

    where A is the scatter between classes, B the scatter within classes, and
    ``C_xz = sum_c sqrt(n_xc n_zc) m_xc m_zc^T`` ties the class means of the two modalities together.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Number of directions at most; the number of classes less one when None.
    coupling : float, >= 0
        Weight of the cross-view term (alpha in the paper). The term is divided by the norms of both
        modalities' anchors, so that 1 makes it as large as the spreads. With 0 the modalities know nothing
        of each other.
    mu : float, > 0
        Weight of the second modality's spread, as a share of tr(A_x) / tr(A_z).
    gamma : float, > 0
        Weight of the second modality's compactness, as a share of tr(B_x) / tr(B_z), the paper's choice.
    reg : float, >= 0
        Ridge on B of either modality as a share of its mean eigenvalue. With 0, directions along which B
        vanishes are left out.
    eigenvalue_power : float, >= 0
        Each direction is multiplied by its eigenvalue to this power; 0 is the method itself. Eigenvalues
        below zero count as zero.
    metric : {"cosine", "inner"}

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (rank,)
        Of the chosen directions, in descending order.

    Notes
    -----
    Choices where the paper leaves them: the cross-view term takes class means, which need no pairs, each
    weighted by the root of its class sizes, so that two equal modalities give linear discriminant analysis;
    traces and norms make all weights free of the features' scale. Under `MultiLabels` a sample counts in
    each of its classes.

    References
    ----------
    .. [1] A. Sharma et al., "Generalized Multiview Analysis: A Discriminative Latent Space", CVPR 2012.
    """

    def _view(self, coordinates: FloatArray, indicators: FloatArray) -> View:
        anchors = class_anchors(coordinates, indicators)
        between = anchors.T @ anchors
        counted = coordinates * indicators.sum(axis=1)[:, None]
        return View(between, coordinates.T @ counted - between, anchors)


@dataclass(eq=False, repr=False, kw_only=True)
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
        As in `GMLDA`, and so is `eigenvalues_`.
    n_intrinsic : int, >= 1
        Neighbours of a sample in the intrinsic graph (k_1); all where there are fewer.
    n_penalty : int, >= 1
        Neighbours of a sample in the penalty graph (k_2); all where there are fewer.

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

    n_intrinsic: int = parameter(50, COUNT)
    n_penalty: int = parameter(20, COUNT)

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
    columns, is_allowed = smallest_allowed(distances, allowed, count)
    edges = np.ones(int(is_allowed.sum())), (np.nonzero(is_allowed)[0], columns[is_allowed])
    return scipy.sparse.csr_array(edges, shape=distances.shape)


def _laplacian_scatter(coordinates: FloatArray, graph: Any) -> FloatArray:
    """Return ``X^T (D - W) X``: half the sum of ``(x_i - x_j)(x_i - x_j)^T`` over edges in both ways."""
    degrees = graph.sum(axis=1)
    scatter: FloatArray = coordinates.T @ (coordinates * degrees[:, None] - graph @ coordinates)
    return (scatter + scatter.T) / 2.0


@dataclass(eq=False, repr=False, kw_only=True)
class MvDA(BasisBaseline):
    """Linear discriminant analysis of both modalities in one common space.

    Projects both modalities so that samples of one class lie together, whichever modality they are of, and
    the classes apart [1]_, [2]_:

        max_{U, V}  tr(S_B) / tr(S_W)
        S_W = sum_c sum_{i in c} (y_i - m_c) (y_i - m_c)^T,    S_B = sum_c n_c (m_c - m) (m_c - m)^T

    where ``y`` are the projections ``U^T x`` and ``V^T z`` of all samples together, ``m_c`` is their mean and
    ``n_c`` their number in class c, and m the mean of all. As in the papers the ratio of the traces is
    replaced by the trace of the ratio, which the generalised eigenproblem ``S_B w = lambda S_W w`` of the
    stacked directions ``w = (u, v)`` solves.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Number of directions at most; None for all, of which there are fewer than classes.
    reg : float, >= 0
        Ridge on S_W as a share of its mean eigenvalue. With 0, directions along which it vanishes are left
        out.
    eigenvalue_power, metric
        As in `GMLDA`, and so is `eigenvalues_`.

    Notes
    -----
    Choices where the papers leave them: the features of either modality are centred, and divided by their
    root mean square in the principal axes, so that one ridge suits both. The view-consistent variant of
    [2]_ needs as many samples in both modalities and is left out. Under `MultiLabels` a sample counts in each
    of its classes.

    References
    ----------
    .. [1] M. Kan, S. Shan, H. Zhang, S. Lao, X. Chen, "Multi-view Discriminant Analysis", ECCV 2012.
    .. [2] M. Kan et al., "Multi-View Discriminant Analysis", IEEE TPAMI 38, 2016.
    """

    reg: float = parameter(0.1, NOT_NEGATIVE)
    eigenvalue_power: float = parameter(0.0, NOT_NEGATIVE)
    _needs_classes: ClassVar[bool] = True

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        indicators = class_indicators(supervision, type(self).__name__)
        x_scale, z_scale = (np.sqrt(np.mean(basis.coordinates**2)) for basis in (x, z))
        anchors, within = _scatters((x.coordinates / x_scale, z.coordinates / z_scale), indicators)
        values, directions = _leading_directions(anchors, within, self.reg)
        self.eigenvalues_ = values[: self.n_components]
        weighted = directions[:, : self.n_components] * self.eigenvalues_**self.eigenvalue_power
        left, right = np.split(weighted, [len(x.lengths)])
        return left / x_scale, right / z_scale


def _scatters(
    coordinates: tuple[FloatArray, FloatArray], indicators: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return what the scatter between classes is the Gram matrix of, and the scatter within them.
    Both are of stacked samples: (x, 0) of the first modality and (0, z) of the second."""
    counts = np.maximum(sum(side.sum(axis=0) for side in indicators), 1.0)
    sums = np.hstack([side.T @ samples for samples, side in zip(coordinates, indicators, strict=True)])
    means = sums / counts[:, None]
    blocks = (
        samples.T @ (samples * side.sum(axis=1)[:, None])
        for samples, side in zip(coordinates, indicators, strict=True)
    )
    within = scipy.linalg.block_diag(*blocks) - sums.T @ means
    anchors = np.sqrt(counts)[:, None] * (means - sums.sum(axis=0) / counts.sum())
    return anchors, (within + within.T) / 2.0


def _leading_directions(anchors: FloatArray, within: FloatArray, reg: float) -> tuple[FloatArray, FloatArray]:
    """Return positive eigenvalues and directions w with ``anchors^T anchors w = lambda (within + ridge) w``.
    As many as the rank of the anchors, from a problem of their number's size."""
    size = len(within)
    ridge = reg * float(np.trace(within)) / size
    if ridge > 0:
        factor = scipy.linalg.cho_factor(within + ridge * np.eye(size))
        solved = scipy.linalg.cho_solve(factor, anchors.T)
    else:
        white = whitening(within, 0.0)
        solved = white @ (white.T @ anchors.T)
    values, vectors = scipy.linalg.eigh(anchors @ solved)
    values, vectors = values[::-1], vectors[:, ::-1]
    rounding = len(values) * np.finfo(np.float64).eps * max(float(values[0]), 1.0)
    is_positive = values > rounding
    if not is_positive.any():
        raise InvalidInputError("the classes do not differ: there is nothing to learn from")
    return values[is_positive], solved @ (vectors[:, is_positive] / np.sqrt(values[is_positive]))
