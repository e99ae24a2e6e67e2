"""People with umbrellas in the rain."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, several, whole
from app.sample.palette import NAMED, Colour, Fade, dark, jitter, light, mix
from app.sample.parts.people import walker
from app.sample.shapes import oval

__all__ = ["Umbrellas", "choose", "draw"]

_AIR: dict[str, tuple[Colour, ...]] = {
    "day": ((128, 144, 164), (170, 182, 192), (198, 204, 206)),
    "evening": ((52, 52, 96), (104, 86, 134), (196, 140, 140)),
    "night": ((14, 20, 44), (30, 42, 78), (64, 78, 112)),
}


@dataclass(frozen=True, slots=True)
class Umbrellas:
    """Parameters of one picture of umbrellas."""

    colours: tuple[str, ...]
    time: str
    lamps: int
    heavy: bool
    background: str


def choose(rng: Generator) -> Umbrellas:
    """Draw the parameters."""
    names = ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink")
    return Umbrellas(
        colours=tuple(several(rng, names, whole(rng, 1, 5))),
        time=pick(rng, tuple(_AIR)),
        lamps=whole(rng, 0, 2),
        heavy=chance(rng, 0.5),
        background=pick(rng, ("houses", "park")),
    )


def _backdrop(canvas: Canvas, rng: Generator, p: Umbrellas, line: float) -> None:
    """Draw houses or trees in the mist."""
    air = _AIR[p.time]
    for row, share in ((0, 0.72), (1, 0.5)):
        x = between(rng, -20, 0)
        while x < 262:
            wide, high = between(rng, 26, 50), between(rng, 60, 128) * (1 - 0.25 * row)
            tone = mix(
                jitter(rng, (92, 96, 116) if p.background == "houses" else (72, 104, 94), 8), air[2], share
            )
            if p.background == "houses":
                canvas.rectangle(x, line - high, x + wide, line, Fade((tone, mix(tone, air[2], 0.4))))
                for _ in range(9 if row else 4):
                    wx, wy = x + 4 + (wide - 11) * between(rng, 0, 1), line - between(rng, 12, high - 4)
                    canvas.rectangle(
                        wx, wy, wx + 4, wy + 6, (255, 216, 140) if p.time != "day" else light(tone, 0.3), 0.7
                    )
            else:
                puffs = [
                    oval(x + between(rng, 0, wide), line - high * between(rng, 0.35, 0.75), 20, 17)
                    for _ in range(6)
                ]
                canvas.soft(puffs, 3, Fade((light(tone, 0.15), dark(tone, 0.15))), 0.9)
                canvas.line([(x + wide / 2, line - high * 0.4), (x + wide / 2, line)], 3, dark(tone, 0.35))
            x += wide + between(rng, -4, 14)
    canvas.soft([oval(128, line, 170, 14)], 9, air[2], 0.6)


def _lamp(canvas: Canvas, p: Umbrellas, x: float, foot: float) -> None:
    """Draw a street lamp with a warm halo."""
    top = foot - 112
    iron = (40, 42, 56)
    canvas.line([(x, foot), (x, top + 8)], 2.0, iron)
    canvas.polygon(
        [(x - 5, top + 8), (x + 5, top + 8), (x + 6.5, top - 4), (x - 6.5, top - 4)], (255, 226, 160)
    )
    canvas.polygon([(x - 8, top - 4), (x + 8, top - 4), (x, top - 11)], iron)
    canvas.glow(x, top + 2, 54 if p.time != "day" else 26, (255, 208, 130), 0.85)


def draw(canvas: Canvas, p: Umbrellas, rng: Generator) -> None:
    """Paint the picture."""
    air = tuple(jitter(rng, colour, 6) for colour in _AIR[p.time])
    line = between(rng, 168, 182)
    canvas.rectangle(0, 0, 256, line, Fade(air))
    canvas.texture(rng, 0, line, 4, (5, 6))
    _backdrop(canvas, rng, p, line)
    stone = mix((72, 80, 100), air[2], 0.3)
    canvas.rectangle(
        0, line, 256, 256, Fade((mix(stone, air[2], 0.55), stone, dark(stone, 0.3), dark(stone, 0.4)))
    )
    canvas.texture(rng, line, 256, 5, (6, 24))
    for k in range(p.lamps):
        _lamp(canvas, p, between(rng, 18, 70) if k else between(rng, 190, 240), line + 6)
    count = len(p.colours)
    feet = sorted(between(rng, 6, 30) for _ in range(count))
    order = rng.permutation(count)
    size = (136, 116, 100, 88, 78)[count - 1]
    for k, colour in enumerate(p.colours):
        tone = mix(NAMED[colour], air[1], 0.12 if p.time == "day" else 0.25)
        x = 20 + (int(order[k]) + 0.5) * 216 / count + between(rng, -6, 6)
        walker(canvas, rng, tone, air[1], x, line + feet[k], size * between(rng, 0.92, 1.06))
    _street(canvas, rng, p, air, line, max(feet))
    slant, drops = between(rng, -4, 4), 150 if p.heavy else 70
    for _ in range(drops):
        x, y, long = between(rng, -8, 264), between(rng, -10, 250), between(rng, 6, 17)
        canvas.line(
            [(x, y), (x + slant * long / 14, y + long)], 0.34, light(air[2], 0.4), between(rng, 0.25, 0.6)
        )


def _street(
    canvas: Canvas, rng: Generator, p: Umbrellas, air: tuple[Colour, ...], line: float, front: float
) -> None:
    """Draw the wet pavement as a mirror, with rings of drops."""
    edge = line + front
    canvas.mirror(rng, edge, mix((58, 66, 88), air[2], 0.25), 0.46, 1.5)
    for _ in range(16 if p.heavy else 8):
        x, y = between(rng, 0, 256), between(rng, edge + 3, 252)
        for reach in (7.0, 4.0):
            canvas.polygon(oval(x, y, reach, reach * 0.26), light(air[2], 0.5), 0.14)
        canvas.ellipse(x, y, 1.0, 0.5, (255, 255, 255), 0.7)
