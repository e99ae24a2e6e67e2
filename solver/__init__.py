"""Low-rank bilinear cross-modal similarity learning.

What is exported here is public, and so are `solver.comparison`, `solver.datasets`, `solver.plots` and
`solver.benchmark`; the service uses nothing else.

What learns is imported when it is first asked for: it needs scikit-learn, which a trained model does not need
to project samples and to rank them.
"""

import ast
import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solver.artifacts import load, load_projector, save_projector
from solver.composite.projector import CompositeProjector
from solver.composite.untrained import untrained_projector
from solver.datasets import make_low_rank_pairs
from solver.evaluation.metrics import (
    BoolArray,
    DirectionalMap,
    Reliability,
    RetrievalCurves,
    average_precision,
    bidirectional_map,
    can_be_ranked,
    chance_average_precision,
    mean_average_precision,
    measure_reliability,
    measure_reliability_of_blocks,
    precision_at_scope,
    precision_recall_curve,
    rank_gallery,
    retrieval_curves,
    score_blocks,
)
from solver.evaluation.quality import (
    AT_LEAST,
    FLOORS,
    OBJECTIVES,
    USUAL_OBJECTIVE,
    Objective,
    RankingQuality,
    RetrievalQuality,
    check_objective,
    default_objective,
    floors_of,
    measure_quality,
    objective_value,
)
from solver.evaluation.splits import MIN_CLASS_SIZE, LabelledPair, class_counts, hold_out_by_class
from solver.linalg import FloatArray, can_be_compact, compact, is_finite, is_sparse
from solver.progress import IterationProgress, Progress, StepProgress
from solver.projector import AffineProjector, Projector, SpacePart, project_what_can_be_ranked
from solver.scaling.scaler import SCALINGS
from solver.semantic.projector import PosteriorProjector
from solver.supervision.annotations import Annotations, Facet, Queries
from solver.supervision.kinds import Labels, MultiLabels, PairedRows, SignedPairs
from solver.threads import single_threaded_blas
from solver.validation import (
    ArtifactError,
    ConvergenceWarning,
    DatasetError,
    EngineError,
    InvalidInputError,
    InvalidParameterError,
    NotFittedError,
    NumericalError,
    OutOfRangeError,
    RankWarning,
    SolverError,
    SupervisionError,
)

if TYPE_CHECKING:
    from solver.base import CrossModalEstimator, LinearCrossModalEstimator
    from solver.baselines import (
        CCA,
        CMML,
        DCA,
        GMLDA,
        GMMFA,
        ITML,
        LMNN,
        PLS,
        RCA,
        SCM,
        WMCA,
        MsAlg,
        MvDA,
        SemanticMatching,
    )
    from solver.bilinear.estimator import (
        DEFAULT_FRACTIONS,
        DEFAULT_SCALINGS,
        Candidate,
        CandidateProgress,
        LowRankBilinear,
        LowRankBilinearCV,
        fit_projector,
        select_on,
    )
    from solver.bilinear.solving import alpha_max
    from solver.comparison import compare
    from solver.composite.contradictions import Contradiction
    from solver.composite.estimator import CompositeBilinear
    from solver.evaluation.significance import objective_interval
    from solver.losses.dask_engine import DaskEngine, FitCost, Machines
    from solver.losses.pair_blocks import PairSizes
    from solver.optimisation.checkpoints import Checkpoint, FitCheckpoints
    from solver.optimisation.convergence import StopReason
    from solver.paired import PairedEstimator, PairedSamples
    from solver.scaling.estimator import FeatureScaler
    from solver.semantic.estimator import SemanticBilinear
else:  # a type checker that saw `__getattr__` would accept every name
    _PACKAGES = ("baselines", "benchmark", "comparison", "plots")

    @functools.cache
    def _modules() -> dict[str, str]:
        """Return the module of each name that learns, as the imports above say: they are listed once."""
        (block,) = (
            node for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.If)
        )
        imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
        return {alias.name: node.module for node in imports for alias in node.names}

    def __getattr__(name: str) -> Any:
        """Import what learns when it is first asked for (PEP 562)."""
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        modules = _modules()
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        globals()[name] = value  # the next one finds it without this function
        return value

    def __dir__() -> list[str]:
        """List what is imported already, and what can be asked for."""
        return sorted({*globals(), *__all__})


__all__ = [
    # Estimators
    "LowRankBilinear",
    "LowRankBilinearCV",
    "SemanticBilinear",
    "CompositeBilinear",
    "Contradiction",
    "CCA",
    "GMLDA",
    "GMMFA",
    "PLS",
    "SCM",
    "RCA",
    "DCA",
    "ITML",
    "LMNN",
    "CMML",
    "WMCA",
    "MsAlg",
    "MvDA",
    "SemanticMatching",
    # Bases of estimators
    "CrossModalEstimator",
    "LinearCrossModalEstimator",
    # Supervision
    "Labels",
    "MultiLabels",
    "PairedRows",
    "Queries",
    "SignedPairs",
    "Annotations",
    "Facet",
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
    "StopReason",
    "Checkpoint",
    "FitCheckpoints",
    # Fits on several machines
    "DaskEngine",
    "FitCost",
    "Machines",
    # What `save` of an estimator wrote
    "load",
    # Projection, and its file
    "AffineProjector",
    "Projector",
    "SpacePart",
    "project_what_can_be_ranked",
    "PosteriorProjector",
    "CompositeProjector",
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
    "RetrievalCurves",
    "retrieval_curves",
    "Reliability",
    "measure_reliability",
    "measure_reliability_of_blocks",
    "measure_quality",
    "RankingQuality",
    "RetrievalQuality",
    "AT_LEAST",
    "FLOORS",
    "OBJECTIVES",
    "USUAL_OBJECTIVE",
    "Objective",
    "check_objective",
    "default_objective",
    "floors_of",
    "objective_interval",
    "objective_value",
    "BoolArray",
    "can_be_ranked",
    "rank_gallery",
    # Samples
    "PairSizes",
    "PairedEstimator",
    "PairedSamples",
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
    "EngineError",
    "InvalidInputError",
    "InvalidParameterError",
    "NotFittedError",
    "NumericalError",
    "OutOfRangeError",
    "RankWarning",
    "SolverError",
    "SupervisionError",
    # Threads
    "single_threaded_blas",
    "untrained_projector",
]
