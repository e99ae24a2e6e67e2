"""Low-rank bilinear cross-modal similarity learning.

What is imported here is public, and so are `solver.comparison`, `solver.datasets`, `solver.plots` and
`solver.benchmark`; the service uses nothing else.

Each name is imported when it is first asked for: what learns needs scikit-learn, which a trained model does
not need to project samples and to rank them.
"""

import ast
import functools
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # isort: off
    # Estimators
    from solver.bilinear.estimator import (
        LowRankBilinear as LowRankBilinear,
        LowRankBilinearCV as LowRankBilinearCV,
    )
    from solver.semantic.estimator import SemanticBilinear as SemanticBilinear
    from solver.composite.estimator import CompositeBilinear as CompositeBilinear
    from solver.composite.learning import unpredicted_facets as unpredicted_facets
    from solver.composite.facet_terms import Contradiction as Contradiction
    from solver.baselines import (
        CCA as CCA,
        GMLDA as GMLDA,
        GMMFA as GMMFA,
        PLS as PLS,
        SCM as SCM,
        RCA as RCA,
        DCA as DCA,
        ITML as ITML,
        LMNN as LMNN,
        CMML as CMML,
        WMCA as WMCA,
        MsAlg as MsAlg,
        MvDA as MvDA,
        SemanticMatching as SemanticMatching,
    )

    # Bases of estimators
    from solver.base import (
        CrossModalEstimator as CrossModalEstimator,
        LinearCrossModalEstimator as LinearCrossModalEstimator,
    )

    # Supervision
    from solver.supervision.kinds import (
        Labels as Labels,
        MultiLabels as MultiLabels,
        PairedRows as PairedRows,
        SignedPairs as SignedPairs,
    )
    from solver.supervision.annotations import Queries as Queries, Annotations as Annotations, Facet as Facet

    # Penalty weight and scaling, chosen on held-out samples
    from solver.bilinear.solving import alpha_max as alpha_max
    from solver.scaling.scaler import SCALINGS as SCALINGS
    from solver.scaling.estimator import FeatureScaler as FeatureScaler
    from solver.bilinear.estimator import (
        Candidate as Candidate,
        DEFAULT_FRACTIONS as DEFAULT_FRACTIONS,
        DEFAULT_SCALINGS as DEFAULT_SCALINGS,
        fit_projector as fit_projector,
        select_on as select_on,
    )
    from solver.evaluation.splits import (
        LabelledPair as LabelledPair,
        MIN_CLASS_SIZE as MIN_CLASS_SIZE,
        class_counts as class_counts,
        hold_out_by_class as hold_out_by_class,
    )

    # Progress of a fit
    from solver.progress import (
        Progress as Progress,
        IterationProgress as IterationProgress,
        StepProgress as StepProgress,
    )
    from solver.bilinear.estimator import CandidateProgress as CandidateProgress
    from solver.optimisation.convergence import StopReason as StopReason
    from solver.optimisation.checkpoints import Checkpoint as Checkpoint, FitCheckpoints as FitCheckpoints

    # Fits on several machines
    from solver.losses.dask_engine import DaskEngine as DaskEngine, FitCost as FitCost, Machines as Machines

    # What `save` of an estimator wrote
    from solver.artifacts import load as load

    # Projection, and its file
    from solver.projector import (
        AffineProjector as AffineProjector,
        Projector as Projector,
        SpacePart as SpacePart,
        project_what_can_be_ranked as project_what_can_be_ranked,
    )
    from solver.semantic.projector import PosteriorProjector as PosteriorProjector
    from solver.composite.projector import (
        CompositeProjector as CompositeProjector,
        untrained_projector as untrained_projector,
    )
    from solver.artifacts import load_projector as load_projector, save_projector as save_projector

    # Measures
    from solver.evaluation.metrics import (
        average_precision as average_precision,
        bidirectional_map as bidirectional_map,
        DirectionalMap as DirectionalMap,
        chance_average_precision as chance_average_precision,
        mean_average_precision as mean_average_precision,
        precision_at_scope as precision_at_scope,
        precision_recall_curve as precision_recall_curve,
        score_blocks as score_blocks,
        RetrievalCurves as RetrievalCurves,
        retrieval_curves as retrieval_curves,
        Reliability as Reliability,
        measure_reliability as measure_reliability,
        measure_reliability_of_blocks as measure_reliability_of_blocks,
        BoolArray as BoolArray,
        can_be_ranked as can_be_ranked,
        rank_gallery as rank_gallery,
    )
    from solver.evaluation.quality import (
        measure_quality as measure_quality,
        RankingQuality as RankingQuality,
        RetrievalQuality as RetrievalQuality,
        AT_LEAST as AT_LEAST,
        FLOORS as FLOORS,
        OBJECTIVES as OBJECTIVES,
        USUAL_OBJECTIVE as USUAL_OBJECTIVE,
        Objective as Objective,
        check_objective as check_objective,
        default_objective as default_objective,
        floors_of as floors_of,
        objective_value as objective_value,
    )
    from solver.evaluation.significance import objective_interval as objective_interval

    # Samples
    from solver.losses.pair_blocks import PairSizes as PairSizes
    from solver.paired import PairedEstimator as PairedEstimator, PairedSamples as PairedSamples
    from solver.linalg import (
        FloatArray as FloatArray,
        is_sparse as is_sparse,
        is_finite as is_finite,
        can_be_compact as can_be_compact,
        compact as compact,
    )
    from solver.datasets import make_low_rank_pairs as make_low_rank_pairs

    # Comparison
    from solver.comparison import compare as compare

    # Errors
    from solver.validation import (
        ArtifactError as ArtifactError,
        ConvergenceWarning as ConvergenceWarning,
        DatasetError as DatasetError,
        EngineError as EngineError,
        InvalidInputError as InvalidInputError,
        InvalidParameterError as InvalidParameterError,
        NotFittedError as NotFittedError,
        NumericalError as NumericalError,
        OutOfRangeError as OutOfRangeError,
        RankWarning as RankWarning,
        SolverError as SolverError,
        SupervisionError as SupervisionError,
    )

    # Threads
    from solver.threads import single_threaded_blas as single_threaded_blas
else:  # a type checker that saw `__getattr__` would accept every name
    _PACKAGES = ("baselines", "benchmark", "comparison", "datasets", "plots")

    @functools.cache
    def _modules() -> dict[str, str]:
        """Return the module of each public name, as the imports above say: they are listed once."""
        (block,) = (
            node for node in ast.parse(Path(__file__).read_text("utf-8")).body if isinstance(node, ast.If)
        )
        imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
        return {alias.name: node.module for node in imports for alias in node.names}

    def __getattr__(name: str) -> Any:
        """Import what is first asked for (PEP 562)."""
        if name in _PACKAGES:
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__all__":
            return list(_modules())
        if name not in _modules():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(_modules()[name]), name)
        globals()[name] = value  # the next one finds it without this function
        return value

    def __dir__() -> list[str]:
        """List what is imported already, and what can be asked for."""
        return sorted({*globals(), *_modules()})
