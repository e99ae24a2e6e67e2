"""The methods that are compared, ablations among them, and the parameter values over which each is tuned."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import numpy.typing as npt
from typing_extensions import override

from solver.base import CrossModalEstimator
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
    Bases,
    MsAlg,
    MvDA,
    SemanticMatching,
)
from solver.bilinear.estimator import LowRankBilinear
from solver.bilinear.solving import BilinearProblem, regularisation_path
from solver.linalg import FloatArray, Samples, Sides
from solver.scaling.feature_maps import KERNELS, FeatureMap, FeatureMapConfig, check_features
from solver.semantic.estimator import SemanticBilinear
from solver.semantic.search import INVERSE_PENALTIES, SEARCHED_SCALINGS, WIDTHS
from solver.supervision.annotations import AnyLabels
from solver.supervision.kinds import Labels
from solver.validation import COUNT, POSITIVE, SEED, InvalidInputError, InvalidParameterError, Rule, parameter

_MAP = Rule(
    lambda v: isinstance(v, tuple) and len(v) == 2 and v[0] in KERNELS and POSITIVE.accepts(v[1]),
    f"a pair of one of {KERNELS} and a width > 0",
)


class SemanticIdentity(SemanticBilinear):
    """`SemanticBilinear` with M the identity: the inner product of the same posteriors."""

    @override
    def _choose_alpha_fraction(self, *_: object) -> None:
        return None


@dataclass(eq=False, repr=False)
class KernelSemanticMatching(CrossModalEstimator):
    """`SemanticMatching` of kernel features: a feature map of `SemanticBilinear` for each modality.
    A map is a kernel and its width; a Laplacian one takes at most 256 features."""

    x_map: tuple[str, float] = parameter(("rbf", 1.0), _MAP)
    z_map: tuple[str, float] = parameter(("rbf", 1.0), _MAP)
    _: KW_ONLY
    C: float = parameter(15.0, POSITIVE)
    z_C: float = parameter(15.0, POSITIVE)
    n_landmarks: int = parameter(400, COUNT)
    random_state: int = parameter(0, SEED)
    _fitted_attribute: ClassVar[str] = "semantic_matching_"

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Learn the feature maps of scaled samples, then the posteriors; the classes are as in
        `LowRankBilinear.fit`."""
        x, z, checked = self._check_inputs(X, Z, supervision)
        x, z = check_features(x, "X"), check_features(z, "Z")
        x_features, z_features = self._features(x, self.x_map), self._features(z, self.z_map)
        matching = SemanticMatching(self.C, z_C=self.z_C)
        matching.fit(x_features.transform(x), z_features.transform(z), checked)
        self.x_features_, self.z_features_, self.semantic_matching_ = x_features, z_features, matching
        return self

    @property
    @override
    def n_features_in_(self) -> int:
        self._check_fitted()
        return self.x_features_.n_features

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        features = self.x_features_ if side == "x" else self.z_features_
        array = check_features(samples, side.upper(), features.n_features)
        return self.semantic_matching_._project(features.transform(array), side)

    def _features(self, samples: Samples, kind: tuple[str, float]) -> FeatureMap:
        if not FeatureMapConfig("none", *kind).suits(samples):
            raise InvalidInputError(f"{samples.shape[1]} features are too many for the kernel {kind[0]!r}")
        return FeatureMap.fit(samples, "none", *kind, self.n_landmarks, self.random_state)


SCALING_CHOICES = ("l2", "standard", "center", "none", "sqrt")
"""Kinds of `FeatureScaler` that a method may choose from; "none" is raw."""

Parameters = Mapping[str, Any]
Project = Callable[[FloatArray, FloatArray], Sides]
"""Takes samples of both modalities to the common space."""
Walk = Callable[[FloatArray, FloatArray, Labels, Sequence[Any]], Iterator[Project]]

_PATH_TOL, _PATH_MAX_ITER = 3e-2, 20
"""Gap and step limit of each solution on the path: enough to rank candidates, too loose for a final model."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter and the values it is tuned over.

    Parameters
    ----------
    name : str
    values : tuple
        Values to try; of equally good ones the first is taken.
    default : object
        Value while the axes before this one are tuned.
    """

    name: str
    values: tuple[Any, ...]
    default: Any


@dataclass(frozen=True, slots=True)
class Method:
    """A method as it takes part in a comparison.

    Parameters
    ----------
    estimator : type
        A `CrossModalEstimator`; its name is the method's.
    grid : tuple of Axis
        Parameters to tune, one after the other.
    fixed : mapping
        Parameters that are not tuned.
    scalings : tuple of str
        Kinds of `FeatureScaler` it chooses from; "none" alone for a method that chooses inside `fit`.
    has_matrix : bool
        Whether its `singular_values_` are those of a bilinear matrix M.
    walk : callable, optional
        For a grid of one axis: yields a projection for each of its values, in the order of the grid, at
        less cost than separate fits.
    is_optional : bool
        Whether it takes part only where it is named.
    learns_from_pairs : bool
        Whether it suits classes of a row each, which partners are: they are as many as rows.
    """

    estimator: type[CrossModalEstimator]
    grid: tuple[Axis, ...] = ()
    fixed: Parameters = field(default_factory=dict)
    walk: Walk | None = None
    scalings: tuple[str, ...] = SCALING_CHOICES
    has_matrix: bool = False
    is_optional: bool = False
    learns_from_pairs: bool = False

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.estimator.__name__

    @property
    def defaults(self) -> dict[str, Any]:
        """Parameters before anything is tuned."""
        return {axis.name: axis.default for axis in self.grid}

    @property
    def uses_bases(self) -> bool:
        """Whether its `fit` takes `bases` of the samples, which are then computed once for all candidates."""
        return "bases" in inspect.signature(self.estimator.fit).parameters

    def fit(
        self, X: FloatArray, Z: FloatArray, labels: Labels, parameters: Parameters, bases: Bases | None = None
    ) -> CrossModalEstimator:
        """Return the estimator fitted with tuned parameters; the others are as of `BasisEstimator.fit`."""
        estimator: Any = self.estimator(**self.fixed, **parameters)
        options = {"bases": bases} if self.uses_bases else {}
        fitted: CrossModalEstimator = estimator.fit(X, Z, labels, **options)
        return fitted

    def projections(
        self,
        X: FloatArray,
        Z: FloatArray,
        labels: Labels,
        candidates: Sequence[Parameters],
        bases: Bases | None = None,
    ) -> Iterator[Project]:
        """Yield a fitted projection for each candidate; the other arguments are those of `fit`."""
        if self.walk is not None:
            yield from self.walk(X, Z, labels, [parameters[self.grid[0].name] for parameters in candidates])
            return
        for parameters in candidates:
            yield functools.partial(_project, self.fit(X, Z, labels, parameters, bases))


def _project(fitted: CrossModalEstimator, X: FloatArray, Z: FloatArray) -> Sides:
    return fitted.project_x(X), fitted.project_z(Z)


def _walk_alphas(
    X: FloatArray, Z: FloatArray, labels: Labels, fractions: Sequence[float]
) -> Iterator[Project]:
    """Walk along the regularisation path, each solution warm-started from the previous one."""
    problem = BilinearProblem(X, Z, labels, fit_intercept=True, n_threads=1)
    alphas = [fraction * problem.largest_alpha for fraction in fractions]
    path = regularisation_path(problem, alphas, tol=_PATH_TOL, max_iter=_PATH_MAX_ITER)
    for point in path:
        yield point.project


_COMPONENTS = Axis("n_components", (5, 7, 10, 20, 40, None), 7)
_COMPONENTS_OR_ALL = Axis("n_components", (None, 5, 7, 10, 20, 40), None)
_RIDGE = Axis("reg", (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 0.3)
_FEW_RIDGES = Axis("reg", (0.003, 0.03, 0.3, 3.0), 0.3)
_CORRELATION_POWER = Axis("correlation_power", (1.0, 0.0, 2.0), 1.0)
_PAIRS = Axis("pairs", ("rows", "similar"), "rows")
_METRIC = Axis("metric", ("inner", "cosine"), "inner")
_DISTANCE_METRIC = Axis("metric", ("distance", "cosine", "inner"), "cosine")
_SHRINKAGE = Axis("shrinkage", (0.0, 0.1, 1.0), 0.0)
_COMMON_SPACE = (_PAIRS, _RIDGE, _COMPONENTS)
_SMALL_SPACE = (_PAIRS, _FEW_RIDGES, Axis("n_components", (5, 10, 20, 40), 10))
"""Of the metrics that are learned in steps: they take longer in more dimensions."""
_COUPLING = Axis("coupling", (1.0, 3.0, 10.0, 30.0, 100.0), 10.0)
_EIGENVALUE_POWER = Axis("eigenvalue_power", (0.5, 0.0, 1.0), 0.5)
_INVERSE_PENALTY = Axis("C", (0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0), 1.0)
_KERNEL_MAPS = tuple((kernel, width) for kernel, widths in WIDTHS.items() for width in widths)
_SEMANTIC: Parameters = {"n_jobs": 1, "scalings": SEARCHED_SCALINGS}
_Z_INVERSE_PENALTY = Axis("z_C", (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0), 10.0)

_ENTRIES = (
    Method(
        LowRankBilinear,
        (Axis("alpha_fraction", (0.3, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002), 0.05),),
        fixed={"n_threads": 1},
        walk=_walk_alphas,
        has_matrix=True,
        learns_from_pairs=True,
    ),
    Method(
        SemanticBilinear,
        fixed=_SEMANTIC,
        scalings=("none",),  # it chooses one of its own for each of its posteriors
        has_matrix=True,
    ),
    Method(CCA, (_PAIRS, _RIDGE, _COMPONENTS, _CORRELATION_POWER, _METRIC), learns_from_pairs=True),
    Method(PLS, (_PAIRS, _COMPONENTS, _METRIC), learns_from_pairs=True),
    Method(
        SCM,
        (
            _PAIRS,
            _RIDGE,
            _COMPONENTS_OR_ALL,
            Axis("C", (0.01, 0.1, 1.0, 10.0), 1.0),
            Axis("z_C", (0.1, 1.0, 3.0, 10.0, 30.0, 100.0), 10.0),
            _CORRELATION_POWER,
        ),
    ),
    Method(SemanticMatching, (_INVERSE_PENALTY, _Z_INVERSE_PENALTY)),
    Method(
        MsAlg,
        (Axis("n_components", (4, 5, 6, 7, 8, 9, 10, 20, 40, None), 7), _METRIC),
        learns_from_pairs=True,
    ),
    Method(GMLDA, (_FEW_RIDGES, _COUPLING, _EIGENVALUE_POWER, _METRIC)),
    Method(GMMFA, (_FEW_RIDGES, Axis("n_components", (None, 30), None), _EIGENVALUE_POWER, _METRIC)),
    Method(
        MvDA,
        (Axis("reg", (0.0, 0.003, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), 0.3), _EIGENVALUE_POWER, _METRIC),
        is_optional=True,
    ),
    Method(WMCA, (_COMPONENTS, _METRIC), is_optional=True),
    Method(RCA, (*_COMMON_SPACE, _SHRINKAGE, _DISTANCE_METRIC), is_optional=True),
    Method(DCA, (*_COMMON_SPACE, _SHRINKAGE, _DISTANCE_METRIC), is_optional=True),
    Method(ITML, (*_SMALL_SPACE, Axis("gamma", (0.1, 1.0, 10.0), 1.0), _DISTANCE_METRIC), is_optional=True),
    Method(LMNN, (*_SMALL_SPACE, Axis("push", (0.3, 1.0, 3.0), 1.0), _DISTANCE_METRIC), is_optional=True),
    Method(
        CMML,
        (
            _RIDGE,
            Axis("n_components", (5, 10, 20, 40), 10),
            Axis("max_iter", (10, 30, 100), 30),
            Axis("beta", (1.0, 3.0, 10.0), 3.0),
            _DISTANCE_METRIC,
        ),
        is_optional=True,
    ),
    Method(SemanticIdentity, fixed=_SEMANTIC, scalings=("none",), is_optional=True),
    Method(
        KernelSemanticMatching,
        (
            Axis("x_map", _KERNEL_MAPS, ("rbf", 1.0)),
            Axis("z_map", _KERNEL_MAPS, ("rbf", 1.0)),
            Axis("C", INVERSE_PENALTIES, 15.0),
            Axis("z_C", INVERSE_PENALTIES, 15.0),
        ),
        scalings=SEARCHED_SCALINGS,
        is_optional=True,
    ),
)

METHODS: Mapping[str, Method] = {method.name: method for method in _ENTRIES}
"""Every method of a comparison by the name of its class."""


def chosen_methods(items: Sequence[str | Method] | None) -> tuple[Method, ...]:
    """Return methods, each once, in the order given; by default all that are not optional.

    They are names from `METHODS`, or methods. InvalidParameterError if a name is unknown, none is given, or
    two different methods have the same name.
    """
    if items is None:
        return tuple(method for method in METHODS.values() if not method.is_optional)
    expected = f"one or more of {', '.join(METHODS)}"
    chosen: dict[str, Method] = {}
    for item in items:
        if isinstance(item, str) and item not in METHODS:
            raise InvalidParameterError("methods", item, expected)
        method = METHODS[item] if isinstance(item, str) else item
        if chosen.setdefault(method.name, method) != method:
            raise InvalidParameterError("methods", method.name, "one method for each name")
    if not chosen:
        raise InvalidParameterError("methods", items, expected)
    return tuple(chosen.values())
