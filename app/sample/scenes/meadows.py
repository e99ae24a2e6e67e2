"""Flower meadows below a wide sky."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, ball, dark, down, jitter, light
from app.sample.scenery import broadleaf, grass, hills
from app.sample.shapes import oval, place, smooth
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Meadow", "choose", "draw"]

_FLOWERS: dict[str, tuple[str, tuple[Colour, ...]]] = {
    "sunflowers": ("disc", ((250, 196, 40), (244, 172, 30))),
    "daisies": ("disc", ((250, 248, 240), (242, 240, 246))),
    "poppies": ("cup", ((220, 52, 44), (204, 38, 40))),
    "tulips": ("tulip", ((228, 60, 84), (244, 150, 60), (246, 206, 80), (196, 92, 172))),
    "cornflowers": ("disc", ((72, 104, 212), (94, 124, 226))),
    "lavender": ("spike", ((142, 104, 196), (120, 86, 178))),
}


@dataclass(frozen=True, slots=True)
class Meadow:
    """Parameters of one picture of a flower meadow."""

    flower: str
    big: int
    tree: bool
    butterflies: int
    time: str
    cover: int


def choose(rng: Generator) -> Meadow:
    """Draw the parameters."""
    return Meadow(
        flower=pick(rng, tuple(_FLOWERS)),
        big=whole(rng, 3, 9),
        tree=chance(rng, 0.45),
        butterflies=pick(rng, (0, 0, 1, 2, 3)),
        time=pick(rng, ("dawn", "morning", "noon", "noon", "afternoon", "sunset", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _disc(canvas: Canvas, rng: Generator, x: float, y: float, size: float, tone: Colour, flower: str) -> None:
    """Draw a flower with a ring of petals around a round heart."""
    petals = {"sunflowers": 17, "daisies": 13, "cornflowers": 10}[flower]
    for ring in (1, 0):
        for k in range(petals):
            angle = 2 * pi * (k + 0.5 * ring) / petals + between(rng, -0.06, 0.06)
            long, wide = size * (1.0 if ring else 0.86), size * 2.3 / petals
            shade = dark(tone, 0.16) if ring else light(tone, 0.08 if k % 2 else 0.2)
            canvas.polygon(
                oval(x + 0.6 * long * cos(angle), y + 0.54 * long * sin(angle), long * 0.46, wide, angle, 12),
                shade,
            )
    heart = {"sunflowers": (104, 64, 36), "daisies": (244, 190, 50), "cornflowers": (52, 52, 132)}[flower]
    reach = size * (0.42 if flower == "sunflowers" else 0.28)
    canvas.ellipse(x, y, reach, reach * 0.92, ball(heart, 0.5, 0.3))
    if flower == "sunflowers" and size > 8:
        for k in range(30):
            d, a = reach * 0.85 * (k / 30) ** 0.5, k * 2.4
            canvas.ellipse(
                x + d * cos(a), y + d * sin(a) * 0.92, size * 0.028, size * 0.028, light(heart, 0.35), 0.8
            )


def _cup(canvas: Canvas, x: float, y: float, size: float, tone: Colour) -> None:
    """Draw a poppy seen from the side and a little above."""
    petals = (
        (0.0, -0.34, 0.72, 0.5, 0.2),
        (-0.5, 0.0, 0.56, 0.5, 0.1),
        (0.5, 0.0, 0.56, 0.5, 0.14),
        (0.0, 0.26, 0.74, 0.44, 0.0),
    )
    for dx, dy, rx, ry, shade in petals:
        lit = dark(tone, shade)
        canvas.polygon(
            place(oval(dx, dy, rx, ry, dx * 0.5, 16), x, y, size),
            Fade((light(lit, 0.26), lit, dark(lit, 0.28))),
        )
    canvas.ellipse(x, y + size * 0.02, size * 0.24, size * 0.18, (44, 36, 46))
    for k in range(8):
        angle = 2 * pi * k / 8
        canvas.ellipse(
            x + size * 0.36 * cos(angle),
            y + size * (0.02 + 0.26 * sin(angle)),
            size * 0.05,
            size * 0.05,
            (60, 44, 50),
        )


def _tulip(canvas: Canvas, x: float, y: float, size: float, tone: Colour) -> None:
    """Draw a tulip from three petals."""
    side = smooth([(-0.1, 0.6), (-0.6, 0.35), (-0.7, -0.3), (-0.5, -0.95), (-0.05, -0.4)], steps=4)
    middle = smooth(
        [(0.0, 0.62), (-0.4, 0.2), (-0.36, -0.4), (0.0, -0.92), (0.36, -0.4), (0.4, 0.2)], steps=4
    )
    canvas.polygon(place(side, x, y, size), Fade((light(tone, 0.2), tone, dark(tone, 0.2))))
    canvas.polygon(place(side, x, y, size, flip=True), Fade((tone, dark(tone, 0.32))))
    canvas.polygon(place(middle, x, y, size), Fade((light(tone, 0.4), tone, dark(tone, 0.14))))


def _flower(
    canvas: Canvas, rng: Generator, sky: Sky, flower: str, x: float, y: float, size: float, high: float
) -> None:
    """Draw one plant with stem, leaves and bloom."""
    shape, colours = _FLOWERS[flower]
    tone = sky.tint(jitter(rng, pick(rng, colours), 7))
    stem, lean = sky.tint((74, 124, 56)), between(rng, -4, 4)
    foot = y + high
    canvas.line(
        smooth([(x, y), (x + lean, y + high * 0.5), (x + lean * 0.4, foot)], closed=False, steps=4),
        size * 0.13,
        dark(stem, 0.1),
    )
    if size > 5 and shape != "spike":
        leaf = smooth([(0.0, 0.0), (0.7, -0.5), (1.5, -0.5), (0.9, 0.05)], steps=4)
        for side in (False, True):
            grown = place(leaf, x + lean * 0.8, y + high * between(rng, 0.45, 0.75), size * 0.8, flip=side)
            canvas.polygon(grown, Fade((light(stem, 0.22), stem, dark(stem, 0.25))))
    if shape == "disc":
        _disc(canvas, rng, x, y, size, tone, flower)
    elif shape == "cup":
        _cup(canvas, x, y, size, tone)
    elif shape == "tulip":
        _tulip(canvas, x, y, size, tone)
    else:
        for k in range(12):
            at, wide = y + size * 2.4 * (k / 11 - 0.4), size * (0.05 + 0.2 * sin(pi * (k + 1) / 13))
            for dx in (-wide, wide, 0.0):
                bloom = light(tone, 0.25) if dx < 0 else dark(tone, 0.18 if dx else 0.0)
                canvas.polygon(oval(x + dx, at, size * 0.17, size * 0.1, -dx * 0.12, 10), bloom)


def draw(canvas: Canvas, p: Meadow, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 96, 132)
    paint_sky(canvas, rng, sky, line + 24, p.cover)
    sun(
        canvas,
        sky,
        between(rng, 24, 232),
        line - between(rng, 4, 20) if p.time in {"dawn", "sunset"} else between(rng, 20, 46),
        10,
    )
    clouds(canvas, rng, sky, (line + 24) * 0.6, p.cover)
    hills(canvas, rng, sky, line + 6, 24, (104, 142, 104), 0.5, 3)
    hills(canvas, rng, sky, line + 16, 16, (104, 150, 78), 0.2, 2)
    if p.tree:
        broadleaf(
            canvas, rng, between(rng, 24, 232), line + 20, between(rng, 36, 60), sky.tint((80, 130, 66))
        )
    field = sky.tint((96, 146, 64))
    canvas.rectangle(0, line + 20, 256, 256, Fade((light(field, 0.15), field, dark(field, 0.35))))
    colours = _FLOWERS[p.flower][1]
    for near in sorted(between(rng, 0, 1) for _ in range(330)):
        y, size = line + 18 + (210 - line) * near**1.25, 0.7 + 3.0 * near
        tone = sky.tint(jitter(rng, pick(rng, colours), 9), 0.25 * (1 - near))
        canvas.ellipse(
            between(rng, -2, 258), y, size, size * (0.7 if p.flower != "lavender" else 1.7), tone, 0.9
        )
    grass(canvas, rng, line + 60, 264, field, 120)
    for k in range(p.big):
        x = (k + 0.5) * 256 / p.big + between(rng, -9, 9)
        size = between(rng, 11, 17) * (1.25 if p.big < 6 else 0.92)
        _flower(canvas, rng, sky, p.flower, x, between(rng, 176, 226), size, 90)
    for _ in range(p.butterflies):
        _butterfly(canvas, rng, between(rng, 30, 226), between(rng, 110, 170))


def _butterfly(canvas: Canvas, rng: Generator, x: float, y: float) -> None:
    """Draw a butterfly."""
    tone = pick(rng, ((250, 240, 214), (246, 158, 60), (120, 160, 232), (250, 220, 96)))
    wing = smooth([(0.0, 0.1), (0.3, -0.8), (1.1, -0.9), (0.9, -0.1), (0.8, 0.6), (0.25, 0.6)], steps=4)
    turn, size = between(rng, -0.5, 0.5), between(rng, 4, 6)
    for side in (False, True):
        canvas.polygon(place(wing, x, y, size, turn=turn, flip=side), down(tone))
    canvas.polygon(place(oval(0, 0, 0.1, 0.6), x, y, size, turn=turn), (60, 48, 50))
