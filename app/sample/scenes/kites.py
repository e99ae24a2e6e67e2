"""Kites above a beach."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, several, whole
from app.sample.palette import NAMED, Fade, dark, jitter, light, mix
from app.sample.parts.kite import kite
from app.sample.parts.people import parasol, person
from app.sample.scenery import glints, hills, sea
from app.sample.shapes import smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Kites", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Kites:
    """Parameters of one picture of kites."""

    number: int
    first: str
    second: str
    delta: bool
    parasol: bool
    people: int
    time: str
    cover: int


def choose(rng: Generator) -> Kites:
    """Draw the parameters."""
    first, second = several(
        rng, ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink", "white"), 2
    )
    number = whole(rng, 1, 5)
    return Kites(
        number=number,
        first=first,
        second=second,
        delta=chance(rng, 0.35),
        parasol=chance(rng, 0.4),
        people=min(number, whole(rng, 1, 3)),
        time=pick(rng, ("morning", "noon", "noon", "afternoon", "sunset", "dawn", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _sand(canvas: Canvas, rng: Generator, sky: Sky, beach: float) -> None:
    """Draw the sand with a line of surf."""
    sand = sky.tint((236, 206, 150))
    edge = smooth([(x, beach + between(rng, -5, 5)) for x in (-4, 70, 150, 260)], closed=False)
    for shift, tone, alpha in ((-3.0, (252, 252, 250), 0.55), (-1.2, (255, 255, 255), 0.9)):
        canvas.polygon([*((x, y + shift) for x, y in edge), (260, 258), (-4, 258)], sky.tint(tone), alpha)
    canvas.polygon(
        [*edge, (260, 258), (-4, 258)], Fade((dark(sand, 0.12), light(sand, 0.12), sand, dark(sand, 0.16)))
    )
    for _ in range(70):
        canvas.ellipse(
            between(rng, 0, 256),
            between(rng, beach + 6, 256),
            between(rng, 0.5, 4),
            0.4,
            dark(jitter(rng, sand, 8), 0.25),
            0.5,
        )


def _flock(canvas: Canvas, rng: Generator, sky: Sky, p: Kites, hands: list[tuple[float, float]]) -> None:
    """Draw the kites with their strings to the hands."""
    order = rng.permutation(p.number)
    for k in range(p.number):
        x = 30 + (int(order[k]) + 0.5) * 196 / p.number + between(rng, -8, 8)
        y, size = (
            between(rng, 36, 112),
            between(rng, 17, 24) * (1.4 if p.number == 1 else 1.12 if p.number < 4 else 0.88),
        )
        hand = hands[k % len(hands)]
        sag = ((x + hand[0]) / 2 + 5, (y + hand[1]) / 2 + 13)
        canvas.line(smooth([(x, y), sag, hand], closed=False, steps=9), 0.4, dark(sky.stops[0], 0.4), 0.75)
        first, second = (mix(sky.tint(NAMED[name]), NAMED[name], 0.5) for name in (p.first, p.second))
        kite(
            canvas,
            p.delta,
            (second, first) if k % 2 else (first, second),
            x,
            y,
            size,
            between(rng, -0.5, 0.5),
        )


def draw(canvas: Canvas, p: Kites, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 172, 190)
    paint_sky(canvas, rng, sky, line, p.cover)
    sun(
        canvas,
        sky,
        between(rng, 24, 232),
        line - between(rng, 4, 26) if p.time in {"sunset", "dawn"} else between(rng, 22, 50),
        10,
    )
    clouds(canvas, rng, sky, line * 0.85, p.cover)
    if chance(rng, 0.5):
        hills(canvas, rng, sky, line + 2, 14, (84, 124, 120), 0.55, 4)
    beach = between(rng, 202, 214)
    sea(canvas, rng, sky, line, beach + 8, (36, 128, 172))
    glints(canvas, rng, sky, line, beach, 60)
    _sand(canvas, rng, sky, beach)
    if p.parasol:
        parasol(canvas, sky, pick(rng, (24.0, 212.0)), 240)
    hands = [
        person(
            canvas,
            rng,
            sky,
            64 + 56 * k + between(rng, -14, 14),
            between(rng, 226, 246),
            between(rng, 30, 40),
            pick(rng, (-1, 1)),
        )
        for k in range(p.people)
    ]
    _flock(canvas, rng, sky, p, hands)
