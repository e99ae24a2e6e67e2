"""Layers of a scene as text, one a line: a verb with named arguments, ``hills y=line+3 rise=12..34``."""
# A number is written as ``7``, as ``12..34`` if it is drawn at random, or relative to a name, ``line+3`` or
# ``line*0.6``; ``let`` introduces names, and facets that are numbers are names, too. A layer with
# ``if=island`` is drawn if that facet is neither ``no`` nor 0, one with ``if=land:firs|hills`` if it has one
# of these values; ``unless=`` is the opposite.

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.random import Generator

__all__ = ["Layer", "Span", "is_true", "layers"]

Span = tuple[float, float]

_RELATIVE = re.compile(r"([a-z_]+)(?:([+*-])([\d.]+))?")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what is drawn, and its arguments as written."""

    verb: str
    arguments: Mapping[str, str]

    def is_drawn(self, facets: Mapping[str, Any]) -> bool:
        """Return whether the layer belongs to a picture with these facets."""
        required, excluded = self.arguments.get("if"), self.arguments.get("unless")
        return (required is None or _holds(required, facets)) and (
            excluded is None or not _holds(excluded, facets)
        )

    def text(self, name: str, default: str = "") -> str:
        """Return an argument as written."""
        return self.arguments.get(name, default)

    def span(self, name: str, default: str, names: Mapping[str, float]) -> Span:
        """Return both ends of a range of numbers."""
        low, _, high = self.text(name, default).partition("..")
        return _value(low, names), _value(high or low, names)

    def number(self, name: str, default: str, names: Mapping[str, float], rng: Generator) -> float:
        """Return a number, drawn evenly from its range."""
        low, high = self.span(name, default, names)
        return float(rng.uniform(low, high)) if low != high else low


def layers(text: str) -> tuple[Layer, ...]:
    """Return the layers written in a text."""
    lines = [line.split() for line in text.strip().splitlines()]
    return tuple(Layer(words[0], dict(word.split("=", 1) for word in words[1:])) for words in lines)


def is_true(value: Any) -> bool:
    """Return whether a facet says yes."""
    return value not in {"no", 0}


def _holds(condition: str, facets: Mapping[str, Any]) -> bool:
    facet, _, values = condition.partition(":")
    return str(facets[facet]) in values.split("|") if values else is_true(facets[facet])


def _value(text: str, names: Mapping[str, float]) -> float:
    match = _RELATIVE.fullmatch(text)
    if match is None:
        return float(text)
    base, other = names[match[1]], float(match[3] or 0)
    return base * other if match[2] == "*" else base - other if match[2] == "-" else base + other
