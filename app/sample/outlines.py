"""Outlines as lists of points: smooth curves, ovals, blobs and ridges."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

import numpy as np
from numpy.random import Generator

__all__ = ["Point", "Points", "blob", "oval", "ridge", "smooth"]

Point = tuple[float, float]
Points = Sequence[Point]

_OVAL_STEPS = 24  # corners of an oval: at the largest radius in the scenes its edge still looks round
_UNEVENNESS = 0.12  # standard deviation of a blob's radius, as a share of it: a stone rather than a star
_FINER_HEIGHT = 0.32
"""Height of each finer layer of a ridge beside the one before it: hills rather than saw teeth."""


def smooth(points: Points, *, closed: bool = True, steps: int = 5) -> list[Point]:
    """Return a Catmull-Rom curve through the points, in `steps` pieces between two of them."""
    base = np.asarray(points, dtype=np.float64)
    padded = np.vstack([base[-1:], base, base[:2]]) if closed else np.vstack([base[:1], base, base[-1:]])
    a, b, c, d = padded[:-3, None], padded[1:-2, None], padded[2:-1, None], padded[3:, None]
    t = (np.arange(steps) / steps)[None, :, None]
    curve = (b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))).reshape(
        -1, 2
    )
    flat = curve if closed else np.vstack([curve, base[-1:]])
    return [(float(x), float(y)) for x, y in flat]


def oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> list[Point]:
    """Return the outline of an ellipse, turned by `turn` radians."""
    c, s = cos(turn), sin(turn)
    corners = [
        (rx * cos(2 * pi * k / _OVAL_STEPS), ry * sin(2 * pi * k / _OVAL_STEPS)) for k in range(_OVAL_STEPS)
    ]
    return [(x + px * c - py * s, y + px * s + py * c) for px, py in corners]


def blob(rng: Generator, x: float, y: float, rx: float, ry: float) -> list[Point]:
    """Return an uneven rounded outline such as a bush or a stone."""
    reach = (1.0 + rng.normal(0.0, _UNEVENNESS, 11)).tolist()
    corners = [(r * cos(2 * pi * k / 11), r * sin(2 * pi * k / 11)) for k, r in enumerate(reach)]
    return smooth([(x + rx * px, y + ry * py) for px, py in corners], steps=4)


def ridge(rng: Generator, base: float, rise: float, waves: int) -> list[Point]:
    """Return a smooth fractal skyline from left to right, `rise` high above `base`.
    The widest of its waves are `waves`; each finer layer of them is a third as high as the one before."""
    at, height, weight = np.linspace(0.0, 1.0, 17), np.zeros(17), 1.0
    while waves < 40 and weight > 0.02:
        height += weight * np.interp(at, np.linspace(0.0, 1.0, waves + 1), rng.random(waves + 1))
        waves, weight = waves * 2, weight * _FINER_HEIGHT
    height = (height - height.min()) / (float(np.ptp(height)) or 1.0)
    return smooth([(k * 16.25 - 2, base - rise * float(h)) for k, h in enumerate(height)], closed=False)
