"""Training parameters and their limits."""

from __future__ import annotations

from typing import Any, Literal, get_args

from app.domain.errors import InvalidFieldError
from app.domain.names import check_storable, join_words
from app.domain.reports import Objective, TrainingParameters
from solver import AT_LEAST, FLOORS, OBJECTIVES, SCALINGS

Method = Literal["auto", "lrbs", "semantic", "squared", "composite"]
METHODS: tuple[str, ...] = get_args(Method)
METHODS_OF_LABELS = ("lrbs", "semantic", "squared")
"""They learn from the first label of each item, and from nothing else."""
LARGEST_SEED = 2**32 - 1
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-30, 1e6
"""Range in which single precision distinguishes a penalty from zero and from infinity."""
MOST_ITERATIONS = 100_000
MOST_FACETS, LONGEST_FACET = 32, 200
"""Facets of a request, and characters of a metadata key that is one."""
LARGEST_WEIGHT = 1e6
"""Of a measure in an objective; only the ratios of weights count, and their sum must not overflow."""


def check_parameters(parameters: TrainingParameters) -> None:
    """Refuse parameters that no training could use; raises InvalidFieldError."""
    alpha, scaling = parameters.alpha, parameters.scaling
    if parameters.method not in METHODS:
        raise InvalidFieldError("method", f"expected {join_words(METHODS)}, got {parameters.method!r}")
    for name, value in (("alpha", alpha), ("scaling", scaling)):
        if parameters.method in ("semantic", "composite") and value is not None:
            raise InvalidFieldError(name, f"the method {parameters.method!r} has none: leave it out")
    if alpha is not None and not SMALLEST_ALPHA <= alpha <= LARGEST_ALPHA:
        raise InvalidFieldError("alpha", f"expected {SMALLEST_ALPHA} to {LARGEST_ALPHA}, got {alpha}")
    if scaling is not None and scaling not in SCALINGS:
        raise InvalidFieldError("scaling", f"expected {join_words(SCALINGS)}, got {scaling!r}")
    if not 0.0 < parameters.tol < 1.0:
        raise InvalidFieldError("tol", f"expected a number between 0 and 1, got {parameters.tol}")
    if not 1 <= parameters.max_iter <= MOST_ITERATIONS:
        raise InvalidFieldError("max_iter", f"expected 1 to {MOST_ITERATIONS}, got {parameters.max_iter}")
    if not 0 <= parameters.seed <= LARGEST_SEED:
        raise InvalidFieldError("seed", f"expected 0 to {LARGEST_SEED}, got {parameters.seed}")
    _check_supervision(parameters)
    if parameters.objective is not None:
        _check_objective(parameters, parameters.objective)


def learns_from_labels_only(parameters: TrainingParameters) -> bool:
    """Return whether the methods that were asked for learn from the first label of each item alone."""
    chosen = parameters.alpha is not None or parameters.scaling is not None
    return parameters.method in METHODS_OF_LABELS or (parameters.method == "auto" and chosen)


def _check_supervision(parameters: TrainingParameters) -> None:
    supervision = parameters.supervision
    if supervision.is_empty:
        raise InvalidFieldError("supervision", "expected something to learn from: all of it is left out")
    if not supervision.labels and learns_from_labels_only(parameters):
        method = "lrbs" if parameters.method == "auto" else parameters.method
        raise InvalidFieldError("supervision.labels", f"the method {method!r} learns from nothing else")
    if supervision.facets == "auto":
        return
    if len(supervision.facets) > MOST_FACETS:
        raise InvalidFieldError("supervision.facets", f"expected {MOST_FACETS} at most")
    for number, key in enumerate(supervision.facets):
        place = f"supervision.facets.{number}"
        if not 1 <= len(key) <= LONGEST_FACET:
            raise InvalidFieldError(place, f"expected 1 to {LONGEST_FACET} characters, got {len(key)}")
        if key in supervision.facets[:number]:
            raise InvalidFieldError(place, f"{key!r} is there twice")
        check_storable(place, key)


def _check_objective(parameters: TrainingParameters, objective: Objective) -> None:
    supervision, is_name = parameters.supervision, isinstance(objective, str)
    weights: dict[str, Any] = {objective: 1.0} if isinstance(objective, str) else dict(objective)
    floors = weights.pop(AT_LEAST, {})
    for name, share in floors.items():
        place = f"objective.{AT_LEAST}.{name}"
        if name not in FLOORS:
            raise InvalidFieldError(place, f"expected {join_words(FLOORS)}, got {name!r}")
        if not 0.0 < share <= 1.0:
            raise InvalidFieldError(place, f"expected a share above 0 and up to 1, got {share}")
        if name.startswith("recall") and not supervision.pairs:
            raise InvalidFieldError(place, f"{name!r} is that of partners: it needs supervision.pairs")
    if floors and (parameters.method not in ("auto", "composite") or learns_from_labels_only(parameters)):
        raise InvalidFieldError(f"objective.{AT_LEAST}", "the method 'composite' alone keeps floors")
    for name, weight in weights.items():
        place = "objective" if is_name else f"objective.{name}"
        if name not in OBJECTIVES:
            raise InvalidFieldError(place, f"expected {join_words(OBJECTIVES)}, got {name!r}")
        if not 0.0 <= weight <= LARGEST_WEIGHT:
            raise InvalidFieldError(place, f"expected a weight of 0 to {LARGEST_WEIGHT:g}, got {weight}")
        if name == "recall" and weight > 0.0 and not supervision.pairs:
            raise InvalidFieldError(place, "'recall' is that of partners: it needs supervision.pairs")
    if not any(weights.values()):
        raise InvalidFieldError("objective", f"expected a weight above 0 of {join_words(OBJECTIVES)}")
