"""Cacti."""

from __future__ import annotations

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, pick
from app.sample.palette import Colour, Fade, dark, jitter, light
from app.sample.shapes import smooth
from app.sample.skies import Sky

__all__ = ["cactus"]


def _skin(tone: Colour) -> Fade:
    """Return the shading of a round green column."""
    return Fade((dark(tone, 0.1), light(tone, 0.3), tone, dark(tone, 0.5)), "across")


def _arms(
    canvas: Canvas, rng: Generator, tone: Colour, x: float, foot: float, high: float
) -> list[tuple[float, float]]:
    """Draw the arms and return their tips."""
    wide, tips = high * 0.1, []
    skin = _skin(tone)
    for side in pick(rng, ((-1, 1), (-1, 1), (1,), (-1,))):
        y, out, up = (
            foot - high * between(rng, 0.35, 0.55),
            wide * between(rng, 2.4, 3.1),
            high * between(rng, 0.2, 0.34),
        )
        arm, tip = wide * 0.62, x + side * out
        canvas.line(
            smooth(
                [(x, y), (x + side * out * 0.7, y + arm * 0.2), (tip, y - arm * 1.2)], closed=False, steps=5
            ),
            arm * 1.9,
            dark(tone, 0.14),
        )
        column = [
            (tip - arm, y - arm * 0.6),
            (tip - arm, y - up + arm),
            (tip - arm * 0.6, y - up + arm * 0.2),
            (tip, y - up),
        ]
        column += [(2 * tip - px, py) for px, py in reversed(column[:-1])]
        canvas.polygon(column, skin)
        tips.append((tip, y - up))
    return tips


def cactus(canvas: Canvas, rng: Generator, sky: Sky, x: float, foot: float, high: float, bloom: bool) -> None:
    """Draw a saguaro with ribs and one to three arms."""
    tone = sky.tint(jitter(rng, (84, 138, 84), 8))
    wide = high * 0.1
    canvas.polygon(
        [
            (x - wide, foot - 1),
            (x + wide, foot - 1),
            (x + high * 0.75, foot + high * 0.13),
            (x + high * 0.55, foot + high * 0.15),
        ],
        dark(tone, 0.75),
        0.3,
    )
    skin = _skin(tone)
    tips = _arms(canvas, rng, tone, x, foot, high)
    trunk = [
        (x - wide, foot),
        (x - wide, foot - high + wide),
        (x - wide * 0.6, foot - high + wide * 0.25),
        (x, foot - high),
    ]
    trunk += [(2 * x - px, py) for px, py in reversed(trunk[:-1])]
    canvas.polygon(trunk, skin)
    for k in (-0.55, -0.1, 0.4):
        canvas.line(
            [(x + k * wide, foot - high + wide * 0.7), (x + k * wide, foot - 1)],
            wide * 0.09,
            dark(tone, 0.5),
            0.5,
        )
    for tip_x, tip_y in [(x, foot - high), *tips] if bloom else ():
        canvas.ellipse(tip_x, tip_y, wide * 0.55, wide * 0.4, sky.tint((244, 116, 154)))
