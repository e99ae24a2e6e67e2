"""Colours: mixing, named colours and colour fades."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["NAMED", "Colour", "Fade", "Paint", "ball", "dark", "down", "jitter", "light", "lookup", "mix"]

Colour = tuple[int, int, int]

NAMED: dict[str, Colour] = {
    "red": (206, 52, 50),
    "orange": (238, 134, 46),
    "yellow": (248, 200, 64),
    "green": (86, 150, 84),
    "turquoise": (58, 176, 172),
    "blue": (52, 108, 190),
    "purple": (124, 82, 168),
    "pink": (236, 138, 168),
    "white": (246, 243, 236),
    "black": (46, 44, 54),
    "brown": (134, 90, 62),
    "grey": (142, 148, 158),
}


@dataclass(frozen=True, slots=True)
class Fade:
    """A run of colours along one direction of a shape.

    Parameters
    ----------
    stops
        The colours, evenly spaced.
    way
        ``"down"`` from top to bottom, ``"across"`` from left to right, ``"ball"`` from a
        highlight at the upper left outwards.
    """

    stops: tuple[Colour, ...]
    way: Literal["down", "across", "ball"] = "down"


Paint = Colour | Fade


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return ``first`` with the given share of ``second`` mixed in."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return (red, green, blue)


def light(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of warm white mixed in."""
    return mix(colour, (255, 250, 238), share)


def dark(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of deep blue shadow mixed in."""
    return mix(colour, (22, 20, 48), share)


def jitter(rng: Generator, colour: Colour, amount: float = 10.0) -> Colour:
    """Return the colour moved a little, mostly in brightness."""
    shift, *hue = rng.standard_normal(4).tolist()
    red, green, blue = (
        min(max(round(value + amount * (shift + 0.5 * own)), 0), 255)
        for value, own in zip(colour, hue, strict=True)
    )
    return (red, green, blue)


def down(colour: Colour, shade: float = 0.3, shine: float = 0.15) -> Fade:
    """Return a fade from a lit top to a shaded bottom of the same colour."""
    return Fade((light(colour, shine), colour, dark(colour, shade)))


def ball(colour: Colour, shade: float = 0.4, shine: float = 0.45) -> Fade:
    """Return a fade that makes a disc look like a ball lit from the upper left."""
    return Fade(
        (light(colour, shine), colour, mix(colour, dark(colour, shade), 0.6), dark(colour, shade)), "ball"
    )


@lru_cache(maxsize=512)
def lookup(stops: tuple[Colour, ...]) -> NDArray[np.uint8]:
    """Return the 256 colours along the stops."""
    at = np.linspace(0.0, len(stops) - 1.0, 256)
    table = np.asarray(stops, dtype=np.float64)
    channels = [np.interp(at, np.arange(len(stops)), table[:, c]) for c in range(3)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)
