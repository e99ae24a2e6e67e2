"""Outlines: smooth curves, ovals, ridges, and placing unit shapes on a picture."""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, pi, sin

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["Points", "blob", "oval", "place", "ridge", "ridge_line", "smooth"]

Points = Sequence[tuple[float, float]]


def smooth(points: Points, *, closed: bool = True, steps: int = 7) -> list[tuple[float, float]]:
    """Return a Catmull-Rom curve through the points.

    Parameters
    ----------
    points
        Points the curve passes through.
    closed
        Whether the curve returns to its start.
    steps
        Number of pieces between two points.
    """
    base = np.asarray(points, dtype=np.float64)
    padded = np.vstack([base[-1:], base, base[:2]]) if closed else np.vstack([base[:1], base, base[-1:]])
    a, b, c, d = padded[:-3, None], padded[1:-2, None], padded[2:-1, None], padded[3:, None]
    t = (np.arange(steps) / steps)[None, :, None]
    curve = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    flat = curve.reshape(-1, 2)
    if not closed:
        flat = np.vstack([flat, base[-1:]])
    return [(float(x), float(y)) for x, y in flat]


def place(
    points: Points, x: float, y: float, size: float, *, turn: float = 0.0, flip: bool = False
) -> list[tuple[float, float]]:
    """Return unit-sized points scaled by ``size``, turned (radians) and moved to ``(x, y)``.

    Parameters
    ----------
    points
        Outline around the origin.
    x, y
        Where the origin goes.
    size
        Length of one unit.
    turn
        Clockwise turn in radians.
    flip
        Mirror left and right first.
    """
    c, s, sign = cos(turn) * size, sin(turn) * size, -1.0 if flip else 1.0
    return [(x + sign * px * c - py * s, y + sign * px * s + py * c) for px, py in points]


def oval(
    cx: float, cy: float, rx: float, ry: float, turn: float = 0.0, steps: int = 28
) -> list[tuple[float, float]]:
    """Return the outline of an ellipse, turned by ``turn`` radians."""
    ct, st = cos(turn), sin(turn)
    outline = []
    for k in range(steps):
        ex, ey = rx * cos(2 * pi * k / steps), ry * sin(2 * pi * k / steps)
        outline.append((cx + ex * ct - ey * st, cy + ex * st + ey * ct))
    return outline


def blob(
    rng: Generator, cx: float, cy: float, rx: float, ry: float, rough: float = 0.12
) -> list[tuple[float, float]]:
    """Return an uneven rounded outline such as a bush or a stone."""
    count = 11
    reach = 1.0 + rng.normal(0.0, rough, count)
    corners = [
        (
            cx + rx * float(reach[k]) * cos(2 * pi * k / count),
            cy + ry * float(reach[k]) * sin(2 * pi * k / count),
        )
        for k in range(count)
    ]
    return smooth(corners, steps=4)


def ridge(rng: Generator, count: int = 129, coarse: int = 3, rough: float = 0.5) -> NDArray[np.float64]:
    """Return a fractal height profile between 0 and 1.

    Parameters
    ----------
    rng
        Source of chance.
    count
        Number of heights.
    coarse
        Number of the widest waves.
    rough
        Height of each finer layer of waves relative to the one before.
    """
    at = np.linspace(0.0, 1.0, count)
    height = np.zeros(count)
    waves, weight = coarse, 1.0
    while waves < count and weight > 0.02:
        knots = np.linspace(0.0, 1.0, waves + 1)
        height += weight * np.interp(at, knots, rng.random(waves + 1))
        waves, weight = waves * 2, weight * rough
    span = float(np.ptp(height))
    return np.asarray((height - height.min()) / (span or 1.0))


def ridge_line(
    heights: NDArray[np.float64], base: float, rise: float, bottom: float
) -> list[tuple[float, float]]:
    """Return a closed outline below a height profile over the picture's width."""
    xs = np.linspace(-2.0, 258.0, len(heights))
    top = [(float(x), float(base - rise * h)) for x, h in zip(xs, heights, strict=True)]
    return [*top, (258.0, bottom), (-2.0, bottom)]
