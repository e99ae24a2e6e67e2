"""City skylines, some of them across the water."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Fade, dark, jitter, light, mix
from app.sample.parts.towers import STONE, tower
from app.sample.scenery import glints
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Skyline", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Skyline:
    """Parameters of one picture of a skyline."""

    towers: int
    stone: str
    spire: bool
    foreground: str
    time: str
    cover: int


def choose(rng: Generator) -> Skyline:
    """Draw the parameters."""
    return Skyline(
        towers=whole(rng, 5, 11),
        stone=pick(rng, tuple(STONE)),
        spire=chance(rng, 0.5),
        foreground=pick(rng, ("river", "river", "park", "street")),
        time=pick(rng, ("dawn", "morning", "noon", "sunset", "dusk", "dusk", "night", "night", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _far(canvas: Canvas, rng: Generator, sky: Sky, p: Skyline, foot: float) -> None:
    """Draw the hazy rows of houses behind."""
    for row, haze in ((0, 0.72), (1, 0.5)):
        tone = sky.tint(STONE[p.stone][0], haze)
        x = between(rng, -14, 0)
        while x < 260:
            wide, high = between(rng, 9, 22), between(rng, 26, 92 - 22 * row)
            canvas.rectangle(
                x, foot - high, x + wide, foot, Fade((dark(tone, 0.06), mix(tone, sky.horizon, 0.4)))
            )
            for _ in range(5 if sky.dim else 0):
                wx, wy = x + between(rng, 1, wide - 2), foot - between(rng, 3, high - 3)
                canvas.rectangle(wx, wy, wx + 1.2, wy + 1.4, (255, 222, 150), 0.7)
            x += wide + between(rng, -3, 5)


def _front(canvas: Canvas, rng: Generator, sky: Sky, p: Skyline, foot: float) -> None:
    """Draw what lies before the city."""
    if p.foreground == "river":
        bank = dark(sky.tint((90, 96, 104)), 0.2)
        canvas.rectangle(0, foot - 4, 256, foot + 1, bank)
        for k in range(12 if sky.dim else 0):
            canvas.glow(10 + k * 21.5, foot - 5, 7, (255, 214, 140), 0.9)
        canvas.mirror(rng, foot, sky.tint((44, 84, 120)), 0.6, 1.2)
        glints(canvas, rng, sky, foot, 256, 60)
        return
    if p.foreground == "park":
        canvas.rectangle(
            0, foot - 1, 256, 256, Fade((sky.tint((116, 154, 88)), dark(sky.tint((78, 122, 66)), 0.3)))
        )
        for near in sorted(between(rng, 0, 1) for _ in range(34)):
            tone = sky.tint(jitter(rng, (78, 124, 68), 10))
            x, y, size = between(rng, -6, 262), foot + 2 + 46 * near, 6 + 9 * near
            canvas.ellipse(x, y, size, size * 0.82, Fade((light(tone, 0.22), tone, dark(tone, 0.42))))
        return
    road = sky.tint((96, 98, 108))
    canvas.rectangle(0, foot - 1, 256, 256, Fade((light(road, 0.1), dark(road, 0.4))))
    canvas.rectangle(0, foot - 2, 256, foot + 3, light(road, 0.3))
    for k in range(7):
        canvas.polygon(
            [
                (k * 40 + 2, foot + 26),
                (k * 40 + 22, foot + 26),
                (k * 40 + 20, foot + 28.5),
                (k * 40 - 2, foot + 28.5),
            ],
            light(road, 0.6),
        )
    for k in range(whole(rng, 3, 5)):
        _car(canvas, rng, sky, 20 + k * 54 + between(rng, -10, 10), foot + (17 if k % 2 else 42))


def _car(canvas: Canvas, rng: Generator, sky: Sky, x: float, y: float) -> None:
    """Draw a car from the side."""
    tone = sky.tint(pick(rng, ((206, 70, 60), (60, 110, 180), (240, 196, 70), (230, 230, 228), (70, 74, 86))))
    canvas.ellipse(x + 15, y + 1, 18, 2.2, (16, 18, 30), 0.4)
    canvas.polygon(
        [(x + 5, y - 7), (x + 9, y - 12), (x + 21, y - 12), (x + 26, y - 7)], dark(sky.stops[0], 0.3)
    )
    canvas.polygon(
        [(x, y - 1), (x, y - 6), (x + 5, y - 7.5), (x + 26, y - 7.5), (x + 31, y - 5), (x + 31, y - 1)],
        Fade((light(tone, 0.25), tone, dark(tone, 0.4))),
    )
    for at in (7, 24):
        canvas.ellipse(x + at, y - 1, 3.2, 3.2, (34, 34, 42))
        canvas.ellipse(x + at, y - 1, 1.4, 1.4, (150, 150, 156))
    if sky.dim:
        canvas.glow(x + 32, y - 4, 12, (255, 236, 180), 0.9)


def draw(canvas: Canvas, p: Skyline, rng: Generator) -> None:
    """Paint the picture."""
    sky, foot = make_sky(rng, p.time), between(rng, 184, 206)
    paint_sky(canvas, rng, sky, foot, p.cover)
    if p.time != "dusk":
        low = p.time in {"sunset", "dawn"}
        sun(
            canvas,
            sky,
            between(rng, 24, 232),
            foot - between(rng, 40, 90) if low else between(rng, 22, 46),
            13 if low else 9,
        )
    clouds(canvas, rng, sky, foot * 0.5, p.cover)
    _far(canvas, rng, sky, p, foot)
    canvas.rectangle(0, foot - 70, 256, foot, Fade((sky.horizon, sky.horizon)), 0.14)
    order = rng.permutation(p.towers)
    tall = int(rng.integers(p.towers))
    for k in range(p.towers):
        x = (int(order[k]) + 0.5) * 256 / p.towers + between(rng, -7, 7)
        wide, high = between(rng, 20, 33) * (1.15 if p.towers < 8 else 0.9), between(rng, 46, 120)
        spire = p.spire and k == tall
        tower(canvas, rng, sky, p.stone, x, wide, high + 24 if spire else high, foot, spire)
    _front(canvas, rng, sky, p, foot)
