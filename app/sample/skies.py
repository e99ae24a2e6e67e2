"""Times of day: sky colours, sun and moon, clouds, stars and the tint they give to things."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.shapes import oval
from app.sample.sky_colours import SHINE, STOPS, TINT

__all__ = ["TIMES", "Sky", "clouds", "make_sky", "moon", "paint_sky", "stars", "sun"]

TIMES = ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "night", "overcast")


@dataclass(frozen=True, slots=True)
class Sky:
    """The light of one picture.

    Parameters
    ----------
    time
        One of ``TIMES``.
    stops
        Colours from the zenith to the horizon.
    tint_colour, tint_share
        What the light does to the colours of things.
    shine
        Colour of the sun or moonlight.
    """

    time: str
    stops: tuple[Colour, ...]
    tint_colour: Colour
    tint_share: float
    shine: Colour

    @property
    def horizon(self) -> Colour:
        """Colour of the sky just above the horizon."""
        return self.stops[-1]

    @property
    def dim(self) -> bool:
        """Whether lamps are on."""
        return self.time in {"dusk", "night"}

    def tint(self, colour: Colour, haze: float = 0.0) -> Colour:
        """Return the colour as seen in this light through some haze."""
        return mix(mix(colour, self.tint_colour, self.tint_share), self.horizon, haze)


def make_sky(rng: Generator, time: str) -> Sky:
    """Return a sky of the given time of day with slightly varied colours."""
    stops = tuple(jitter(rng, colour, 6.0) for colour in pick(rng, STOPS[time]))
    return Sky(time, stops, *TINT[time], SHINE[time])


def paint_sky(canvas: Canvas, rng: Generator, sky: Sky, bottom: float, cover: int) -> None:
    """Fill the picture down to ``bottom`` with sky, at night with stars where clouds leave room."""
    canvas.rectangle(0, 0, 256, bottom, Fade(sky.stops))
    canvas.texture(rng, 0, bottom, 2.2, (5, 9))
    if sky.time == "night":
        stars(canvas, rng, bottom * 0.9, 70 - 25 * cover)


def clouds(canvas: Canvas, rng: Generator, sky: Sky, bottom: float, cover: int) -> None:
    """Draw clouds above ``bottom``, the small ones lower down.

    Parameters
    ----------
    canvas, rng, sky
        Where, with which chance and in which light.
    bottom
        Lowest place of a cloud.
    cover
        0 for a clear sky, 1 for a few clouds, 2 for many.
    """
    count = (0, whole(rng, 2, 4), whole(rng, 6, 9))[cover]
    for height in sorted(between(rng, 0.12, 1.0) for _ in range(count)):
        y, size = bottom * height, between(rng, 16, 34) * (1.25 - 0.75 * height)
        x = between(rng, -15, 271)
        flat = chance(rng, 0.35) or sky.time in {"sunset", "dusk", "dawn"}
        _cloud(canvas, rng, sky, x, y, size * (1.25 if flat else 1.0), 0.34 if flat else 0.62)


def _cloud(canvas: Canvas, rng: Generator, sky: Sky, x: float, y: float, size: float, rise: float) -> None:
    """Draw one cloud as a row of merged puffs, lit above and shaded below."""
    puffs = []
    count = whole(rng, 5, 8)
    for k in range(count):
        at = (k + 0.5) / count * 2 - 1
        reach = size * (0.30 + 0.34 * (1 - at * at)) * between(rng, 0.8, 1.2)
        puffs.append(oval(x + at * size * 1.15, y - reach * rise * 0.5, reach, reach * rise))
    puffs.append(oval(x, y, size * 1.35, size * 0.13))
    bright = light(mix(sky.horizon, sky.shine, 0.65), 0.25 if not sky.dim else 0.0)
    if sky.dim:
        bright = mix(sky.stops[-1], sky.stops[1], 0.35)
    shaded = mix(sky.stops[len(sky.stops) // 2], bright, 0.45)
    alpha = 0.92 if not sky.dim else 0.6
    canvas.soft(puffs, 1.1 + size * 0.03, Fade((bright, bright, shaded)), alpha)


def sun(canvas: Canvas, sky: Sky, x: float, y: float, radius: float = 11.0) -> None:
    """Draw the sun with a wide glow, or nothing but a pale patch under an overcast sky."""
    if sky.time == "overcast":
        canvas.glow(x, y, radius * 6, sky.shine, 0.25)
        return
    if sky.time == "night":
        moon(canvas, sky, x, y, radius)
        return
    canvas.glow(x, y, radius * 9, sky.shine, 0.5)
    canvas.glow(x, y, radius * 3.4, sky.shine, 0.7)
    core = {"sunset": (255, 224, 150), "dawn": (255, 240, 214), "dusk": (255, 206, 176)}.get(
        sky.time, (255, 253, 240)
    )
    canvas.ellipse(x, y, radius, radius, core)


def moon(canvas: Canvas, sky: Sky, x: float, y: float, radius: float, phase: float = 1.0) -> None:
    """Draw a moon; ``phase`` 1 is full, smaller values are crescents."""
    canvas.glow(x, y, radius * 7, (150, 170, 230), 0.45)
    canvas.glow(x, y, radius * 2.6, (230, 232, 240), 0.55)
    face, mark = (250, 246, 226), (226, 220, 202)
    if phase >= 1.0:
        canvas.ellipse(x, y, radius, radius, Fade((face, face, dark(face, 0.12)), "ball"))
        for dx, dy, size in ((-0.3, -0.2, 0.24), (0.3, 0.15, 0.3), (-0.1, 0.45, 0.18), (0.35, -0.4, 0.12)):
            canvas.ellipse(x + dx * radius, y + dy * radius, size * radius, size * radius, mark, 0.7)
        return
    steps = [k * pi / 24 for k in range(25)]
    outer = [(x + radius * sin(a), y - radius * sin(pi / 2 - a)) for a in steps]
    inner = [(x + radius * (1 - 2 * phase) * sin(a), y - radius * sin(pi / 2 - a)) for a in reversed(steps)]
    canvas.polygon(outer + inner, face)


def stars(canvas: Canvas, rng: Generator, bottom: float, count: int) -> None:
    """Scatter stars of several sizes above ``bottom``, a few of them with a gleam."""
    for _ in range(count):
        x, y = between(rng, 0, 256), bottom * between(rng, 0, 1)
        size = 0.35 + 0.75 * between(rng, 0, 1) ** 3
        colour = pick(rng, ((255, 255, 255), (255, 240, 214), (206, 220, 255)))
        canvas.ellipse(x, y, size, size, colour, between(rng, 0.45, 1.0))
        if size > 0.95:
            canvas.glow(x, y, 7, colour, 0.8)
