"""Deserts with dunes and cacti."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, dark, light, mix
from app.sample.parts.cactus import cactus
from app.sample.scenery import bird
from app.sample.shapes import blob, smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Desert", "choose", "draw"]

_SAND: dict[str, Colour] = {"golden": (236, 188, 112), "red": (214, 120, 76), "pale": (238, 216, 172)}


@dataclass(frozen=True, slots=True)
class Desert:
    """Parameters of one picture of a desert."""

    cacti: int
    sand: str
    mesas: bool
    bloom: bool
    vultures: int
    time: str
    cover: int


def choose(rng: Generator) -> Desert:
    """Draw the parameters."""
    return Desert(
        cacti=whole(rng, 0, 5),
        sand=pick(rng, tuple(_SAND)),
        mesas=chance(rng, 0.5),
        bloom=chance(rng, 0.4),
        vultures=pick(rng, (0, 0, 2, 3)),
        time=pick(rng, ("dawn", "morning", "noon", "noon", "afternoon", "sunset", "dusk", "night")),
        cover=pick(rng, (0, 0, 1)),
    )


def _mesas(canvas: Canvas, rng: Generator, sky: Sky, line: float) -> None:
    """Draw flat-topped rocks on the horizon."""
    for _ in range(whole(rng, 2, 4)):
        x, wide, high = between(rng, 0, 256), between(rng, 18, 46), between(rng, 20, 52)
        tone = sky.tint((182, 98, 78), between(rng, 0.2, 0.45))
        left = [
            (x - wide * 1.35, line + 4),
            (x - wide * 0.95, line - high * 0.35),
            (x - wide * 0.8, line - high),
        ]
        right = [
            (x + wide * 0.8, line - high),
            (x + wide * 0.9, line - high * 0.35),
            (x + wide * 1.4, line + 4),
        ]
        canvas.polygon([*left, *right], Fade((light(tone, 0.2), tone, dark(tone, 0.2))))
        canvas.polygon(
            [(x + wide * 0.2, line - high), *right, (x + wide * 0.4, line + 4)], dark(tone, 0.35), 0.55
        )
        for share in (0.2, 0.42):
            y = line - high * (1 - share)
            canvas.line([(x - wide * 0.82, y), (x + wide * 0.82, y)], 1.0, dark(tone, 0.3), 0.5)


def _dune(canvas: Canvas, rng: Generator, sky: Sky, tone: Colour, base: float, rise: float) -> None:
    """Draw one dune with a lit slope, a sharp crest and a shaded lee side."""
    top_x = between(rng, 40, 216)
    top = (top_x, base - rise)
    left = smooth(
        [
            (-60, base + rise * 0.35),
            (top_x * 0.35, base - rise * 0.15),
            (top_x * 0.75, base - rise * 0.72),
            top,
        ],
        closed=False,
    )
    right = smooth(
        [top, (top_x + (256 - top_x) * 0.4, base - rise * 0.5), (256, base - rise * 0.05), (320, base + 8)],
        closed=False,
    )
    canvas.polygon(
        [*left, *right[1:], (320, 262), (-60, 262)], Fade((light(tone, 0.25), tone, dark(tone, 0.18)))
    )
    crest = smooth(
        [
            top,
            (top_x - 12, base - rise * 0.45),
            (top_x + 22, base + rise * 0.1),
            (top_x + 6, base + rise * 0.9),
            (top_x + 60, 262),
        ],
        closed=False,
    )
    canvas.polygon(
        [*crest, (320, 262), *reversed(right)],
        Fade((dark(tone, 0.3), dark(tone, 0.16), dark(tone, 0.06))),
        0.85,
    )
    for k in range(6):
        y = base + rise * 0.3 + k * 5
        wave = smooth([(x, y + between(rng, -2, 2)) for x in range(-6, 270, 46)], closed=False, steps=4)
        canvas.line(wave, 0.5, dark(tone, 0.3), 0.2)


def draw(canvas: Canvas, p: Desert, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 132, 156)
    paint_sky(canvas, rng, sky, line + 24, p.cover)
    low = p.time in {"sunset", "dawn", "dusk"}
    sun(
        canvas,
        sky,
        between(rng, 30, 226),
        line - between(rng, 6, 40) if low else between(rng, 28, 56),
        between(rng, 13, 22) if low else 11,
    )
    clouds(canvas, rng, sky, (line + 24) * 0.6, p.cover)
    if p.mesas:
        _mesas(canvas, rng, sky, line + 6)
    sand = _SAND[p.sand]
    _dune(canvas, rng, sky, sky.tint(sand, 0.4), line + 12, between(rng, 12, 30))
    _dune(canvas, rng, sky, sky.tint(sand, 0.18), line + 34, between(rng, 18, 34))
    front = sky.tint(sand)
    feet = sorted((between(rng, 178, 216), between(rng, 16, 240)) for _ in range(p.cacti))
    _dune(canvas, rng, sky, front, 216, between(rng, 16, 36))
    for k, (foot, x) in enumerate(feet):
        if k:
            x = (feet[0][1] + k * 256 / p.cacti) % 232 + 12
        cactus(canvas, rng, sky, x, foot + 16, (foot - 130) * between(rng, 0.9, 1.25), p.bloom)
    for _ in range(whole(rng, 4, 10)):
        x, y, size = between(rng, 4, 252), between(rng, 214, 252), between(rng, 2, 7)
        stone = mix(front, (130, 96, 84), 0.45)
        canvas.polygon(blob(rng, x, y, size, size * 0.6), Fade((light(stone, 0.2), dark(stone, 0.45))))
    for _ in range(p.vultures):
        bird(
            canvas,
            rng,
            between(rng, 30, 226),
            between(rng, 30, 100),
            between(rng, 5, 9),
            dark(sky.stops[0], 0.6),
        )
