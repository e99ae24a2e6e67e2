"""Houses of a village among hills."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, mix
from app.sample.parts.houses import ROOF, church, house, smoke
from app.sample.scenery import broadleaf, conifer, grass, hills, snowfall
from app.sample.shapes import smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Village", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Village:
    """Parameters of one picture of a village."""

    houses: int
    roof: str
    church: bool
    snow: bool
    smoke: bool
    road: bool
    time: str
    cover: int


def choose(rng: Generator) -> Village:
    """Draw the parameters."""
    return Village(
        houses=whole(rng, 2, 7),
        roof=pick(rng, tuple(ROOF)),
        church=chance(rng, 0.35),
        snow=chance(rng, 0.25),
        smoke=chance(rng, 0.5),
        road=chance(rng, 0.5),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "night", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _homes(canvas: Canvas, rng: Generator, sky: Sky, p: Village, line: float) -> list[tuple[float, float]]:
    """Draw the houses and trees between them; return the chimney tops."""
    rows = sorted(between(rng, 0, 1) for _ in range(p.houses))
    order = rng.permutation(p.houses)
    tops = []
    for k, near in enumerate(rows):
        size = (25 + 21 * near) * (1.25 if p.houses < 4 else 0.95)
        x = 2 + int(order[k]) * 232 / p.houses + between(rng, -3, 6)
        if chance(rng, 0.7):
            _tree(canvas, rng, sky, p, x - between(rng, 2, 12), line + 34 + 44 * near, size * 1.2)
        tops.append(house(canvas, rng, sky, p.roof, p.snow, x, line + 36 + 46 * near, size))
    return tops


def draw(canvas: Canvas, p: Village, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 128, 150)
    paint_sky(canvas, rng, sky, line + 20, p.cover)
    if p.time != "dusk":
        sun(
            canvas,
            sky,
            between(rng, 24, 232),
            between(rng, 24, 60) if p.time not in {"dawn", "sunset"} else line - between(rng, 14, 34),
            10,
        )
    clouds(canvas, rng, sky, (line + 20) * 0.5, p.cover)
    ground: Colour = (228, 234, 244) if p.snow else (112, 148, 78)
    hills(canvas, rng, sky, line, 34, mix(ground, (90, 120, 120), 0.5), 0.5, 4)
    hills(canvas, rng, sky, line + 22, 26, mix(ground, (90, 130, 90), 0.25), 0.22, 3)
    if p.church:
        church(canvas, sky, p.roof, between(rng, 60, 190), line + 30)
    hills(canvas, rng, sky, line + 38, 16, ground, 0.06, 2)
    tops = _homes(canvas, rng, sky, p, line)
    if p.road:
        tone = sky.tint((206, 184, 148) if not p.snow else (196, 204, 220))
        left = smooth([(150, line + 84), (132, line + 92), (100, 236), (60, 262)], closed=False)
        right = smooth([(156, line + 84), (146, line + 92), (140, 236), (150, 262)], closed=False)
        canvas.polygon([*left, *reversed(right)], Fade((mix(tone, sky.tint(ground), 0.5), tone)))
    for x, y in tops if p.smoke else ():
        smoke(canvas, rng, sky, x, y)
    if not p.snow:
        grass(canvas, rng, line + 82, 262, sky.tint(ground), 70)
    for _ in range(2):
        x = between(rng, 200, 250) if chance(rng, 0.5) else between(rng, 6, 50)
        _tree(canvas, rng, sky, p, x, between(rng, 244, 256), between(rng, 36, 56))
    if p.snow:
        snowfall(canvas, rng, 60)


def _tree(canvas: Canvas, rng: Generator, sky: Sky, p: Village, x: float, y: float, size: float) -> None:
    """Draw a tree that suits the season."""
    if p.snow:
        conifer(canvas, rng, x, y, size, sky.tint((52, 92, 80)), 0.85)
    else:
        broadleaf(canvas, rng, x, y, size, sky.tint(pick(rng, ((78, 128, 66), (98, 142, 70), (64, 112, 72)))))
