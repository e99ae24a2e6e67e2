"""Generalized multiview linear discriminant analysis."""

from __future__ import annotations

from solver.baselines._multiview import MultiviewBaseline, View, class_anchors
from solver.linalg.matrices import FloatArray


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

    def __init__(
        self,
        n_components: int | None = None,
        *,
        coupling: float = 10.0,
        mu: float = 1.0,
        gamma: float = 1.0,
        reg: float = 0.1,
        eigenvalue_power: float = 0.0,
        metric: str = "cosine",
    ) -> None:
        self.n_components = n_components
        self.coupling = coupling
        self.mu = mu
        self.gamma = gamma
        self.reg = reg
        self.eigenvalue_power = eigenvalue_power
        self.metric = metric

    def _view(self, coordinates: FloatArray, indicators: FloatArray) -> View:
        anchors = class_anchors(coordinates, indicators)
        between = anchors.T @ anchors
        counted = coordinates * indicators.sum(axis=1)[:, None]
        return View(between, coordinates.T @ counted - between, anchors)
