"""Colours by name or as hex, mixing them, and fades from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import ImageColor

__all__ = ["NAMED", "Colour", "Fade", "Paint", "dark", "fade", "jitter", "light", "lookup", "mix", "rgb"]

Colour = tuple[int, int, int]
FadeStyle = Literal["down", "across"]

NAMED = {
    "red": "#ce3432",
    "orange": "#ee862e",
    "yellow": "#f8c840",
    "green": "#569654",
    "turquoise": "#3ab0ac",
    "blue": "#346cbe",
    "purple": "#7c52a8",
    "pink": "#ec8aa8",
    "white": "#f6f3ec",
    "black": "#2e2c36",
    "brown": "#865a3e",
    "grey": "#8e949e",
}


@dataclass(frozen=True, slots=True)
class Fade:
    """A run of evenly spaced colours, down or across."""

    stops: tuple[Colour, ...]
    style: FadeStyle = "down"


Paint = Colour | Fade


@cache
def rgb(colour: str) -> Colour:
    """Return a colour of `NAMED` or one written as ``#rrggbb``."""
    red, green, blue = ImageColor.getrgb(NAMED.get(colour, colour))[:3]
    return red, green, blue


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return `first` with the given share of `second` mixed in."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def light(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of warm white mixed in."""
    return mix(colour, (255, 250, 238), share)


def dark(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of deep blue shadow mixed in."""
    return mix(colour, (22, 20, 48), share)


def jitter(rng: Generator, colour: Colour, amount: float) -> Colour:
    """Return the colour moved a little, mostly in brightness."""
    shift, *hue = rng.standard_normal(4).tolist()
    moved = (value + amount * (shift + 0.5 * own) for value, own in zip(colour, hue, strict=True))
    red, green, blue = (min(max(round(value), 0), 255) for value in moved)
    return red, green, blue


def fade(colour: Colour, style: str = "down") -> Fade:
    """Return the shading of a lit surface: a slope (down) or a column (across)."""
    if style == "across":
        return Fade((dark(colour, 0.1), light(colour, 0.3), colour, dark(colour, 0.45)), "across")
    return Fade((light(colour, 0.22), colour, dark(colour, 0.32)))


@lru_cache(maxsize=512)
def lookup(stops: tuple[Colour, ...]) -> NDArray[np.uint8]:
    """Return the 256 colours along the stops."""
    at = np.linspace(0.0, len(stops) - 1.0, 256)
    channels = [np.interp(at, np.arange(len(stops)), channel) for channel in zip(*stops, strict=True)]
    table: NDArray[np.uint8] = np.rint(np.stack(channels, axis=1)).astype(np.uint8)
    return table
