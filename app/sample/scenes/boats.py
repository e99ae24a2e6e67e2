"""Sailing boats on the sea."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import NAMED, Colour, Fade, dark, light, mix
from app.sample.scenery import bird, glints, hills, sea, sun_path
from app.sample.shapes import Points, oval, place, smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Boats", "choose", "draw"]

_WATER: dict[str, Colour] = {"blue": (30, 98, 160), "green": (34, 122, 120), "dark": (24, 58, 104)}
_HULL = (
    (-1.0, -0.26),
    (-0.5, -0.2),
    (0.3, -0.2),
    (1.12, -0.34),
    (0.86, -0.08),
    (0.6, 0.05),
    (-0.72, 0.05),
    (-0.92, -0.08),
)
_MAIN = smooth(
    ((-0.02, -2.2), (-0.06, -0.36), (-0.5, -0.38), (-0.86, -0.34), (-0.62, -1.1), (-0.3, -1.75)), steps=5
)
_JIB = smooth(((0.08, -1.95), (0.4, -1.2), (0.98, -0.42), (0.55, -0.5), (0.1, -0.44), (0.16, -1.2)), steps=5)


@dataclass(frozen=True, slots=True)
class Boats:
    """Parameters of one picture of sailing boats."""

    number: int
    sail: str
    hull: str
    water: str
    time: str
    cover: int
    island: bool
    gulls: int


def choose(rng: Generator) -> Boats:
    """Draw the parameters."""
    times = ("dawn", "morning", "noon", "noon", "afternoon", "sunset", "dusk", "overcast")
    return Boats(
        number=whole(rng, 1, 5),
        sail=pick(rng, ("white", "white", "red", "orange", "yellow", "blue", "turquoise", "pink")),
        hull=pick(rng, ("white", "brown", "blue", "red", "black", "green")),
        water=pick(rng, tuple(_WATER)),
        time=pick(rng, times),
        cover=whole(rng, 0, 2),
        island=chance(rng, 0.45),
        gulls=pick(rng, (0, 0, 3, 5)),
    )


def _hull(
    canvas: Canvas, sky: Sky, hull: Colour, at: Callable[[Points], list[tuple[float, float]]], size: float
) -> None:
    """Draw hull, cabin and pennant."""
    canvas.polygon(at(_HULL), Fade((light(hull, 0.25), hull, dark(hull, 0.45))))
    canvas.line(
        at(((-0.97, -0.2), (-0.5, -0.145), (0.3, -0.145), (1.04, -0.26))),
        size * 0.035,
        light(hull, 0.65),
        0.8,
    )
    canvas.polygon(
        at(((-0.42, -0.2), (-0.36, -0.31), (0.16, -0.31), (0.28, -0.2))),
        mix(light(hull, 0.5), sky.horizon, 0.2),
    )
    canvas.polygon(at(((0.02, -2.3), (-0.22, -2.24), (0.02, -2.18))), sky.tint((214, 60, 56)))


def _boat(
    canvas: Canvas, sky: Sky, p: Boats, x: float, y: float, size: float, turn: float, flip: bool
) -> None:
    """Draw one boat and, before it, its mirror image on the water."""
    sail, hull = (mix(sky.tint(NAMED[name]), NAMED[name], 0.35) for name in (p.sail, p.hull))

    def at(shape: Points) -> list[tuple[float, float]]:
        return place(shape, x, y, size, turn=turn, flip=flip)

    def below(shape: Points) -> list[tuple[float, float]]:
        return [(px + (py - y) * 0.06, y + (y - py) * 0.55) for px, py in at(shape)]

    for shape, tone in ((_MAIN, sail), (_JIB, sail), (_HULL, dark(hull, 0.3))):
        canvas.polygon(below(shape), tone, 0.38)
    canvas.soft([oval(x, y + size * 0.05, size * 0.95, size * 0.06)], 1.2, dark(hull, 0.75), 0.5)
    canvas.line(at(((0.02, -2.3), (0.02, -0.2))), size * 0.045, dark((128, 90, 60), 0.2))
    canvas.polygon(at(_MAIN), Fade((light(sail, 0.3), sail, dark(sail, 0.22)), "across"))
    canvas.polygon(at(_JIB), Fade((dark(sail, 0.16), light(sail, 0.18), light(sail, 0.4)), "across"))
    for k in range(1, 4):
        canvas.line(
            at(((-0.05, -0.36 - 0.45 * k), (-0.8 + 0.16 * k, -0.38 - 0.38 * k))),
            size * 0.014,
            dark(sail, 0.4),
            0.5,
        )
    canvas.line(at(((-0.9, -0.33), (0.05, -0.33))), size * 0.04, dark((128, 90, 60), 0.25))
    _hull(canvas, sky, hull, at, size)


def draw(canvas: Canvas, p: Boats, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 112, 158)
    paint_sky(canvas, rng, sky, line, p.cover)
    sun_x = between(rng, 30, 226)
    low = p.time in {"sunset", "dawn", "dusk"}
    sun(canvas, sky, sun_x, line - between(rng, 2, 26) if low else between(rng, 22, 60), 12 if low else 9)
    clouds(canvas, rng, sky, line * 0.75, p.cover)
    if p.island:
        hills(canvas, rng, sky, line + 3, between(rng, 12, 34), (70, 104, 110), 0.5, 4)
    sea(canvas, rng, sky, line, 256, _WATER[p.water])
    sun_path(canvas, rng, sky, sun_x, line, 256)
    glints(canvas, rng, sky, line, 256, 80)
    flip, lean = chance(rng, 0.5), between(rng, -0.03, 0.09)
    room = 200 / p.number
    order = [(k + 0.5) * room + 28 + between(rng, -0.25, 0.25) * room for k in range(p.number)]
    depths = sorted(between(rng, 0.06, 0.75) for _ in range(p.number))
    places = rng.permutation(p.number)
    for k, depth in enumerate(depths):
        size = (15 + 30 * depth) * (1.2 if p.number < 3 else 0.85)
        _boat(
            canvas,
            sky,
            p,
            order[int(places[k])],
            line + 5 + (236 - line) * depth,
            size,
            -lean if flip else lean,
            flip,
        )
    glints(canvas, rng, sky, line + 10, 256, 40)
    for _ in range(p.gulls):
        tone = dark(sky.stops[0], 0.5) if p.time != "overcast" else (70, 76, 88)
        bird(canvas, rng, between(rng, 20, 236), between(rng, 20, line * 0.7), between(rng, 3, 6), tone)
