"""Low-rank bilinear cross-modal similarity learning."""

from solver.baselines import CCA, GMLDA, GMMFA, PLS, SCM, MsAlg, SemanticMatching
from solver.bilinear import LowRankBilinear
from solver.checkpoint import Checkpoint
from solver.comparison import compare
from solver.convergence import Progress
from solver.cross_validation import LowRankBilinearCV
from solver.datasets import make_low_rank_pairs
from solver.metrics import (
    average_precision,
    mean_average_precision,
    precision_at_scope,
    precision_recall_curve,
)
from solver.multi_labels import MultiLabels
from solver.pair_list import SignedPairs
from solver.pipeline import Projector
from solver.posterior_projector import PosteriorProjector
from solver.preprocessing import FeatureScaler
from solver.problem import alpha_max
from solver.semantic import SemanticBilinear
from solver.supervision import Labels, PairedRows

__all__ = [
    "CCA",
    "Checkpoint",
    "FeatureScaler",
    "GMLDA",
    "GMMFA",
    "Labels",
    "LowRankBilinear",
    "LowRankBilinearCV",
    "MsAlg",
    "MultiLabels",
    "PLS",
    "PairedRows",
    "PosteriorProjector",
    "Progress",
    "Projector",
    "SCM",
    "SemanticMatching",
    "SemanticBilinear",
    "SignedPairs",
    "alpha_max",
    "average_precision",
    "compare",
    "make_low_rank_pairs",
    "mean_average_precision",
    "precision_at_scope",
    "precision_recall_curve",
]
