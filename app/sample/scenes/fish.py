"""Fish under water."""

from __future__ import annotations

from dataclasses import dataclass
from math import sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import NAMED, Colour, Fade, dark, jitter, light, mix
from app.sample.shapes import Points, blob, oval, place, ridge, ridge_line, smooth

__all__ = ["Fish", "choose", "draw"]

_WATER: dict[str, tuple[Colour, ...]] = {
    "bright": ((150, 230, 234), (52, 168, 204), (20, 108, 168), (16, 74, 130)),
    "green": ((190, 234, 204), (78, 176, 160), (28, 116, 118), (16, 74, 88)),
    "deep": ((54, 122, 186), (22, 70, 140), (10, 36, 92), (8, 20, 58)),
}
_BODY = smooth(
    [
        (-1.0, 0.0),
        (-0.6, -0.36),
        (0.0, -0.52),
        (0.6, -0.3),
        (0.78, -0.06),
        (0.78, 0.06),
        (0.6, 0.28),
        (0.0, 0.5),
        (-0.6, 0.36),
    ],
    steps=4,
)
_TAIL = smooth([(0.7, 0.0), (1.0, -0.3), (1.38, -0.5), (1.22, 0.0), (1.38, 0.5), (1.0, 0.3)], steps=4)
_BACK_FIN = smooth([(-0.4, -0.42), (-0.1, -0.8), (0.5, -0.62), (0.5, -0.3)], steps=4)
_BELLY_FIN = smooth([(-0.15, 0.44), (0.2, 0.8), (0.42, 0.62), (0.35, 0.34)], steps=4)
_SIDE_FIN = smooth([(-0.28, 0.08), (0.1, 0.02), (0.24, 0.22), (-0.02, 0.32)], steps=4)


@dataclass(frozen=True, slots=True)
class Fish:
    """Parameters of one picture of fish."""

    number: int
    colour: str
    striped: bool
    water: str
    weed: bool
    coral: bool


def choose(rng: Generator) -> Fish:
    """Draw the parameters."""
    return Fish(
        number=whole(rng, 1, 9),
        colour=pick(rng, ("orange", "yellow", "red", "pink", "turquoise", "purple", "white", "green")),
        striped=chance(rng, 0.5),
        water=pick(rng, tuple(_WATER)),
        weed=chance(rng, 0.6),
        coral=chance(rng, 0.5),
    )


def _fish(
    canvas: Canvas, p: Fish, tone: Colour, x: float, y: float, size: float, turn: float, flip: bool
) -> None:
    """Draw one fish."""

    def at(shape: Points) -> list[tuple[float, float]]:
        return place(shape, x, y, size, turn=-turn if flip else turn, flip=flip)

    fin = mix(light(tone, 0.1), dark(tone, 0.3), 0.5)
    for shape in (_TAIL, _BACK_FIN, _BELLY_FIN):
        canvas.polygon(at(shape), Fade((light(fin, 0.3), fin)), 0.92)
    canvas.polygon(at(_BODY), Fade((dark(tone, 0.18), tone, light(tone, 0.3), light(tone, 0.62))))
    if p.striped:
        pale = (250, 246, 236) if p.colour != "white" else (54, 60, 84)
        for place_x, wide in ((-0.34, 0.1), (0.14, 0.12), (0.58, 0.07)):
            high = 0.47 - abs(place_x) * 0.34
            band = smooth(
                [
                    (place_x - wide, -high),
                    (place_x + wide, -high),
                    (place_x + wide * 1.3, 0),
                    (place_x + wide, high),
                    (place_x - wide, high),
                    (place_x - wide * 0.6, 0),
                ],
                steps=3,
            )
            canvas.polygon(at(band), mix(pale, tone, 0.15), 0.9)
    canvas.polygon(at(_SIDE_FIN), dark(tone, 0.2), 0.85)
    canvas.polygon(at(oval(-0.4, -0.26, 0.34, 0.09, -0.3)), (255, 255, 255), 0.25)
    for reach, colour in ((0.12, (252, 252, 246)), (0.075, (24, 28, 44))):
        canvas.polygon(at(oval(-0.68, -0.1, reach, reach)), colour)
    canvas.polygon(at(oval(-0.71, -0.135, 0.025, 0.025, 0, 10)), (255, 255, 255))


def _weed(canvas: Canvas, rng: Generator, tone: Colour, x: float, foot: float) -> None:
    """Draw one swaying water plant."""
    high, phase, wide = between(rng, 40, 110), between(rng, 0, 6), between(rng, 2, 4.5)
    spine = [(x + sin(phase + k * 0.75) * (2 + 0.7 * k), foot - high * k / 9) for k in range(10)]
    left = [(px - wide * (1 - k / 9), py) for k, (px, py) in enumerate(spine)]
    right = [(px + wide * (1 - k / 9), py) for k, (px, py) in enumerate(spine)]
    outline = smooth(left, closed=False, steps=4) + smooth(right, closed=False, steps=4)[::-1]
    canvas.polygon(outline, Fade((light(tone, 0.3), tone, dark(tone, 0.4))))


def _coral(canvas: Canvas, rng: Generator, water: Colour, x: float, foot: float) -> None:
    """Draw one branching or rounded coral."""
    tone = mix(pick(rng, ((236, 110, 120), (244, 160, 90), (190, 110, 190), (240, 200, 120))), water, 0.22)
    if chance(rng, 0.5):
        for _ in range(7):
            size = between(rng, 6, 13)
            shape = blob(rng, x + between(rng, -14, 14), foot - between(rng, 0, 14), size, size * 0.85, 0.06)
            canvas.polygon(shape, Fade((light(tone, 0.35), tone, dark(tone, 0.45))))
        return
    for k in range(7):
        lean, high = (k - 3) * 6 + between(rng, -2, 2), between(rng, 22, 42)
        curve = smooth(
            [(x + lean * 0.2, foot), (x + lean * 0.6, foot - high * 0.5), (x + lean, foot - high)],
            closed=False,
            steps=4,
        )
        canvas.line(curve, 3.6, dark(tone, 0.1 + 0.05 * (k % 3)))
        canvas.ellipse(x + lean, foot - high, 2.5, 2.5, light(tone, 0.3))


def _water(canvas: Canvas, rng: Generator, stops: tuple[Colour, ...], dim: bool) -> None:
    """Draw the water with rays of light, far rocks and the sandy floor."""
    canvas.rectangle(0, 0, 256, 256, Fade(stops))
    canvas.texture(rng, 0, 256, 5, (6, 9))
    at = between(rng, 50, 206)
    canvas.glow(at, -12, 150, light(stops[0], 0.4), 0.7)
    rays = [
        [(at + k * 20 - 4, -5), (at + k * 20 + 8, -5), (at + k * 62 + 26, 230), (at + k * 62 - 14, 230)]
        for k in (-2, -1, 0, 1, 2)
    ]
    canvas.soft(rays, 6, Fade((light(stops[0], 0.5), stops[1], stops[2])), 0.3)
    for k in range(2):
        tone = mix(mix((58, 82, 110), stops[2], 0.7 - 0.3 * k), stops[3], 0.3)
        canvas.polygon(
            ridge_line(ridge(rng, 65, 4, 0.45), 234 + 10 * k, 58 - 26 * k, 262),
            Fade((light(tone, 0.1), dark(tone, 0.35))),
        )
    sand = mix((232, 208, 160), stops[2], 0.68 if dim else 0.4)
    canvas.polygon(
        ridge_line(ridge(rng, 33, 3, 0.2), 244, 14, 262), Fade((light(sand, 0.15), sand, dark(sand, 0.35)))
    )


def draw(canvas: Canvas, p: Fish, rng: Generator) -> None:
    """Paint the picture."""
    stops = tuple(jitter(rng, colour, 6) for colour in _WATER[p.water])
    _water(canvas, rng, stops, p.water == "deep")
    for k in range(whole(rng, 5, 9) if p.weed else 0):
        x = between(rng, 4, 90) if k % 2 else between(rng, 166, 252)
        _weed(
            canvas,
            rng,
            mix((60, 146, 92) if k % 3 else (120, 150, 66), stops[2], 0.25),
            x,
            between(rng, 238, 256),
        )
    for _ in range(whole(rng, 3, 5) if p.coral else 0):
        _coral(canvas, rng, stops[2], between(rng, 10, 246), between(rng, 240, 254))
    flip = chance(rng, 0.5)
    cells = rng.permutation(9)[: p.number]
    for k, cell in enumerate(sorted(int(c) for c in cells)):
        near = between(rng, 0.55, 1.0) if p.number > 1 else 1.0
        size = (52 if p.number == 1 else 36 if p.number == 2 else 25 if p.number < 6 else 18) * near
        x, y = 50 + (cell % 3) * 78 + between(rng, -14, 14), 50 + (cell // 3) * 62 + between(rng, -16, 16)
        if p.number == 1:
            x, y = between(rng, 100, 156), between(rng, 90, 150)
        tone = mix(jitter(rng, NAMED[p.colour], 8), stops[2], 0.5 * (1 - near) + 0.05)
        _fish(canvas, p, tone, x, y, size, between(rng, -0.18, 0.18), flip != (k % 5 == 4))
    for _ in range(whole(rng, 8, 26)):
        x, y, size = between(rng, 10, 246), between(rng, 6, 220), between(rng, 0.8, 3.4)
        canvas.ellipse(x, y, size, size, light(stops[0], 0.5), 0.28)
        canvas.ellipse(x - size * 0.3, y - size * 0.35, size * 0.35, size * 0.3, (255, 255, 255), 0.8)
