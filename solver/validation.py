"""Errors, one class for each kind of mistake, and the rules that parameters are checked by."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


class SolverError(Exception):
    """Base class of everything this package raises on purpose."""


class InvalidParameterError(SolverError, ValueError):
    """A parameter of an estimator or a function lies outside its allowed range.

    Attributes
    ----------
    name : str
    value : object
        The value that was rejected.
    """

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} must be {expected}, got {value!r}")
        self.name = name
        self.value = value


class InvalidInputError(SolverError, ValueError):
    """An array handed to the library has a wrong shape, type or value."""


class OutOfRangeError(InvalidInputError):
    """Samples are too large to be scaled as the training samples were.

    Attributes
    ----------
    is_outside : ndarray of bool, shape (n_samples,)
        True for those samples.
    """

    def __init__(self, message: str, is_outside: npt.NDArray[np.bool]) -> None:
        super().__init__(message)
        self.is_outside = is_outside


class SupervisionError(SolverError, ValueError):
    """Labels or pairs do not fit the samples, or leave nothing to learn from."""


class NotFittedError(SolverError, AttributeError):
    """An estimator was asked to project before it was fitted."""


class NumericalError(SolverError, ArithmeticError):
    """An iterate or an objective became infinite or not a number."""


class EngineError(SolverError, RuntimeError):
    """What computes a fit elsewhere is not there, or cannot read what it is to compute."""


class DatasetError(SolverError, ValueError):
    """A data file is missing, damaged or not in the expected form."""


class ArtifactError(SolverError, ValueError):
    """A stored model is missing, damaged or of an unknown kind."""


class ConvergenceWarning(UserWarning):
    """A fit missed its tolerance: at the iteration limit, or because the gap no longer decreased."""


class RankWarning(UserWarning):
    """A learned matrix has a lower rank than there are classes: it may leave out those with few samples."""


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
