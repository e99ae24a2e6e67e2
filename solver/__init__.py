"""Low-rank bilinear cross-modal similarity learning.

What is exported here is public, and so are `solver.comparison`, `solver.datasets` and `solver.benchmark`; the
service uses nothing else.
"""

from solver.artifacts import load_projector, save_projector
from solver.baselines import CCA, GMLDA, GMMFA, PLS, SCM, MsAlg, SemanticMatching
from solver.bilinear.cross_validation import LowRankBilinearCV
from solver.bilinear.estimator import LowRankBilinear
from solver.bilinear.problem import alpha_max
from solver.bilinear.selection import (
    DEFAULT_FRACTIONS,
    DEFAULT_SCALINGS,
    Candidate,
    CandidateProgress,
    fit_projector,
    select_on,
)
from solver.comparison import compare
from solver.datasets import make_low_rank_pairs
from solver.errors import (
    ArtifactError,
    ConvergenceWarning,
    DatasetError,
    InvalidInputError,
    InvalidParameterError,
    NotFittedError,
    NumericalError,
    OutOfRangeError,
    SolverError,
    SupervisionError,
)
from solver.evaluation.metrics import (
    DirectionalMap,
    average_precision,
    bidirectional_map,
    chance_average_precision,
    mean_average_precision,
    precision_at_scope,
    precision_recall_curve,
    score_blocks,
)
from solver.evaluation.ranking import BoolArray, can_be_ranked, rank_gallery
from solver.evaluation.splits import MIN_CLASS_SIZE, LabelledPair, class_counts, hold_out_by_class
from solver.linalg.centered import is_finite
from solver.linalg.matrices import FloatArray, is_sparse
from solver.linalg.row_space import can_be_compact, compact
from solver.optimisation.checkpoint import Checkpoint
from solver.progress import IterationProgress, Progress, StepProgress
from solver.projector import AffineProjector, Projector, project_what_can_be_ranked
from solver.scaling import SCALINGS, FeatureScaler
from solver.semantic.estimator import SemanticBilinear
from solver.semantic.projector import PosteriorProjector
from solver.supervision.labels import Labels
from solver.supervision.multi_labels import MultiLabels
from solver.supervision.paired_rows import PairedRows
from solver.supervision.signed_pairs import SignedPairs

__all__ = [
    # Estimators
    "LowRankBilinear",
    "LowRankBilinearCV",
    "SemanticBilinear",
    "CCA",
    "GMLDA",
    "GMMFA",
    "PLS",
    "SCM",
    "MsAlg",
    "SemanticMatching",
    # Supervision
    "Labels",
    "MultiLabels",
    "PairedRows",
    "SignedPairs",
    # Penalty weight and scaling, chosen on held-out samples
    "alpha_max",
    "SCALINGS",
    "FeatureScaler",
    "Candidate",
    "DEFAULT_FRACTIONS",
    "DEFAULT_SCALINGS",
    "fit_projector",
    "select_on",
    "LabelledPair",
    "MIN_CLASS_SIZE",
    "class_counts",
    "hold_out_by_class",
    # Progress of a fit
    "Progress",
    "IterationProgress",
    "StepProgress",
    "CandidateProgress",
    "Checkpoint",
    # Projection, and its file
    "AffineProjector",
    "Projector",
    "project_what_can_be_ranked",
    "PosteriorProjector",
    "load_projector",
    "save_projector",
    # Measures
    "average_precision",
    "bidirectional_map",
    "DirectionalMap",
    "chance_average_precision",
    "mean_average_precision",
    "precision_at_scope",
    "precision_recall_curve",
    "score_blocks",
    "BoolArray",
    "can_be_ranked",
    "rank_gallery",
    # Samples
    "FloatArray",
    "is_sparse",
    "is_finite",
    "can_be_compact",
    "compact",
    "make_low_rank_pairs",
    # Comparison
    "compare",
    # Errors
    "ArtifactError",
    "ConvergenceWarning",
    "DatasetError",
    "InvalidInputError",
    "InvalidParameterError",
    "NotFittedError",
    "NumericalError",
    "OutOfRangeError",
    "SolverError",
    "SupervisionError",
]
