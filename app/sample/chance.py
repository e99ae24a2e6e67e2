"""Typed random choices on top of :class:`numpy.random.Generator`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from numpy.random import Generator

__all__ = ["between", "chance", "pick", "several", "whole"]

T = TypeVar("T")


def pick(rng: Generator, options: Sequence[T]) -> T:
    """Return one of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def several(rng: Generator, options: Sequence[T], count: int) -> list[T]:
    """Return ``count`` different members of ``options`` in random order."""
    return [options[int(i)] for i in rng.permutation(len(options))[:count]]


def between(rng: Generator, low: float, high: float) -> float:
    """Return a number drawn evenly from ``low`` to ``high``."""
    return float(rng.uniform(low, high))


def whole(rng: Generator, low: int, high: int) -> int:
    """Return a whole number from ``low`` to ``high``, both included."""
    return int(rng.integers(low, high + 1))


def chance(rng: Generator, probability: float) -> bool:
    """Return whether an event of the given probability happens."""
    return bool(rng.random() < probability)
