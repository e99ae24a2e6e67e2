"""Training parameters and their limits."""

from __future__ import annotations

from typing import Literal, get_args

from app.domain.entities import TrainingParameters
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from solver import SCALINGS

Method = Literal["auto", "lrbs", "semantic", "squared"]
METHODS: tuple[str, ...] = get_args(Method)
LARGEST_SEED = 2**32 - 1
SMALLEST_ALPHA, LARGEST_ALPHA = 1e-30, 1e6
"""Range in which single precision distinguishes a penalty from zero and from infinity."""
MOST_ITERATIONS = 100_000


def check_parameters(parameters: TrainingParameters) -> None:
    """Refuse parameters that no training could use; raises InvalidFieldError."""
    alpha, scaling = parameters.alpha, parameters.scaling
    if parameters.method not in METHODS:
        raise InvalidFieldError("method", f"expected {join_words(METHODS)}, got {parameters.method!r}")
    for name, value in (("alpha", alpha), ("scaling", scaling)):
        if parameters.method == "semantic" and value is not None:
            raise InvalidFieldError(name, "the method 'semantic' has none: leave it out")
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
