from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from solver.comparison import bootstrap_interval, sign_flip_p_value
from solver.datasets import make_low_rank_pairs
from solver.validation import (
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    InvalidParameterError,
    Rule,
    check_parameters,
    list_of,
    number_within,
    one_of,
    optional,
    some_of,
)
from tests.solver.every_estimator import NO_NUMBER


@pytest.mark.parametrize(
    "rule", [POSITIVE, NOT_NEGATIVE, FRACTION, COUNT, optional(COUNT), list_of(POSITIVE)]
)
@pytest.mark.parametrize("value", NO_NUMBER)
def test_what_is_no_number_is_refused_everywhere(rule: Rule, value: Any) -> None:
    if rule.expected.startswith("a non-empty tuple or list"):
        value = [value]  # a list of numbers is what this rule asks for
    with pytest.raises(InvalidParameterError, match=r"^size must be"):
        rule.check("size", value)


def test_an_integer_beyond_the_largest_float_is_no_finite_number() -> None:
    assert not POSITIVE.accepts(10**400)


@pytest.mark.parametrize("value", [1, 1.0, np.int32(1), np.float32(1), np.float16(1), Fraction(1, 1)])
def test_integers_and_scalars_of_numpy_are_numbers(value: Any) -> None:
    assert POSITIVE.accepts(value)
    assert list_of(POSITIVE).accepts([value])


@pytest.mark.parametrize(
    ("rule", "inside", "outside", "expected"),
    [
        (number_within(0, 1), [0.5], [0, 1], "a number in (0, 1)"),
        (number_within(0, 1, closed="left"), [0, 0.5], [-0.1, 1], "a number in [0, 1)"),
        (number_within(0, 10_000, closed="right"), [1, 10_000], [0, 10_000.5], "a number in (0, 10000]"),
        (POSITIVE, [1e-300, 1e300], [0, -1], "a finite number > 0"),
        (NOT_NEGATIVE, [0, -0.0], [-1e-300], "a finite number >= 0"),
        (COUNT, [1, np.int64(7)], [0, 1.0, 1.5], "an integer >= 1"),
        (optional(COUNT), [None, 1], [0, "auto"], "None or an integer >= 1"),
        (one_of("a", "b"), ["a"], ["c", None, ["a"], np.array(["a", "b"])], "one of ('a', 'b')"),
        (some_of("a", "b"), [("a",), ["b", "a"]], [(), "a", ("c",), (["a"],), None], None),
        (list_of(POSITIVE), [(1, 2.5), [3], np.array([0.1])], [(), (1, 0), 1, "12", ((1,),), {1}], None),
    ],
)
def test_bounds_are_as_they_are_written(
    rule: Rule, inside: list[Any], outside: list[Any], expected: str | None
) -> None:
    assert expected in (None, rule.expected)
    assert all(rule.accepts(value) for value in inside)
    assert not any(rule.accepts(value) for value in outside)


def test_the_first_broken_rule_is_named() -> None:
    rules = {"alpha": POSITIVE, "n_folds": COUNT}
    check_parameters(rules, {"n_folds": 3, "alpha": 1, "other": None})
    with pytest.raises(InvalidParameterError, match=r"^n_folds must be an integer >= 1, got True$"):
        check_parameters(rules, {"n_folds": True, "alpha": 1})


@pytest.mark.parametrize("value", NO_NUMBER)
def test_functions_refuse_what_is_no_number(value: Any) -> None:
    calls = {
        "level": lambda: bootstrap_interval([0.1, 0.2], level=value),
        "n_resamples": lambda: bootstrap_interval([0.1, 0.2], n_resamples=value),
        "n_permutations": lambda: sign_flip_p_value([0.1, 0.2], [0.2, 0.1], n_permutations=value),
        "random_state": lambda: sign_flip_p_value([0.1, 0.2], [0.2, 0.1], random_state=value),
        "n_classes": lambda: make_low_rank_pairs(n_classes=value),
        "n_samples_x": lambda: make_low_rank_pairs(value),
        "n_features_z": lambda: make_low_rank_pairs(n_features_z=value),
        "noise": lambda: make_low_rank_pairs(noise=value),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
            call()
