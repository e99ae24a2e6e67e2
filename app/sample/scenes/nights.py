"""Starry nights with a moon."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick
from app.sample.palette import Colour, Fade, dark, light, mix
from app.sample.scenery import conifer, hills
from app.sample.shapes import oval
from app.sample.skies import Sky, clouds, make_sky, moon, stars, sun

__all__ = ["Night", "choose", "draw"]

_HUES: dict[str, tuple[Colour, ...]] = {
    "blue": ((6, 10, 36), (16, 30, 82), (44, 76, 136)),
    "purple": ((14, 8, 40), (48, 26, 92), (122, 66, 136)),
    "green": ((4, 16, 34), (10, 52, 72), (42, 118, 112)),
}


@dataclass(frozen=True, slots=True)
class Night:
    """Parameters of one picture of a starry night."""

    hue: str
    phase: float
    comet: bool
    band: bool
    land: str
    tent: bool
    cover: int


def choose(rng: Generator) -> Night:
    """Draw the parameters."""
    land = pick(rng, ("firs", "hills", "lake"))
    return Night(
        hue=pick(rng, tuple(_HUES)),
        phase=pick(rng, (0.0, 0.2, 0.32, 1.0, 1.0)),
        comet=chance(rng, 0.35),
        band=chance(rng, 0.45),
        land=land,
        tent=land != "lake" and chance(rng, 0.4),
        cover=pick(rng, (0, 0, 1)),
    )


def _band(canvas: Canvas, rng: Generator, sky: Sky) -> None:
    """Draw the Milky Way as slanted clouds of light and dense dust of stars."""
    x, lean = between(rng, 60, 196), between(rng, -0.9, 0.9)
    tone = light(sky.horizon, 0.35)
    for _ in range(3):
        puffs = [
            oval(x + lean * (y - 100) + between(rng, -14, 14), y, between(rng, 12, 30), 26)
            for y in range(-20, 190, 26)
        ]
        canvas.soft(puffs, 14, tone, 0.16)
    for _ in range(220):
        y = between(rng, 0, 190)
        at, size = x + lean * (y - 100) + float(rng.normal(0, 19)), between(rng, 0.22, 0.6)
        canvas.ellipse(at, y, size, size, (255, 250, 236), 0.75)


def _tent(canvas: Canvas, sky: Sky, x: float, foot: float) -> None:
    """Draw a tent lit from inside."""
    canvas.glow(x, foot - 10, 44, (255, 180, 90), 0.75)
    canvas.polygon(
        [(x - 24, foot), (x - 3, foot - 25), (x + 6, foot - 24), (x + 28, foot)],
        Fade(((255, 196, 104), (232, 122, 60))),
    )
    canvas.polygon(
        [(x - 24, foot), (x - 3, foot - 25), (x - 1, foot)], Fade(((255, 222, 140), (246, 160, 84)))
    )
    canvas.polygon([(x - 12, foot), (x - 4, foot - 18), (x - 4, foot)], (120, 58, 44))
    canvas.line([(x - 3, foot - 25), (x + 6, foot - 24)], 0.8, dark(sky.stops[0], 0.2))


def _comet(canvas: Canvas, rng: Generator) -> None:
    """Draw a shooting star."""
    x, y, long = between(rng, 60, 220), between(rng, 24, 80), between(rng, 34, 60)
    canvas.polygon([(x, y - 0.9), (x + long, y - long * 0.42), (x, y + 0.9)], (255, 255, 250), 0.75)
    canvas.glow(x, y, 10, (255, 255, 246), 1.0)


def draw(canvas: Canvas, p: Night, rng: Generator) -> None:
    """Paint the picture."""
    base = make_sky(rng, "night")
    sky = Sky("night", _HUES[p.hue], base.tint_colour, base.tint_share, base.shine)
    line = between(rng, 176, 206)
    canvas.rectangle(0, 0, 256, line + 30, Fade(sky.stops))
    canvas.texture(rng, 0, line, 3, (5, 7))
    if p.band:
        _band(canvas, rng, sky)
    stars(canvas, rng, line, 120)
    clouds(canvas, rng, sky, line * 0.8, p.cover)
    if p.phase >= 1.0:
        sun(canvas, sky, between(rng, 40, 216), between(rng, 34, 90), between(rng, 13, 24))
    elif p.phase > 0:
        moon(canvas, sky, between(rng, 40, 216), between(rng, 34, 90), between(rng, 13, 22), p.phase)
    if p.comet:
        _comet(canvas, rng)
    far = mix(sky.stops[1], (20, 28, 50), 0.3)
    hills(canvas, rng, base, line, 30, far, 0.25, 4)
    if p.land == "lake":
        canvas.mirror(rng, line, mix(sky.stops[1], (10, 20, 50), 0.3), 0.7, 1.6)
        return
    hills(canvas, rng, base, line + 20, 22, dark(far, 0.4), 0.06, 3)
    near = hills(canvas, rng, base, 246, 20, dark(far, 0.7), 0.0, 2)
    for x, y in near[1::4] if p.land == "firs" else near[30::33]:
        conifer(
            canvas,
            rng,
            x + between(rng, -5, 5),
            y + 6,
            between(rng, 26, 66),
            mix(dark(sky.stops[0], 0.3), (20, 40, 50), 0.3),
        )
    if p.tent:
        _tent(canvas, sky, between(rng, 60, 200), 246)
