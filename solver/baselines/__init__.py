"""The methods the paper compares with, under the contract of `solver.base.CrossModalEstimator`.
Each file is one family of methods. They take features as they are: scaling and PCA are up to the caller."""

# isort: off
from solver.baselines._common import Bases as Bases, CentredBasis as CentredBasis
from solver.baselines.matching import SCM as SCM, SemanticMatching as SemanticMatching
from solver.baselines.metric_learning import CMML as CMML, DCA as DCA, ITML as ITML, LMNN as LMNN, RCA as RCA
from solver.baselines.multiview import GMLDA as GMLDA, GMMFA as GMMFA, MvDA as MvDA
from solver.baselines.subspace import CCA as CCA, PLS as PLS, WMCA as WMCA, MsAlg as MsAlg
