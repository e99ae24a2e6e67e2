"""Sprites: things drawn from a few shapes, written as text, one shape a line."""
# A line is ``form[s][:width] paint points [xN dx,dy]``. The points are in hundredths of the size at which a
# sprite is drawn, around its place, with y downwards. An ``s`` after the form adds the mirror image, left and
# right exchanged; ``x4 20,0`` repeats a shape four times, each 20 further to the right.
#
# The forms are ``poly`` and ``curve``: an outline with straight or smooth edges; ``line:3`` and ``arc:3``: a
# straight or smooth line, three hundredths wide; ``oval x,y rx,ry [degrees]``: an ellipse; ``box left,top
# right,bottom``: a rectangle; ``soft:5``: a blurred outline; ``glow x,y radius``: light; ``lamp``: light
# after sunset only.
#
# A paint is ``colour[+20][:style][~80]``: a hex code or a name, 20 % lighter (or darker, with a minus), as a
# fade of that style (`app.sample.canvas.fade`), 80 % opaque. Colours are seen in the light of the sky; those
# with an exclamation mark shine by themselves (``#ffd27a!``).

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import cos, radians, sin

from app.sample.canvas import Canvas, Colour, Paint, Point, dark, fade, light, oval, smooth

__all__ = ["Place", "Shape", "draw_shape", "read_sprites"]

_FORM = re.compile(r"(poly|curve|line|arc|oval|box|soft|glow|lamp)(s?)(?::([\d.]+))?")
_PAINT = re.compile(r"(#?\w+!?)([+-]\d+)?(?::(\w+))?(?:~(\d+))?")


@dataclass(frozen=True, slots=True)
class Shape:
    """One line of a sprite; `points` are in units of the sprite's size."""

    form: str
    width: float
    colour: str
    shift: float
    style: str | None
    alpha: float
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where and how large a sprite is drawn: `turn` in radians, `flip` exchanges left and right."""

    x: float
    y: float
    size: float
    turn: float = 0.0
    flip: bool = False

    def points(self, points: tuple[Point, ...] | list[Point]) -> list[Point]:
        c, s, side = cos(self.turn) * self.size, sin(self.turn) * self.size, -1.0 if self.flip else 1.0
        return [(self.x + side * px * c - py * s, self.y + side * px * s + py * c) for px, py in points]


def read_sprites(texts: Mapping[str, str]) -> dict[str, tuple[Shape, ...]]:
    """Return sprites written as text; a line ``use body`` stands for the shapes of an earlier one."""
    sprites: dict[str, tuple[Shape, ...]] = {}
    for name, text in texts.items():
        lines = [line.split() for line in text.strip().splitlines()]
        parsed = (sprites[line[1]] if line[0] == "use" else _parse(line) for line in lines)
        sprites[name] = tuple(chain.from_iterable(parsed))
    return sprites


def _parse(words: list[str]) -> Iterator[Shape]:
    form, paint = _FORM.fullmatch(words[0]), _PAINT.fullmatch(words[1])
    if form is None or paint is None:
        raise ValueError(f"not a shape of a sprite: {' '.join(words)!r}")
    end = next((k for k, word in enumerate(words) if re.fullmatch(r"x\d+", word)), len(words))
    count = int(words[end][1:]) if end < len(words) else 1
    dx, dy = _point(words[end + 1]) if end < len(words) else (0.0, 0.0)
    base = [_point(word) for word in words[2:end]]
    for k in range(count):
        # The second "point" of an oval holds its radii, which no repetition moves.
        moves = (1, 0, 0) if form[1] in {"oval", "glow", "lamp"} else (1,) * len(base)
        points = [(x + m * k * dx, y + m * k * dy) for (x, y), m in zip(base, moves, strict=False)]
        for side in (1, -1) if form[2] else (1,):
            yield Shape(
                form[1],
                float(form[3] or 0) / 100,
                paint[1],
                float(paint[2] or 0) / 100,
                paint[3],
                float(paint[4] or 100) / 100,
                tuple(_outline(form[1], points, side)),
            )


def _point(word: str) -> Point:
    x, _, y = word.partition(",")
    return float(x) / 100, float(y or x) / 100


def _outline(form: str, points: list[Point], side: int) -> list[Point]:
    """Return the points to draw, on the given side of the sprite."""
    if form == "oval":
        (x, y), (rx, ry), *turn = points
        points = oval(x, y, rx, ry, radians(100 * turn[0][0]) if turn else 0.0)
    elif form == "box":
        (left, top), (right, bottom) = points
        points = [(left, top), (right, top), (right, bottom), (left, bottom)]
    elif form in {"curve", "arc"}:
        points = smooth(points, closed=form == "curve")
    return points if form in {"glow", "lamp"} else [(side * x, y) for x, y in points]


def draw_shape(canvas: Canvas, shape: Shape, place: Place, colour_of: Callable[[str], Colour]) -> None:
    """Draw one shape of a sprite; `colour_of` gives the colour for a name or a hex code."""
    tone, size = colour_of(shape.colour), place.size
    tone = light(tone, shape.shift) if shape.shift > 0 else dark(tone, -shape.shift)
    if shape.form in {"glow", "lamp"}:
        ((x, y),) = place.points(shape.points[:1])
        canvas.glow(x, y, shape.points[1][0] * size, tone, shape.alpha)
        return
    points = place.points(shape.points)
    paint: Paint = fade(tone, shape.style) if shape.style else tone
    if shape.form in {"line", "arc"}:
        canvas.line(points, shape.width * size, tone, shape.alpha)
    elif shape.form == "soft":
        canvas.soft([points], shape.width * size, paint, shape.alpha)
    else:
        canvas.polygon(points, paint, shape.alpha)
