"""What the parameters of the estimators may be."""

from __future__ import annotations

import math
import numbers
from typing import Any

from solver.base import Constraint


def is_real(value: Any) -> bool:
    """Return whether a value is a finite real number, and no bool."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(float(value))


def is_count(value: Any, least: int = 1) -> bool:
    """Return whether a value is an integer of at least that."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def one_of(*choices: str) -> Constraint:
    """Return the constraint that a value is one of some words."""
    return (lambda value: isinstance(value, str) and value in choices), f"one of {choices}"


POSITIVE: Constraint = (lambda value: is_real(value) and float(value) > 0), "a finite number > 0"
POSITIVE_OR_NONE: Constraint = (
    (lambda v: v is None or (is_real(v) and float(v) > 0)),
    "None or a number > 0",
)
NOT_NEGATIVE: Constraint = (lambda value: is_real(value) and float(value) >= 0), "a finite number >= 0"
COUNT: Constraint = is_count, "an integer >= 1"
COUNT_OR_NONE: Constraint = (lambda value: value is None or is_count(value)), "None or an integer >= 1"
METRIC: Constraint = one_of("cosine", "inner")
PAIRS: Constraint = one_of("auto", "rows", "similar")
