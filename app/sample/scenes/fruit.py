"""Bowls of fruit on a table."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, several, whole
from app.sample.palette import Colour, Fade, ball, dark, jitter, light, mix
from app.sample.parts.fruits import FRUIT, bananas, grapes, piece
from app.sample.shapes import oval, smooth

__all__ = ["FruitBowl", "choose", "draw"]

_BOWL: dict[str, Colour] = {
    "blue": (72, 118, 182),
    "white": (238, 236, 232),
    "brown": (164, 110, 72),
    "turquoise": (78, 172, 168),
    "black": (66, 64, 78),
}
_WALL: dict[str, tuple[Colour, Colour]] = {
    "cream": ((246, 230, 200), (222, 192, 152)),
    "sage green": ((190, 206, 178), (140, 162, 136)),
    "grey-blue": ((176, 196, 212), (116, 140, 166)),
    "dark": ((86, 74, 82), (44, 38, 50)),
    "rose": ((240, 204, 198), (206, 152, 150)),
}
_TABLE: dict[str, Colour] = {"wooden": (172, 118, 74), "white": (232, 226, 218), "dark": (92, 66, 58)}


@dataclass(frozen=True, slots=True)
class FruitBowl:
    """Parameters of one picture of a bowl of fruit."""

    fruit: tuple[str, ...]
    grapes: bool
    bananas: bool
    bowl: str
    wall: str
    table: str
    window: bool


def choose(rng: Generator) -> FruitBowl:
    """Draw the parameters."""
    return FruitBowl(
        fruit=tuple(several(rng, tuple(FRUIT), whole(rng, 1, 3))),
        grapes=chance(rng, 0.45),
        bananas=chance(rng, 0.4),
        bowl=pick(rng, tuple(_BOWL)),
        wall=pick(rng, tuple(_WALL)),
        table=pick(rng, tuple(_TABLE)),
        window=chance(rng, 0.5),
    )


def _bowl(canvas: Canvas, rng: Generator, p: FruitBowl, x: float, rim: float, reach: float) -> None:
    """Draw the front of the bowl with a painted band."""
    tone, deep = _BOWL[p.bowl], reach * 0.72
    side = [(x + reach * cos(a), rim + deep * sin(a) ** 0.8) for a in (pi * k / 30 for k in range(31))]
    canvas.polygon(
        [
            (x - reach * 0.42, rim + deep - 3),
            (x + reach * 0.42, rim + deep - 3),
            (x + reach * 0.48, rim + deep + 6),
            (x - reach * 0.48, rim + deep + 6),
        ],
        Fade((tone, dark(tone, 0.5)), "across"),
    )
    canvas.polygon(
        side, Fade((light(tone, 0.12), light(tone, 0.36), tone, dark(tone, 0.25), dark(tone, 0.55)), "across")
    )
    canvas.polygon(side, Fade((light(tone, 0.2), tone, dark(tone, 0.6))), 0.35)
    band = light(tone, 0.55) if p.bowl != "white" else (96, 132, 176)
    for k in range(1, 30):
        px = x + reach * 0.93 * cos(pi * k / 30)
        canvas.ellipse(px, rim + 13 + 5 * sin(pi * k / 30), 1.7, 2.2, band, 0.7)
    canvas.polygon(
        [(x - reach - 1, rim - 2), (x + reach + 1, rim - 2), (x + reach, rim + 4), (x - reach, rim + 4)],
        Fade((light(tone, 0.5), light(tone, 0.3), dark(tone, 0.25)), "across"),
    )


def _room(canvas: Canvas, rng: Generator, p: FruitBowl, line: float) -> None:
    """Draw the wall, the light from a window and the table."""
    near, far = _WALL[p.wall]
    canvas.rectangle(0, 0, 256, line, Fade((near, mix(near, far, 0.5), far), "across"))
    canvas.texture(rng, 0, line, 4, (7, 7))
    canvas.glow(30, 30, 170, light(near, 0.6), 0.4)
    if p.window:
        panes = []
        for k in range(2):
            for j in range(2):
                x, y = 130.0 + 42 * k, 20.0 + 46 * j - 10 * k
                panes.append([(x, y), (x + 36, y - 9), (x + 36, y + 31), (x, y + 40)])
        canvas.soft(panes, 2.2, light(near, 0.8), 0.55)
    wood = jitter(rng, _TABLE[p.table], 6)
    canvas.rectangle(0, line, 256, 256, Fade((light(wood, 0.22), wood, dark(wood, 0.35))))
    for _ in range(34 if p.table != "white" else 0):
        y = line + 3 + (254 - line) * between(rng, 0, 1) ** 1.2
        x, long = between(rng, -60, 230), between(rng, 30, 120)
        wave = smooth(
            [(x, y), (x + long * 0.5, y + between(rng, -1.2, 1.2)), (x + long, y)], closed=False, steps=5
        )
        canvas.line(wave, 0.6, dark(wood, 0.4), 0.3)
    canvas.rectangle(0, line - 0.8, 256, line + 0.8, light(wood, 0.4), 0.6)


def draw(canvas: Canvas, p: FruitBowl, rng: Generator) -> None:
    """Paint the picture."""
    line = between(rng, 150, 174)
    _room(canvas, rng, p, line)
    x, rim, reach = between(rng, 112, 144), line - between(rng, 0, 10), between(rng, 66, 80)
    foot = rim + reach * 0.72 + 5
    canvas.soft([oval(x + 16, foot, reach * 0.95, 9)], 6, (34, 22, 30), 0.5)
    size = between(rng, 17, 20)
    if p.bananas:
        bananas(canvas, x - 8, rim - size * 1.9, size * 2.1, chance(rng, 0.5))
    rows = ((0.52, 3), (0.0, 5)) if p.bananas else ((1.75, 2), (0.95, 4), (0.0, 4))
    for up, count in rows:
        for k in range(count):
            px = x + (k - (count - 1) / 2) * reach * 1.62 / (count + 0.6) + between(rng, -2, 2)
            piece(
                canvas,
                rng,
                pick(rng, p.fruit),
                px,
                rim - size * (0.35 + up * 0.9),
                size * between(rng, 0.92, 1.08),
            )
    if p.grapes:
        grapes(canvas, rng, x + reach * between(rng, -0.5, 0.5), rim - 14)
    _bowl(canvas, rng, p, x, rim, reach)
    if p.grapes:
        for k in range(3):
            canvas.ellipse(x - reach - 10 + 9 * k, 244 - k % 2 * 4, 5.4, 5.4, ball((104, 54, 118), 0.55, 0.5))
    for k in range(whole(rng, 0, 2)):
        px = 24 + 206 * (k == 0) + between(rng, -8, 8)
        canvas.soft([oval(px + 5, 243, size, 4)], 3, (34, 22, 30), 0.5)
        piece(canvas, rng, p.fruit[0], px, 228, size * 1.05)
