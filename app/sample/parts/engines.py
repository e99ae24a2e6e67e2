"""Engines and coaches."""

from __future__ import annotations

from app.sample.canvas import Canvas
from app.sample.palette import Colour, Fade, dark, light, mix
from app.sample.skies import Sky

__all__ = ["Side", "coach", "modern_engine", "steam_engine"]


class Side:
    """Draws from the side in train coordinates, where the front points to positive x."""

    def __init__(self, canvas: Canvas, x: float, rail: float, unit: float, left: bool) -> None:
        self.canvas, self.x, self.rail, self.unit, self.sign = canvas, x, rail, unit, -1.0 if left else 1.0

    def at(self, px: float, py: float) -> tuple[float, float]:
        """Return the place on the canvas."""
        return self.x + self.sign * px * self.unit, self.rail - py * self.unit

    def shape(self, points: list[tuple[float, float]], paint: Colour | Fade) -> None:
        """Fill an outline."""
        self.canvas.polygon([self.at(px, py) for px, py in points], paint)

    def box(self, left: float, low: float, right: float, high: float, paint: Colour | Fade) -> None:
        """Fill a rectangle."""
        self.shape([(left, low), (right, low), (right, high), (left, high)], paint)

    def wheel(self, px: float, radius: float, tone: Colour) -> None:
        """Draw a spoked wheel on the rail."""
        x, y = self.at(px, radius)
        r = radius * self.unit
        self.canvas.ellipse(x, y, r, r, dark(tone, 0.7))
        self.canvas.ellipse(x, y, r * 0.74, r * 0.74, light(tone, 0.1))
        self.canvas.ellipse(x, y, r * 0.3, r * 0.3, dark(tone, 0.6))


def steam_engine(side: Side, sky: Sky, tone: Colour) -> None:
    """Draw a steam engine that ends at x = 0 behind."""
    iron = sky.tint((52, 54, 64))
    side.box(0.2, 0.55, 5.4, 0.95, dark(tone, 0.45))
    barrel = Fade((light(tone, 0.35), tone, dark(tone, 0.5)))
    side.box(1.7, 0.95, 5.0, 2.2, barrel)
    for px in (2.4, 3.2, 4.0):
        side.box(px, 0.95, px + 0.1, 2.2, (226, 184, 90))
    side.box(4.9, 0.88, 5.5, 2.28, Fade((light(iron, 0.3), iron, dark(iron, 0.4))))
    side.box(0.2, 0.95, 1.8, 3.0, Fade((light(tone, 0.2), dark(tone, 0.2))))
    side.box(0.5, 1.9, 1.4, 2.7, (255, 220, 140) if sky.dim else mix(sky.horizon, (60, 80, 100), 0.35))
    side.shape([(0.0, 2.95), (2.05, 2.95), (1.9, 3.22), (0.15, 3.22)], iron)
    side.shape([(4.35, 2.15), (4.75, 2.15), (4.95, 3.3), (4.15, 3.3)], Fade((light(iron, 0.2), iron)))
    side.shape([(2.7, 2.15), (3.2, 2.15), (3.1, 2.6), (2.8, 2.6)], (226, 184, 90))
    side.shape([(5.4, 0.7), (6.0, 0.15), (5.2, 0.15)], dark(tone, 0.4))
    for px in (1.1, 2.35, 3.6):
        side.wheel(px, 0.56, dark(tone, 0.15))
    side.wheel(4.8, 0.36, dark(tone, 0.15))
    side.box(1.0, 0.5, 3.7, 0.62, (190, 190, 196))
    x, y = side.at(5.5, 1.8)
    side.canvas.glow(x, y, 14 if sky.dim else 6, (255, 236, 180), 0.9)


def modern_engine(side: Side, sky: Sky, tone: Colour) -> None:
    """Draw a streamlined railcar front that ends at x = 0 behind."""
    nose = [(0.1, 0.5), (0.1, 2.75), (2.6, 2.75), (3.9, 2.4), (5.0, 1.5), (5.4, 0.9), (5.3, 0.5)]
    side.shape(
        nose,
        Fade(
            (
                light(sky.tint((240, 240, 238)), 0.2),
                sky.tint((226, 228, 230)),
                dark(sky.tint((190, 194, 200)), 0.3),
            )
        ),
    )
    side.shape(
        [(0.1, 0.5), (0.1, 1.45), (4.4, 1.45), (5.35, 1.0), (5.3, 0.5)],
        Fade((light(tone, 0.25), tone, dark(tone, 0.35))),
    )
    glass = (255, 226, 150) if sky.dim else dark(mix(sky.stops[0], (40, 60, 90), 0.5), 0.2)
    side.shape([(3.3, 2.42), (3.8, 2.3), (4.55, 1.72), (3.5, 1.72)], dark(glass, 0.1))
    for px in (0.5, 1.4, 2.3):
        side.box(px, 1.72, px + 0.66, 2.32, glass)
    for px in (1.0, 1.9, 3.6, 4.4):
        side.wheel(px, 0.34, (96, 98, 108))
    x, y = side.at(5.15, 1.15)
    side.canvas.glow(x, y, 16 if sky.dim else 7, (255, 244, 204), 0.95)


def coach(side: Side, sky: Sky, tone: Colour, back: float, steam: bool) -> None:
    """Draw one coach from ``back`` to 4.6 units further on."""
    front = back + 4.6
    side.box(back + 0.1, 0.5, front - 0.1, 2.6, Fade((light(tone, 0.25), tone, dark(tone, 0.3))))
    trim = sky.tint((244, 232, 206))
    if not steam:
        side.box(back + 0.1, 1.5, front - 0.1, 2.6, Fade((trim, dark(trim, 0.12))))
    side.shape(
        [(back, 2.55), (front, 2.55), (front - 0.3, 2.88), (back + 0.3, 2.88)],
        dark(tone, 0.45) if steam else sky.tint((210, 212, 216)),
    )
    side.box(back + 0.1, 1.3, front - 0.1, 1.4, trim)
    glass = (255, 222, 140) if sky.dim else mix(dark(sky.stops[0], 0.4), sky.horizon, 0.3)
    for k in range(4):
        left = back + 0.45 + k * 1.0
        side.box(left - 0.07, 1.53, left + 0.73, 2.37, trim if steam else dark(trim, 0.2))
        side.box(left, 1.6, left + 0.66, 2.3, Fade((light(glass, 0.2), glass)))
    side.box(front - 0.15, 0.7, front + 0.25, 0.86, (44, 44, 52))
    for px in (back + 0.8, back + 1.6, back + 3.0, back + 3.8):
        side.wheel(px, 0.36, (92, 92, 100))
