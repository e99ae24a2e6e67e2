"""Cats sitting on a wall."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.parts.felines import FUR, Look, cat
from app.sample.scenery import broadleaf, hills
from app.sample.shapes import oval
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Cats", "choose", "draw"]

_WALL: dict[str, Colour] = {"brick": (176, 98, 78), "stone": (158, 152, 146), "white": (232, 226, 214)}


@dataclass(frozen=True, slots=True)
class Cats:
    """Parameters of one picture of cats."""

    furs: tuple[str, ...]
    striped: bool
    facing: bool
    wall: str
    ivy: bool
    time: str
    cover: int


def choose(rng: Generator) -> Cats:
    """Draw the parameters."""
    return Cats(
        furs=tuple(pick(rng, tuple(FUR)) for _ in range(whole(rng, 1, 4))),
        striped=chance(rng, 0.45),
        facing=chance(rng, 0.6),
        wall=pick(rng, tuple(_WALL)),
        ivy=chance(rng, 0.45),
        time=pick(rng, ("morning", "noon", "afternoon", "sunset", "dusk", "night", "night", "dawn")),
        cover=whole(rng, 0, 2),
    )


def _wall(canvas: Canvas, rng: Generator, sky: Sky, p: Cats, top: float) -> None:
    """Draw the wall with its courses of stones and its coping."""
    tone = sky.tint(_WALL[p.wall])
    canvas.rectangle(0, top, 256, 256, Fade((light(tone, 0.06), dark(tone, 0.3))))
    row, y, high = 0, top + 9, 13 if p.wall == "brick" else 19
    while y < 256 and p.wall != "white":
        x = -between(rng, 0, 20) - 14 * (row % 2)
        while x < 256:
            wide = 27 if p.wall == "brick" else between(rng, 24, 44)
            stone = jitter(rng, mix(tone, dark(tone, 0.3), (y - top) / 150), 9)
            face = [
                (x + 1, y + 1),
                (x + wide - 1, y + 1),
                (x + wide - 1, y + high - 1),
                (x + 1, y + high - 1),
            ]
            canvas.polygon(face, light(stone, 0.08))
            canvas.line([face[0], face[1]], 0.6, light(stone, 0.35), 0.6)
            canvas.line([face[3], face[2]], 0.7, dark(stone, 0.5), 0.6)
            x += wide
        y, row = y + high, row + 1
    canvas.rectangle(-2, top - 3, 258, top + 8, Fade((light(tone, 0.42), light(tone, 0.15), dark(tone, 0.3))))
    canvas.rectangle(0, top + 8, 256, top + 12, dark(tone, 0.6), 0.4)
    if p.wall == "white":
        canvas.texture(rng, top + 12, 256, 6, (9, 5))
    for _ in range(120 if p.ivy else 0):
        x, y = abs(float(rng.normal(0, 46))), top + abs(float(rng.normal(0, 44)))
        leaf = sky.tint(jitter(rng, (76, 126, 64), 13))
        canvas.polygon(oval(x, y, 5.0, 2.9, between(rng, 0, 3.1), 9), leaf)
        canvas.polygon(oval(x - 0.8, y - 0.9, 2.6, 1.1, 0.4, 8), light(leaf, 0.3), 0.6)


def draw(canvas: Canvas, p: Cats, rng: Generator) -> None:
    """Paint the picture."""
    sky, top = make_sky(rng, p.time), between(rng, 166, 192)
    paint_sky(canvas, rng, sky, top + 10, p.cover)
    big = p.time in {"sunset", "night", "dusk", "dawn"}
    sun(
        canvas,
        sky,
        between(rng, 40, 216),
        between(rng, 50, 110) if big else between(rng, 22, 50),
        between(rng, 16, 30) if big else 10,
    )
    clouds(canvas, rng, sky, (top + 10) * 0.6, p.cover)
    hills(canvas, rng, sky, top - 4, 34, (92, 128, 108), 0.45, 3)
    for _ in range(whole(rng, 0, 3)):
        broadleaf(
            canvas, rng, between(rng, 10, 246), top + 6, between(rng, 50, 90), sky.tint((82, 128, 72), 0.15)
        )
    _wall(canvas, rng, sky, p, top)
    count = len(p.furs)
    for k, fur in enumerate(p.furs):
        size = (60, 46, 37, 31)[count - 1] * between(rng, 0.86, 1.06)
        cat(
            canvas,
            rng,
            sky,
            fur,
            Look(p.striped, p.facing),
            18 + (k + 0.5) * 220 / count + between(rng, -6, 6),
            top + 2,
            size,
        )
