"""Parts of landscapes that several kinds share: water, hills, trees, snow, grass."""

from __future__ import annotations

from numpy.random import Generator

from app.sample.canvas import SIZE, Canvas
from app.sample.chance import between, chance, pick
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.shapes import blob, oval, place, ridge, smooth
from app.sample.skies import Sky

__all__ = ["bird", "broadleaf", "conifer", "glints", "grass", "hills", "sea", "snowfall", "sun_path"]


def sea(canvas: Canvas, rng: Generator, sky: Sky, top: float, bottom: float, colour: Colour) -> None:
    """Fill a band with water that carries the sky's light far away and its own colour near by."""
    near = sky.tint(colour)
    far = mix(near, sky.horizon, 0.62)
    canvas.rectangle(0, top, SIZE, bottom, Fade((far, mix(far, near, 0.6), near, dark(near, 0.22))))
    canvas.texture(rng, top, bottom, 5.0, (4, 22))
    canvas.rectangle(0, top, SIZE, top + 0.7, light(sky.horizon, 0.3), 0.6)


def glints(canvas: Canvas, rng: Generator, sky: Sky, top: float, bottom: float, count: int = 90) -> None:
    """Draw short wave lines that grow and spread towards the viewer."""
    bright, deep = light(sky.horizon, 0.25), dark(sky.stops[0], 0.35)
    for k in range(count):
        near = between(rng, 0, 1) ** 1.3
        y = top + 1.5 + (bottom - top) * near
        x, reach = between(rng, -5, 261), (1.5 + 11 * near) * between(rng, 0.5, 1.4)
        thick = 0.22 + 0.62 * near
        canvas.ellipse(x, y, reach, thick, bright if k % 3 else deep, 0.34 if k % 3 else 0.2)


def sun_path(canvas: Canvas, rng: Generator, sky: Sky, x: float, top: float, bottom: float) -> None:
    """Draw the glittering track of light below the sun or moon."""
    canvas.soft([oval(x, (top + bottom) / 2, 13, (bottom - top) * 0.5)], 9, sky.shine, 0.28)
    for _ in range(58):
        near = between(rng, 0, 1)
        y, spread = top + 1 + (bottom - top) * near, 4 + 20 * near
        reach = between(rng, 1.5, 5 + 8 * near)
        canvas.ellipse(x + float(rng.normal(0, spread * 0.5)), y, reach, 0.3 + 0.6 * near, sky.shine, 0.55)


def hills(
    canvas: Canvas,
    rng: Generator,
    sky: Sky,
    base: float,
    rise: float,
    colour: Colour,
    haze: float,
    coarse: int = 3,
) -> list[tuple[float, float]]:
    """Draw one layer of rounded hills to the lower edge and return its outline."""
    heights = ridge(rng, 65, coarse, 0.32)
    knots = [(x * 260 / 16 - 2, base - rise * float(h)) for x, h in enumerate(heights[::4])]
    curve = smooth(knots, closed=False, steps=5)
    tone = sky.tint(colour, haze)
    outline = [*curve, (SIZE + 2.0, SIZE + 1.0), (-2.0, SIZE + 1.0)]
    canvas.polygon(outline, Fade((light(tone, 0.14), tone, dark(tone, 0.16), dark(tone, 0.3))))
    return curve


def conifer(
    canvas: Canvas, rng: Generator, x: float, y: float, size: float, colour: Colour, snow: float = 0.0
) -> None:
    """Draw a fir: tiers of drooping branches, lit on one side, with snow if wanted."""
    canvas.rectangle(x - size * 0.03, y - size * 0.12, x + size * 0.03, y, dark((96, 70, 56), 0.3))
    tiers = 5
    for k in range(tiers):
        low = y - size * (0.08 + 0.17 * k)
        wide = size * (0.27 - 0.047 * k) * between(rng, 0.9, 1.1)
        tip = low - size * (0.32 - 0.012 * k)
        edge = [
            (x, tip),
            (x + wide * 0.55, low - size * 0.09),
            (x + wide, low),
            (x + wide * 0.4, low - size * 0.02),
        ]
        left = [(2 * x - px, py) for px, py in reversed(edge[1:])]
        lit = mix(colour, light(colour, 0.25), k / tiers)
        canvas.polygon([*edge, (x, low + size * 0.02), *left], Fade((lit, dark(colour, 0.32))))
        canvas.polygon(
            [(x, tip), *left[::-1][:3], (x - wide * 0.1, low - size * 0.02)], light(colour, 0.4), 0.22
        )
        if snow:
            cap = [(x, tip), edge[1], (x + wide * 0.35, low - size * 0.1), (x, low - size * 0.12)]
            cap += [(2 * x - px, py) for px, py in reversed(cap[1:-1])]
            canvas.polygon(cap, (248, 250, 255), snow)


def broadleaf(canvas: Canvas, rng: Generator, x: float, y: float, size: float, colour: Colour) -> None:
    """Draw a round-crowned tree from shaded clumps of leaves."""
    bark = dark((120, 86, 64), 0.25)
    canvas.polygon(
        [
            (x - size * 0.05, y),
            (x - size * 0.03, y - size * 0.6),
            (x + size * 0.03, y - size * 0.6),
            (x + size * 0.05, y),
        ],
        Fade((bark, dark(bark, 0.3)), "across"),
    )
    canvas.ellipse(x, y, size * 0.22, size * 0.03, dark(colour, 0.7), 0.35)
    clumps = [
        (0.0, -0.62, 0.30),
        (-0.2, -0.5, 0.2),
        (0.2, -0.5, 0.21),
        (-0.11, -0.78, 0.2),
        (0.12, -0.76, 0.19),
    ]
    for dx, dy, reach in clumps:
        tone = jitter(rng, colour, 5)
        shape = blob(rng, x + dx * size, y + dy * size, reach * size, reach * size * 0.9, 0.07)
        canvas.polygon(shape, Fade((light(tone, 0.22), tone, dark(tone, 0.34))))
    for _ in range(9):
        px, py = x + size * between(rng, -0.3, 0.22), y - size * between(rng, 0.5, 0.9)
        canvas.ellipse(px, py, size * 0.05, size * 0.03, light(colour, 0.4), 0.35)


def grass(
    canvas: Canvas, rng: Generator, top: float, bottom: float, colour: Colour, count: int = 110
) -> None:
    """Draw blades of grass that get longer towards the viewer."""
    for near in sorted(between(rng, 0, 1) for _ in range(count)):
        x, y = between(rng, 0, 256), top + (bottom - top) * near
        long, lean = 2.5 + 9 * near, float(rng.normal(0, 1.6 + 2 * near))
        tone = jitter(rng, light(colour, 0.18) if chance(rng, 0.5) else dark(colour, 0.22), 6)
        canvas.polygon(
            [(x - 0.3 - 0.4 * near, y), (x + lean, y - long), (x + 0.3 + 0.4 * near, y)], tone, 0.8
        )


def snowfall(canvas: Canvas, rng: Generator, count: int) -> None:
    """Draw falling flakes, a few of them large and blurred."""
    for _ in range(count):
        size = 0.5 + 1.5 * between(rng, 0, 1) ** 3
        canvas.ellipse(
            between(rng, 0, 256), between(rng, 0, 256), size, size, (255, 255, 255), 0.55 + 0.4 / (1 + size)
        )
    for _ in range(5):
        canvas.glow(between(rng, 0, 256), between(rng, 0, 256), between(rng, 5, 9), (255, 255, 255), 0.5)


_WINGS = (
    (-1.0, -0.28),
    (-0.55, -0.5),
    (0.0, 0.02),
    (0.55, -0.5),
    (1.0, -0.28),
    (0.5, -0.28),
    (0.0, 0.22),
    (-0.5, -0.28),
)


def bird(canvas: Canvas, rng: Generator, x: float, y: float, size: float, colour: Colour) -> None:
    """Draw a gull far away as a pair of bent wings."""
    lift = pick(rng, (0.5, 0.8, 1.1))
    shape = [(px, py * lift) for px, py in _WINGS]
    canvas.polygon(place(shape, x, y, size, turn=between(rng, -0.2, 0.2)), colour)
