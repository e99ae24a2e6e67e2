"""Trains through the countryside."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import NAMED, Fade, dark, light, mix
from app.sample.parts.engines import Side, coach, modern_engine, steam_engine
from app.sample.scenery import broadleaf, conifer, grass, hills
from app.sample.shapes import oval, smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Train", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Train:
    """Parameters of one picture of a train."""

    steam: bool
    colour: str
    coaches: int
    bridge: bool
    left: bool
    time: str
    cover: int


def choose(rng: Generator) -> Train:
    """Draw the parameters."""
    return Train(
        steam=chance(rng, 0.5),
        colour=pick(rng, ("red", "green", "blue", "yellow", "orange", "turquoise", "purple")),
        coaches=whole(rng, 1, 4),
        bridge=chance(rng, 0.45),
        left=chance(rng, 0.5),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _track(canvas: Canvas, rng: Generator, sky: Sky, p: Train, rail: float) -> None:
    """Draw the rails on an embankment or on a bridge with arches."""
    stone = sky.tint((164, 148, 134))
    if not p.bridge:
        bank = sky.tint((132, 122, 104))
        canvas.polygon(
            [(-2, rail + 1), (258, rail + 1), (258, rail + 15), (-2, rail + 15)],
            Fade((light(bank, 0.15), dark(bank, 0.35))),
        )
        for k in range(43):
            canvas.rectangle(k * 6.1, rail + 1, k * 6.1 + 3.4, rail + 3, dark(sky.tint((96, 72, 58)), 0.25))
    else:
        canvas.rectangle(0, rail + 1, 256, 256, Fade((light(stone, 0.16), stone, dark(stone, 0.35))))
        canvas.rectangle(0, rail + 1, 256, rail + 5, light(stone, 0.28))
        wide, shift = between(rng, 44, 62), between(rng, 0, 40)
        deep = mix(sky.tint((84, 120, 96)), sky.horizon, 0.25)
        for k in range(-1, 7):
            x = k * wide + shift
            arch = [
                (x, 262),
                *oval(x + wide * 0.4, rail + 42, wide * 0.4, 30, 0, 40)[20:],
                (x + wide * 0.8, rail + 42),
                (x + wide * 0.8, 262),
            ]
            canvas.polygon([(px - 2.5, py) for px, py in arch], dark(stone, 0.45))
            canvas.polygon(arch, Fade((mix(deep, sky.horizon, 0.35), deep, dark(deep, 0.4))))
        for row in range(5):
            canvas.line([(0, rail + 9 + row * 5), (256, rail + 9 + row * 5)], 0.3, dark(stone, 0.5), 0.25)
    canvas.rectangle(0, rail - 0.4, 256, rail + 1.4, dark(sky.tint((120, 116, 120)), 0.3))


def draw(canvas: Canvas, p: Train, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 118, 142)
    paint_sky(canvas, rng, sky, line + 14, p.cover)
    sun(
        canvas,
        sky,
        between(rng, 24, 232),
        line - between(rng, 8, 34) if p.time in {"dawn", "sunset", "dusk"} else between(rng, 22, 48),
        10,
    )
    clouds(canvas, rng, sky, (line + 14) * 0.6, p.cover)
    hills(canvas, rng, sky, line, 40, (96, 124, 132), 0.55, 4)
    hills(canvas, rng, sky, line + 18, 26, (104, 142, 96), 0.3, 3)
    near = hills(canvas, rng, sky, line + 40, 16, (118, 156, 82), 0.1, 2)
    for x, y in near[3::8]:
        grow = conifer if chance(rng, 0.4) else broadleaf
        grow(canvas, rng, x + between(rng, -7, 7), y + 6, between(rng, 18, 32), sky.tint((76, 122, 72)))
    rail, unit = (between(rng, 168, 184) if p.bridge else between(rng, 196, 216)), between(rng, 11.0, 14.5)
    _track(canvas, rng, sky, p, rail)
    tone = sky.tint(NAMED[p.colour])
    length = 5.5 + (4.75 * p.coaches)
    back = 128 - unit * (length / 2 - 4.75 * p.coaches) + between(rng, -10, 10)
    side = Side(canvas, 256 - back if p.left else back, rail, unit, p.left)
    for k in range(p.coaches):
        coach(side, sky, tone, -4.75 * (k + 1), p.steam)
    (steam_engine if p.steam else modern_engine)(side, sky, tone)
    if p.steam:
        puffs = []
        for k in range(9):
            px, py = side.at(4.5 - 1.0 * k, 3.8 + 0.34 * k)
            puffs.append(oval(px + between(rng, -3, 3), py, 5 + 1.6 * k, 4 + 1.1 * k))
        canvas.soft(puffs, 3, Fade((light(sky.tint((244, 244, 246)), 0.2), sky.tint((206, 208, 216)))), 0.82)
    if not p.bridge:
        field = sky.tint((110, 152, 70))
        edge = smooth([(-4, rail + 14), (60, rail + 11), (140, rail + 15), (260, rail + 12)], closed=False)
        canvas.polygon([*edge, (258, 258), (-2, 258)], Fade((light(field, 0.12), dark(field, 0.3))))
        grass(canvas, rng, rail + 14, 264, field, 90)
