"""The methods the paper compares with, under the contract of `solver.base.CrossModalEstimator`.
Each file is one family of methods. They take features as they are: scaling and PCA are up to the caller."""

from solver.baselines._common import Bases, CentredBasis
from solver.baselines.matching import SCM, SemanticMatching
from solver.baselines.metric_learning import CMML, DCA, ITML, LMNN, RCA
from solver.baselines.multiview import GMLDA, GMMFA, MvDA
from solver.baselines.subspace import CCA, PLS, WMCA, MsAlg

__all__ = [
    "CCA",
    "CMML",
    "Bases",
    "CentredBasis",
    "DCA",
    "GMLDA",
    "GMMFA",
    "ITML",
    "LMNN",
    "MsAlg",
    "MvDA",
    "PLS",
    "RCA",
    "SCM",
    "SemanticMatching",
    "WMCA",
]
