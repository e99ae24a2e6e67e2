"""Rules for parameters: one table of conditions for every estimator and function of the library.

A rule is a predicate and the words that say what it asks for. Numbers follow one convention everywhere: an
integer is accepted where a float is expected, NumPy's scalars count as numbers, and a bool never does.

scikit-learn has such a module, too (`sklearn.utils._param_validation`), but it is private, accepts True for
an integer, and says nothing of NaN.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from solver.validation.errors import InvalidParameterError


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on the value of a parameter, and its words, which follow "must be"."""

    accepts: Callable[[object], bool]  # takes a value of any type; never raises
    expected: str

    def check(self, name: str, value: object) -> None:
        """Raise InvalidParameterError, which says `name`, unless the value meets the condition."""
        if not self.accepts(value):
            raise InvalidParameterError(name, value, self.expected)


def check_parameters(rules: Mapping[str, Rule], values: Mapping[str, object]) -> None:
    """Raise InvalidParameterError for the first parameter that breaks its rule."""
    for name, rule in rules.items():
        rule.check(name, values[name])


def parameter(default: Any, rule: Rule) -> Any:
    """Return the field of a parameter of an estimator, which is a dataclass of them."""
    return field(default=default, metadata={"rule": rule})


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number; a bool is none."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # an integer beyond the largest float
        return False


def is_integer(value: object, least: int = 1) -> bool:
    """Return whether a value is an integer of at least `least`; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def number_within(low: float, high: float, closed: Literal["left", "right", "neither"] = "neither") -> Rule:
    """Return the rule of a number between two bounds; `high` may be infinite."""

    def accepts(value: object) -> bool:
        if not is_number(value):
            return False
        number = float(value)  # type: ignore[arg-type] # a number, as was just found
        is_above = number >= low if closed == "left" else number > low
        return is_above and (number <= high if closed == "right" else number < high)

    if math.isinf(high):
        return Rule(accepts, f"a finite number {'>=' if closed == 'left' else '>'} {low:g}")
    left, right = "[" if closed == "left" else "(", "]" if closed == "right" else ")"
    return Rule(accepts, f"a number in {left}{low:g}, {high:g}{right}")


def integer_from(least: int) -> Rule:
    """Return the rule of an integer of at least `least`."""
    return Rule(lambda value: is_integer(value, least), f"an integer >= {least}")


def one_of(*choices: str) -> Rule:
    """Return the rule of one of some words."""
    return Rule(lambda value: isinstance(value, str) and value in choices, f"one of {choices}")


def list_of(rule: Rule) -> Rule:
    """Return the rule of one or more values in a tuple, list or vector, each of which meets a rule."""

    def accepts(value: object) -> bool:
        if isinstance(value, np.ndarray):
            value = list(value) if value.ndim == 1 else ()
        return isinstance(value, tuple | list) and len(value) > 0 and all(map(rule.accepts, value))

    return Rule(accepts, f"a non-empty tuple or list, and each value in it {rule.expected}")


def some_of(*choices: str) -> Rule:
    """Return the rule of one or more words out of some, in a tuple, list or vector."""
    return list_of(one_of(*choices))


def optional(rule: Rule) -> Rule:
    """Return the rule of None, or of a value that meets a rule."""
    return Rule(lambda value: value is None or rule.accepts(value), f"None or {rule.expected}")


POSITIVE = number_within(0.0, math.inf)
NOT_NEGATIVE = number_within(0.0, math.inf, closed="left")
FRACTION = number_within(0.0, 1.0)
COUNT = integer_from(1)
SEED = integer_from(0)
N_FOLDS = integer_from(2)
BOOL = Rule(lambda value: isinstance(value, bool), "a bool")
