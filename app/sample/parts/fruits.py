"""Single fruits and bunches."""

from __future__ import annotations

from math import cos, pi, sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick
from app.sample.palette import Colour, Fade, ball, dark, jitter, light
from app.sample.shapes import oval, place, smooth

__all__ = ["FRUIT", "bananas", "grapes", "piece"]


FRUIT: dict[str, Colour] = {
    "apples": (208, 56, 52),
    "green apples": (142, 188, 74),
    "oranges": (246, 148, 44),
    "lemons": (250, 214, 72),
    "pears": (196, 200, 92),
    "plums": (110, 62, 128),
    "peaches": (248, 170, 118),
}


_APPLE = "0 -78 50 -95 98 -50 92 30 50 92 0 84 -50 92 -92 30 -98 -50 -50 -95"
_PEAR = "0 -130 42 -100 50 -40 92 25 62 86 0 98 -62 86 -92 25 -50 -40 -42 -100"
_LEMON = "128 0 95 30 50 70 -20 78 -90 36 -120 0 -90 -36 -20 -78 50 -70 95 -30"


def _outline(numbers: str) -> list[tuple[float, float]]:
    """Return a smooth outline through points in hundredths of the fruit's size."""
    values = [int(number) / 100 for number in numbers.split()]
    return smooth(list(zip(values[::2], values[1::2], strict=True)), steps=4)


_OUTLINES = {
    "apples": _outline(_APPLE),
    "green apples": _outline(_APPLE),
    "pears": _outline(_PEAR),
    "lemons": _outline(_LEMON),
}


def _stalk(canvas: Canvas, rng: Generator, kind: str, x: float, y: float, size: float, turn: float) -> None:
    """Draw the stalk of an apple or a pear, often with a leaf."""
    top = -1.25 if kind == "pears" else -0.78
    canvas.line(place([(0, top + 0.06), (0.1, top - 0.4)], x, y, size, turn=turn), size * 0.09, (92, 64, 44))
    if chance(rng, 0.5):
        leaf = smooth([(0.08, top - 0.2), (0.4, top - 0.5), (0.8, top - 0.4), (0.45, top - 0.12)], steps=4)
        canvas.polygon(place(leaf, x, y, size, turn=turn), Fade(((128, 178, 84), (74, 128, 66))))


def piece(canvas: Canvas, rng: Generator, kind: str, x: float, y: float, size: float) -> None:
    """Draw one fruit."""
    tone = jitter(rng, FRUIT[kind], 7)
    turn = between(rng, -0.5, 0.5)
    outline = _OUTLINES.get(kind, oval(0, 0, 0.98, 0.95))
    canvas.soft(
        [oval(x + size * 0.15, y + size * 0.25, size * 0.95, size * 0.9)], size * 0.12, dark(tone, 0.85), 0.3
    )
    canvas.polygon(place(outline, x, y, size, turn=turn), ball(tone, 0.55, 0.5))
    if kind == "peaches":
        canvas.soft(
            [oval(x + size * 0.3, y + size * 0.1, size * 0.4, size * 0.55)], size * 0.2, (232, 92, 84), 0.5
        )
    if kind in {"plums", "peaches"}:
        canvas.line(
            smooth(
                place([(0.05, -0.92), (0.3, -0.2), (0.15, 0.8)], x, y, size, turn=turn), closed=False, steps=5
            ),
            size * 0.05,
            dark(tone, 0.4),
            0.6,
        )
    if kind == "oranges":
        for _ in range(14):
            a, d = between(rng, 0, 2 * pi), size * between(rng, 0, 0.8)
            canvas.ellipse(x + d * cos(a), y + d * sin(a), size * 0.03, size * 0.03, dark(tone, 0.25), 0.5)
    if "apples" in kind or kind == "pears":
        _stalk(canvas, rng, kind, x, y, size, turn)
    canvas.polygon(
        oval(x - size * 0.34, y - size * 0.42, size * 0.2, size * 0.12, -0.6), (255, 255, 255), 0.4
    )


def bananas(canvas: Canvas, x: float, y: float, size: float, flip: bool) -> None:
    """Draw a hand of three bananas."""
    curve = smooth(
        [
            (-1.5, -0.35),
            (-0.7, 0.25),
            (0.4, 0.3),
            (1.35, -0.5),
            (1.5, -0.78),
            (1.62, -0.72),
            (1.55, -0.3),
            (0.75, 0.62),
            (-0.5, 0.72),
            (-1.45, -0.1),
        ],
        steps=4,
    )
    for k in range(3):
        tone = dark((250, 212, 72), 0.03 + 0.09 * (2 - k))
        outline = place(curve, x + k * 1.6, y - 7 + k * 6.5, size, turn=-0.12 + 0.1 * k, flip=flip)
        canvas.polygon(outline, Fade((light(tone, 0.35), tone, dark(tone, 0.3))))
        canvas.line(outline[10:28], 0.7, dark(tone, 0.4), 0.4)


def grapes(canvas: Canvas, rng: Generator, x: float, y: float) -> None:
    """Draw a hanging bunch of grapes."""
    tone = pick(rng, ((104, 54, 118), (150, 184, 86), (74, 62, 126)))
    for row in range(6):
        wide = (3, 4, 4, 3, 2, 1)[row]
        for k in range(wide):
            gx, gy = x + (k - (wide - 1) / 2) * 9.2 + between(rng, -1, 1), y + row * 7.6
            canvas.ellipse(gx, gy, 5.6, 5.8, ball(jitter(rng, tone, 6), 0.55, 0.5))
            canvas.ellipse(gx - 1.8, gy - 2.2, 1.0, 0.8, (255, 255, 255), 0.6)
