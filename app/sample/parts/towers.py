"""Tall buildings."""

from __future__ import annotations

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import chance, pick
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.skies import Sky

__all__ = ["STONE", "tower"]


STONE: dict[str, tuple[Colour, ...]] = {
    "glass": ((96, 138, 170), (82, 120, 158), (120, 158, 182)),
    "brick": ((150, 96, 80), (132, 84, 76), (172, 120, 96)),
    "pale": ((190, 190, 192), (206, 200, 190), (172, 178, 188)),
}


def _panes(
    canvas: Canvas, rng: Generator, sky: Sky, tone: Colour, box: tuple[float, float, float, float], lit: float
) -> None:
    """Draw rows of windows on a wall, a share of them lit."""
    left, top, right, foot = box
    columns = max(2, int((right - left) / 4.6))
    step = (right - left) / columns
    glass = mix(dark(tone, 0.35), sky.horizon, 0.2)
    warm = ((255, 216, 128), (255, 234, 176), (250, 190, 104))
    y = top + 4
    while y < foot - 4:
        for k in range(columns):
            on = chance(rng, lit)
            x = left + (k + 0.22) * step
            canvas.rectangle(
                x, y, x + step * 0.56, y + 2.9, pick(rng, warm) if on else glass, 0.95 if on else 0.75
            )
        y += 5.6


def _crown(canvas: Canvas, roof: str, body: Fade, dim: bool, x: float, top: float, wide: float) -> None:
    """Draw what tops a building."""
    left, right = x - wide / 2, x + wide / 2
    if roof == "slant":
        canvas.polygon([(left, top), (right, top - wide * 0.5), (right, top + 1), (left, top + 1)], body)
    elif roof == "dome":
        canvas.ellipse(x, top + 1, wide * 0.42, wide * 0.36, body)
    elif roof in {"step", "spire"}:
        canvas.rectangle(x - wide * 0.33, top - 9, x + wide * 0.33, top + 1, body)
        canvas.rectangle(x - wide * 0.2, top - 16, x + wide * 0.2, top - 8, body)
    if roof == "spire":
        canvas.polygon([(x - wide * 0.16, top - 15), (x, top - 44), (x + wide * 0.16, top - 15)], body)
        canvas.ellipse(x, top - 44, 1, 1, (255, 110, 90))
        canvas.glow(x, top - 44, 7, (255, 120, 90), 0.7 if dim else 0.0)


def tower(
    canvas: Canvas,
    rng: Generator,
    sky: Sky,
    stone: str,
    x: float,
    wide: float,
    high: float,
    foot: float,
    spire: bool,
) -> None:
    """Draw one tall building with a roof of its own and lit windows."""
    tone = sky.tint(jitter(rng, pick(rng, STONE[stone]), 8))
    left, right, top = x - wide / 2, x + wide / 2, foot - high
    roof = pick(rng, ("flat", "step", "slant", "dome")) if not spire else "spire"
    body = Fade((light(tone, 0.2), tone, dark(tone, 0.38)), "across")
    _crown(canvas, roof, body, sky.dim, x, top, wide)
    canvas.rectangle(left, top, right, foot, body)
    canvas.polygon(
        [(left, top), (right, top), (right, foot), (left, foot)],
        Fade((tone, mix(tone, sky.horizon, 0.6))),
        0.4,
    )
    _panes(
        canvas,
        rng,
        sky,
        tone,
        (left, top, right, foot),
        {"night": 0.55, "dusk": 0.5, "sunset": 0.25}.get(sky.time, 0.03),
    )
