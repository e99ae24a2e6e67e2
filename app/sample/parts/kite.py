"""Kites."""

from __future__ import annotations

from app.sample.canvas import Canvas
from app.sample.palette import Colour, Fade, dark, light
from app.sample.shapes import place, smooth

__all__ = ["kite"]


def _tail(canvas: Canvas, tones: tuple[Colour, Colour], x: float, y: float, size: float, turn: float) -> None:
    """Draw the tail with its bows."""
    a, b = tones
    tail = [(0.0, 1.25)] + [(0.26 * (1 if k % 2 else -1), 1.25 + 0.42 * k) for k in range(1, 6)]
    curve = smooth(place(tail, x, y, size, turn=turn), closed=False, steps=5)
    canvas.line(curve, 0.8, dark(a, 0.3))
    for k in range(6, len(curve), 5):
        bx, by = curve[k]
        for side in (-1, 1):
            bow = [
                (bx, by),
                (bx + side * size * 0.2, by - size * 0.1),
                (bx + side * size * 0.2, by + size * 0.1),
            ]
            canvas.polygon(bow, b if k % 2 else a)


def kite(
    canvas: Canvas,
    delta: bool,
    tones: tuple[Colour, Colour],
    x: float,
    y: float,
    size: float,
    turn: float,
) -> None:
    """Draw one kite with its tail of bows."""
    a, b = tones
    _tail(canvas, tones, x, y, size, turn)
    if delta:
        parts = [
            ([(0, -0.9), (-1.2, 0.5), (-0.35, 0.35)], light(a, 0.18)),
            ([(0, -0.9), (-0.35, 0.35), (0, 0.75)], b),
        ]
        parts += [
            ([(0, -0.9), (0, 0.75), (0.35, 0.35)], dark(b, 0.2)),
            ([(0, -0.9), (0.35, 0.35), (1.2, 0.5)], dark(a, 0.12)),
        ]
    else:
        parts = [
            ([(0, -1), (-0.75, -0.2), (0, -0.2)], light(a, 0.2)),
            ([(0, -1), (0.75, -0.2), (0, -0.2)], b),
        ]
        parts += [
            ([(-0.75, -0.2), (0, -0.2), (0, 1.25)], dark(b, 0.08)),
            ([(0.75, -0.2), (0, -0.2), (0, 1.25)], dark(a, 0.22)),
        ]
    for outline, tone in parts:
        canvas.polygon(
            place(outline, x, y, size, turn=turn), Fade((light(tone, 0.16), tone, dark(tone, 0.12)))
        )
    canvas.line(place([(0, -0.98), (0, 1.0)], x, y, size, turn=turn), 0.5, dark(a, 0.5), 0.6)
