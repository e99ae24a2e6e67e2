"""The methods the paper compares with, under the contract of `solver.base.CrossModalEstimator`.

Each file is one method. They take features as they come: scaling and PCA are the caller's.
"""

from solver.baselines._bases import BasisMemo
from solver.baselines.cca import CCA
from solver.baselines.gmlda import GMLDA
from solver.baselines.gmmfa import GMMFA
from solver.baselines.msalg import MsAlg
from solver.baselines.pls import PLS
from solver.baselines.scm import SCM
from solver.baselines.semantic_matching import SemanticMatching

__all__ = ["CCA", "BasisMemo", "GMLDA", "GMMFA", "MsAlg", "PLS", "SCM", "SemanticMatching"]
