"""The methods the paper compares with, under the contract of `solver.base.CrossModalEstimator`.
Each file is one method. They take features as they are: scaling and PCA are up to the caller."""

from solver.baselines._bases import Bases, CentredBasis
from solver.baselines.cca import CCA
from solver.baselines.cmml import CMML
from solver.baselines.dca import DCA
from solver.baselines.gmlda import GMLDA
from solver.baselines.gmmfa import GMMFA
from solver.baselines.itml import ITML
from solver.baselines.lmnn import LMNN
from solver.baselines.msalg import MsAlg
from solver.baselines.mvda import MvDA
from solver.baselines.pls import PLS
from solver.baselines.rca import RCA
from solver.baselines.scm import SCM
from solver.baselines.semantic_matching import SemanticMatching
from solver.baselines.wmca import WMCA

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
