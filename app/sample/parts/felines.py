"""Cats."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import pick
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.shapes import Points, oval, place, smooth
from app.sample.skies import Sky

__all__ = ["FUR", "Look", "cat"]


@dataclass(frozen=True, slots=True)
class Look:
    """How a cat looks: its coat, and whether its face is seen."""

    striped: bool
    facing: bool


FUR: dict[str, Colour] = {
    "ginger": (226, 140, 66),
    "black": (58, 54, 66),
    "white": (244, 240, 232),
    "grey": (146, 150, 160),
    "brown": (142, 104, 76),
}


_BODY = smooth(
    [
        (0, -1.02),
        (0.3, -0.86),
        (0.44, -0.4),
        (0.52, -0.1),
        (0.46, 0.02),
        (-0.46, 0.02),
        (-0.52, -0.1),
        (-0.44, -0.4),
        (-0.3, -0.86),
    ],
    steps=4,
)


_HEAD = smooth(
    [
        (-0.02, -1.62),
        (0.24, -1.58),
        (0.43, -1.3),
        (0.36, -1.06),
        (0.0, -0.94),
        (-0.36, -1.06),
        (-0.43, -1.3),
        (-0.24, -1.58),
    ],
    steps=4,
)


_LIGHT_CHEST = ("ginger", "grey", "brown")
_EAR = ((-0.42, -1.36), (-0.4, -1.84), (-0.1, -1.58))


def _stripes(canvas: Canvas, at: Points, tone: Colour) -> None:
    """Draw one tabby stripe."""
    canvas.polygon(smooth(at, steps=3), dark(tone, 0.42), 0.75)


def _face(canvas: Canvas, x: float, y: float, size: float, tone: Colour, sky: Sky, eye: Colour) -> None:
    """Draw eyes, nose and whiskers."""
    pale = mix(tone, (255, 248, 240), 0.55)
    canvas.polygon(place(oval(0, -1.1, 0.19, 0.12), x, y, size), pale, 0.8)
    for side in (-1, 1):
        canvas.polygon(place(oval(side * 0.18, -1.31, 0.105, 0.115), x, y, size), eye)
        canvas.polygon(
            place(oval(side * 0.18, -1.31, 0.034 if not sky.dim else 0.07, 0.1), x, y, size), (20, 20, 28)
        )
        canvas.polygon(
            place(oval(side * 0.18 - 0.03, -1.35, 0.022, 0.022, 0, 8), x, y, size), (255, 255, 255)
        )
        for k in range(3):
            canvas.line(
                place([(side * 0.16, -1.1 + 0.03 * k), (side * 0.56, -1.17 + 0.08 * k)], x, y, size),
                0.35,
                light(tone, 0.6),
                0.8,
            )
    canvas.polygon(place([(-0.06, -1.19), (0.06, -1.19), (0, -1.12)], x, y, size), (226, 138, 134))


def _tail(canvas: Canvas, tone: Colour, striped: bool, side: int, x: float, foot: float, size: float) -> None:
    """Draw a tail that hangs over the edge, ringed on a tabby."""
    tail = [
        (side * 0.36, -0.06),
        (side * 0.72, -0.08),
        (side * 0.82, 0.3),
        (side * 0.66, 0.75),
        (side * 0.86, 1.02),
    ]
    curve = smooth(place(tail, x, foot, size), closed=False, steps=6)
    for k, (tx, ty) in enumerate(curve):
        shade = dark(tone, 0.45) if striped and k % 5 < 2 else dark(tone, 0.12)
        canvas.ellipse(tx, ty, size * 0.09, size * 0.09, shade)


def _tabby(canvas: Canvas, tone: Colour, x: float, foot: float, size: float) -> None:
    """Draw the stripes of a tabby."""
    for k in range(4):
        y = -0.78 + 0.2 * k
        for flip in (False, True):
            _stripes(
                canvas,
                place(
                    [(-0.34 - 0.03 * k, y), (-0.14, y + 0.05), (-0.36 - 0.03 * k, y + 0.08)],
                    x,
                    foot,
                    size,
                    flip=flip,
                ),
                tone,
            )
    for k in (-1, 0, 1):
        _stripes(
            canvas,
            place([(k * 0.12 - 0.03, -1.6), (k * 0.12 + 0.03, -1.6), (k * 0.09, -1.42)], x, foot, size),
            tone,
        )


def _chest(canvas: Canvas, bib: Colour, tone: Colour, x: float, foot: float, size: float) -> None:
    """Draw the light chest and the paws."""
    canvas.polygon(place(oval(0, -0.66, 0.16, 0.24), x, foot, size), bib, 0.8)
    for k in (-1, 1):
        canvas.polygon(
            place(oval(k * 0.15, -0.06, 0.14, 0.1), x, foot, size), Fade((light(bib, 0.2), dark(bib, 0.2)))
        )
        canvas.line(
            place([(k * 0.26, -0.5), (k * 0.24, -0.1)], x, foot, size), size * 0.02, dark(tone, 0.5), 0.6
        )


def cat(
    canvas: Canvas, rng: Generator, sky: Sky, fur: str, look: Look, x: float, foot: float, size: float
) -> None:
    """Draw one cat sitting upright with its tail over the wall."""
    tone = mix(sky.tint(jitter(rng, FUR[fur], 6)), FUR[fur], 0.25)
    rim, side = mix(tone, sky.shine, 0.5), pick(rng, (-1, 1))
    _tail(canvas, tone, look.striped, side, x, foot, size)
    canvas.soft([oval(x, foot, size * 0.62, size * 0.07)], 1.6, (16, 16, 30), 0.5)
    canvas.polygon(place(_BODY, x, foot, size), Fade((rim, tone, dark(tone, 0.4)), "across"))
    for flip in (False, True):
        canvas.polygon(place(_EAR, x, foot, size, flip=flip), Fade((light(tone, 0.12), tone)))
        inner = [(-0.36, -1.46), (-0.355, -1.72), (-0.18, -1.56)]
        canvas.polygon(
            place(inner, x, foot, size, flip=flip),
            mix(tone, (232, 150, 150), 0.5) if look.facing else dark(tone, 0.2),
        )
    canvas.polygon(place(_HEAD, x, foot, size), Fade((light(tone, 0.22), tone, dark(tone, 0.16))))
    if look.striped:
        _tabby(canvas, tone, x, foot, size)
    if not look.facing:
        return
    _chest(canvas, mix(tone, (255, 250, 244), 0.6 if fur in _LIGHT_CHEST else 0.12), tone, x, foot, size)
    _face(canvas, x, foot, size, tone, sky, pick(rng, ((206, 214, 92), (240, 190, 70), (120, 190, 210))))
