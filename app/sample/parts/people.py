"""People and what they carry."""

from __future__ import annotations

from math import cos, pi

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, pick
from app.sample.palette import Colour, Fade, dark, light, mix
from app.sample.shapes import oval, smooth
from app.sample.skies import Sky

__all__ = ["parasol", "person", "walker"]


def _trunk(canvas: Canvas, shirt: Colour, legs: Colour, x: float, foot: float, size: float) -> None:
    """Draw legs and shirt."""
    for side in (-1, 1):
        canvas.line(
            [(x + side * size * 0.05, foot - size * 0.42), (x + side * size * 0.1, foot)], size * 0.1, legs
        )
    canvas.polygon(
        smooth(
            [
                (x - size * 0.13, foot - size * 0.4),
                (x - size * 0.15, foot - size * 0.76),
                (x + size * 0.15, foot - size * 0.76),
                (x + size * 0.13, foot - size * 0.4),
            ],
            steps=3,
        ),
        Fade((light(shirt, 0.2), dark(shirt, 0.2))),
    )


def person(
    canvas: Canvas, rng: Generator, sky: Sky, x: float, foot: float, size: float, reach: int
) -> tuple[float, float]:
    """Draw a standing person with a raised arm; return the place of the hand."""
    shirt = sky.tint(
        pick(rng, ((222, 84, 72), (70, 130, 190), (240, 190, 80), (90, 160, 120), (240, 240, 236)))
    )
    legs, skin = (
        sky.tint(pick(rng, ((60, 72, 110), (92, 76, 70), (200, 180, 150)))),
        sky.tint(pick(rng, ((236, 190, 156), (172, 118, 86), (112, 76, 58)))),
    )
    canvas.ellipse(x + size * 0.2, foot, size * 0.42, size * 0.05, dark(sky.tint((200, 170, 120)), 0.6), 0.5)
    _trunk(canvas, shirt, legs, x, foot, size)
    hand = (x + reach * size * 0.36, foot - size * 0.98)
    canvas.line(
        [(x + reach * size * 0.1, foot - size * 0.72), (x + reach * size * 0.26, foot - size * 0.76), hand],
        size * 0.075,
        skin,
    )
    canvas.line(
        [(x - reach * size * 0.12, foot - size * 0.72), (x - reach * size * 0.2, foot - size * 0.46)],
        size * 0.075,
        skin,
    )
    canvas.ellipse(x, foot - size * 0.9, size * 0.11, size * 0.12, skin)
    hair = pick(rng, ((60, 42, 36), (150, 100, 56), (36, 34, 40)))
    canvas.polygon(
        oval(x - reach * size * 0.02, foot - size * 0.945, size * 0.12, size * 0.085), sky.tint(hair)
    )
    return hand


def parasol(canvas: Canvas, sky: Sky, x: float, foot: float) -> None:
    """Draw a striped parasol stuck in the sand."""
    canvas.ellipse(x + 8, foot, 26, 3, dark(sky.tint((206, 176, 126)), 0.5), 0.45)
    canvas.line([(x, foot), (x + 4, foot - 38)], 1.3, sky.tint((240, 236, 228)))
    for k in range(6):
        tone = sky.tint((226, 84, 74) if k % 2 else (250, 244, 232))
        a, b = -1 + k / 3, -1 + (k + 1) / 3
        canvas.polygon(
            [
                (x + 4, foot - 48),
                (x + 4 + a * 25, foot - 33 + abs(a) * 2),
                (x + 4 + b * 25, foot - 33 + abs(b) * 2),
            ],
            Fade((light(tone, 0.1), dark(tone, 0.16))),
        )


def _umbrella(canvas: Canvas, tone: Colour, x: float, y: float, reach: float) -> None:
    """Draw an open umbrella whose canopy rests on ``y``."""
    ribs = [-cos(pi * k / 6) for k in range(7)]
    rise = reach * 0.82
    for k in range(6):
        a, b = ribs[k], ribs[k + 1]
        arc = [
            (x + t * reach * (1 - (1 - s) ** 2.2), y - rise * (1 - s**1.7))
            for t in (a,)
            for s in (k2 / 8 for k2 in range(9))
        ]
        back = [
            (x + b * reach * (1 - (1 - s) ** 2.2), y - rise * (1 - s**1.7))
            for s in (k2 / 8 for k2 in range(8, -1, -1))
        ]
        hem = [(x + (a + b) / 2 * reach, y - reach * 0.085)]
        shade = (
            light(tone, 0.24),
            light(tone, 0.1),
            tone,
            dark(tone, 0.08),
            dark(tone, 0.22),
            dark(tone, 0.34),
        )[k]
        canvas.polygon([*arc, *hem, *back], Fade((light(shade, 0.2), shade, dark(shade, 0.14))))
    canvas.line([(x, y - rise - reach * 0.1), (x, y - rise + 1)], reach * 0.045, dark(tone, 0.6))


def _legs(canvas: Canvas, rng: Generator, coat: Colour, x: float, foot: float, size: float) -> None:
    """Draw legs and shoes in mid-step."""
    step = between(rng, 0.04, 0.1) * size
    for side in (-1, 1):
        canvas.line(
            [(x + side * size * 0.05, foot - size * 0.32), (x + side * step, foot - size * 0.02)],
            size * 0.085,
            dark(coat, 0.55),
        )
        canvas.ellipse(
            x + side * step + size * 0.02, foot - size * 0.015, size * 0.065, size * 0.03, dark(coat, 0.75)
        )


def walker(
    canvas: Canvas, rng: Generator, tone: Colour, air: Colour, x: float, foot: float, size: float
) -> None:
    """Draw a person in a coat below an umbrella."""
    coat = mix(
        pick(rng, ((66, 74, 104), (122, 90, 78), (84, 100, 96), (150, 126, 100), (92, 64, 92))), air, 0.12
    )
    skin = mix(pick(rng, ((236, 192, 160), (170, 118, 88), (116, 80, 62))), air, 0.2)
    canvas.soft([oval(x, foot + 1, size * 0.3, size * 0.03)], 1.5, (20, 22, 40), 0.5)
    _legs(canvas, rng, coat, x, foot, size)
    body = smooth(
        [
            (x - size * 0.19, foot - size * 0.2),
            (x - size * 0.13, foot - size * 0.55),
            (x - size * 0.09, foot - size * 0.71),
            (x + size * 0.09, foot - size * 0.71),
            (x + size * 0.13, foot - size * 0.55),
            (x + size * 0.19, foot - size * 0.2),
        ],
        steps=4,
    )
    canvas.polygon(body, Fade((light(coat, 0.2), coat, dark(coat, 0.4)), "across"))
    canvas.line([(x, foot - size * 0.7), (x, foot - size * 0.26)], 0.6, dark(coat, 0.5), 0.7)
    canvas.ellipse(x, foot - size * 0.78, size * 0.085, size * 0.095, skin)
    canvas.polygon(
        oval(x - size * 0.01, foot - size * 0.835, size * 0.09, size * 0.05),
        mix(pick(rng, ((52, 38, 34), (150, 98, 54), (40, 40, 48))), air, 0.1),
    )
    hold = (x + size * 0.16, foot - size * 0.5)
    canvas.line(
        [(x + size * 0.08, foot - size * 0.64), (x + size * 0.17, foot - size * 0.56), hold],
        size * 0.075,
        dark(coat, 0.15),
    )
    canvas.line([hold, (x + size * 0.07, foot - size * 1.22)], size * 0.022, (70, 64, 70))
    _umbrella(canvas, tone, x + size * 0.05, foot - size * 0.86, size * 0.47)
