"""A supersampled canvas with fades, glow, blurred shapes, reflections and grain, and sprites drawn on it."""
# Sprites are things drawn from a few shapes, written as text, one shape a line.
#
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain
from math import ceil, cos, floor, pi, radians, sin
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageColor, ImageDraw, ImageFilter

Colour = tuple[int, int, int]
FadeStyle = Literal["down", "across"]

NAMED = {
    "red": "#ce3432",
    "orange": "#ee862e",
    "yellow": "#f8c840",
    "green": "#569654",
    "turquoise": "#3ab0ac",
    "blue": "#346cbe",
    "purple": "#7c52a8",
    "pink": "#ec8aa8",
    "white": "#f6f3ec",
    "black": "#2e2c36",
    "brown": "#865a3e",
    "grey": "#8e949e",
}
Point = tuple[float, float]
Points = Sequence[Point]
_OVAL_STEPS = 24  # corners of an oval: at the largest radius in the scenes its edge still looks round
_UNEVENNESS = 0.12  # standard deviation of a blob's radius, as a share of it: a stone rather than a star
_FINER_HEIGHT = 0.32
"""Height of each finer layer of a ridge beside the one before it: hills rather than saw teeth."""
SIZE = 256
"""Side of a picture in points, which are the pixels of the finished picture."""
SCALE = 3
"""Drawn pixels per point: three make edges smooth when the picture is reduced."""


@dataclass(frozen=True, slots=True)
class Fade:
    """A run of evenly spaced colours, down or across."""

    stops: tuple[Colour, ...]
    style: FadeStyle = "down"


Paint = Colour | Fade


@cache
def rgb(colour: str) -> Colour:
    """Return a colour of `NAMED` or one written as ``#rrggbb``."""
    red, green, blue = ImageColor.getrgb(NAMED.get(colour, colour))[:3]
    return red, green, blue


def mix(first: Colour, second: Colour, share: float) -> Colour:
    """Return `first` with the given share of `second` mixed in."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


def light(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of warm white mixed in."""
    return mix(colour, (255, 250, 238), share)


def dark(colour: Colour, share: float = 0.3) -> Colour:
    """Return the colour with a share of deep blue shadow mixed in."""
    return mix(colour, (22, 20, 48), share)


def jitter(rng: Generator, colour: Colour, amount: float) -> Colour:
    """Return the colour moved a little, mostly in brightness."""
    shift, *hue = rng.standard_normal(4).tolist()
    moved = (value + amount * (shift + 0.5 * own) for value, own in zip(colour, hue, strict=True))
    red, green, blue = (min(max(round(value), 0), 255) for value in moved)
    return red, green, blue


def fade(colour: Colour, style: str = "down") -> Fade:
    """Return the shading of a lit surface: a slope (down) or a column (across)."""
    if style == "across":
        return Fade((dark(colour, 0.1), light(colour, 0.3), colour, dark(colour, 0.45)), "across")
    return Fade((light(colour, 0.22), colour, dark(colour, 0.32)))


@lru_cache(maxsize=512)
def lookup(stops: tuple[Colour, ...]) -> NDArray[np.uint8]:
    """Return the 256 colours along the stops."""
    at = np.linspace(0.0, len(stops) - 1.0, 256)
    channels = [np.interp(at, np.arange(len(stops)), channel) for channel in zip(*stops, strict=True)]
    table: NDArray[np.uint8] = np.rint(np.stack(channels, axis=1)).astype(np.uint8)
    return table


def smooth(points: Points, *, closed: bool = True, steps: int = 5) -> list[Point]:
    """Return a Catmull-Rom curve through the points, in `steps` pieces between two of them."""
    base = np.asarray(points, dtype=np.float64)
    padded = np.vstack([base[-1:], base, base[:2]]) if closed else np.vstack([base[:1], base, base[-1:]])
    a, b, c, d = padded[:-3, None], padded[1:-2, None], padded[2:-1, None], padded[3:, None]
    t = (np.arange(steps) / steps)[None, :, None]
    curve = (b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))).reshape(
        -1, 2
    )
    flat = curve if closed else np.vstack([curve, base[-1:]])
    return [(float(x), float(y)) for x, y in flat]


def oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> list[Point]:
    """Return the outline of an ellipse, turned by `turn` radians."""
    c, s = cos(turn), sin(turn)
    corners = [
        (rx * cos(2 * pi * k / _OVAL_STEPS), ry * sin(2 * pi * k / _OVAL_STEPS)) for k in range(_OVAL_STEPS)
    ]
    return [(x + px * c - py * s, y + px * s + py * c) for px, py in corners]


def blob(rng: Generator, x: float, y: float, rx: float, ry: float) -> list[Point]:
    """Return an uneven rounded outline such as a bush or a stone."""
    reach = (1.0 + rng.normal(0.0, _UNEVENNESS, 11)).tolist()
    corners = [(r * cos(2 * pi * k / 11), r * sin(2 * pi * k / 11)) for k, r in enumerate(reach)]
    return smooth([(x + rx * px, y + ry * py) for px, py in corners], steps=4)


def ridge(rng: Generator, base: float, rise: float, waves: int) -> list[Point]:
    """Return a smooth fractal skyline from left to right, `rise` high above `base`.
    The widest of its waves are `waves`; each finer layer of them is a third as high as the one before."""
    at, height, weight = np.linspace(0.0, 1.0, 17), np.zeros(17), 1.0
    while waves < 40 and weight > 0.02:
        height += weight * np.interp(at, np.linspace(0.0, 1.0, waves + 1), rng.random(waves + 1))
        waves, weight = waves * 2, weight * _FINER_HEIGHT
    height = (height - height.min()) / (float(np.ptp(height)) or 1.0)
    return smooth([(k * 16.25 - 2, base - rise * float(h)) for k, h in enumerate(height)], closed=False)


Box = tuple[int, int, int, int]
Trace = Callable[[ImageDraw.ImageDraw, int, int, int | tuple[int, ...]], None]


@cache
def _glow_map() -> Image.Image:
    """Return the brightness of a glow, from 0 to 255."""
    axis = np.linspace(-1.0, 1.0, 128)
    near = np.clip(1.0 - np.hypot(axis[None, :], axis[:, None]), 0.0, 1.0)
    level = 0.75 * near**2.4 + 0.25 * near
    return Image.fromarray((255 * level).astype(np.uint8))


def _stretch(grey: Image.Image, box: Box, cut: Box) -> Image.Image:
    """Return the part `cut` of a grey map stretched over `box`."""
    zoom_x, zoom_y = grey.width / (box[2] - box[0]), grey.height / (box[3] - box[1])
    left, top = (cut[0] - box[0]) * zoom_x, (cut[1] - box[1]) * zoom_y
    right, bottom = min((cut[2] - box[0]) * zoom_x, grey.width), min((cut[3] - box[1]) * zoom_y, grey.height)
    size = cut[2] - cut[0], cut[3] - cut[1]
    return grey.resize(size, Image.Resampling.BILINEAR, (left, top, right, bottom))


def _boxes(xs: Sequence[float], ys: Sequence[float]) -> tuple[Box, Box] | None:
    """Return the pixel box around points, whole and cut to the picture, unless it lies outside."""
    side = SIZE * SCALE
    box = (floor(min(xs)), floor(min(ys)), ceil(max(xs)) + 1, ceil(max(ys)) + 1)
    cut = (max(box[0], 0), max(box[1], 0), min(box[2], side), min(box[3], side))
    return (box, cut) if cut[0] < cut[2] and cut[1] < cut[3] else None


@cache
def _vignette() -> NDArray[np.float32]:
    """Return the gentle darkening towards the corners."""
    axis = np.linspace(-1.0, 1.0, SIZE, dtype=np.float32)
    return (1.0 - 0.07 * (axis[None, :] ** 2 + axis[:, None] ** 2) ** 1.5)[:, :, None].astype(np.float32)


class Canvas:
    """A square picture in points (0 to 256) that is drawn larger and reduced at the end."""

    def __init__(self) -> None:
        self.image = Image.new("RGB", (SIZE * SCALE, SIZE * SCALE))
        self._pen = ImageDraw.Draw(self.image, "RGBA")

    def polygon(self, points: Points, paint: Paint, alpha: float = 1.0) -> None:
        drawn = [(x * SCALE, y * SCALE) for x, y in points]

        def trace(pen: ImageDraw.ImageDraw, left: int, top: int, ink: int | tuple[int, ...]) -> None:
            pen.polygon([(x - left, y - top) for x, y in drawn], fill=ink)

        self._fill([x for x, _ in drawn], [y for _, y in drawn], paint, alpha, trace)

    def ellipse(self, x: float, y: float, rx: float, ry: float, paint: Paint, alpha: float = 1.0) -> None:
        xs, ys = ((x - rx) * SCALE, (x + rx) * SCALE), ((y - ry) * SCALE, (y + ry) * SCALE)

        def trace(pen: ImageDraw.ImageDraw, left: int, top: int, ink: int | tuple[int, ...]) -> None:
            pen.ellipse((xs[0] - left, ys[0] - top, xs[1] - left, ys[1] - top), fill=ink)

        self._fill(xs, ys, paint, alpha, trace)

    def band(self, top: float, bottom: float, paint: Paint) -> None:
        """Fill the picture's whole width between two heights."""
        boxes = _boxes((0, SIZE * SCALE - 1), (top * SCALE, bottom * SCALE - 1))
        if boxes:
            self.image.paste(self._tile(paint, *boxes) if isinstance(paint, Fade) else paint, boxes[1])

    def line(self, points: Points, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """Draw a line with round joints."""
        drawn = [(x * SCALE, y * SCALE) for x, y in points]
        ink = (*colour, round(255 * alpha))
        self._pen.line(drawn, fill=ink, width=max(1, round(width * SCALE)), joint="curve")

    def glow(self, x: float, y: float, radius: float, colour: Colour, strength: float = 1.0) -> None:
        """Add light that fades out from a centre."""
        xs, ys = ((x - radius) * SCALE, (x + radius) * SCALE), ((y - radius) * SCALE, (y + radius) * SCALE)
        if boxes := _boxes(xs, ys):
            grey = _stretch(_glow_map(), *boxes)
            self.image.paste(
                colour, boxes[1], grey.point([min(round(v * strength), 255) for v in range(256)])
            )

    def soft(self, outlines: Sequence[Points], blur: float, paint: Paint, alpha: float = 1.0) -> None:
        """Fill outlines with blurred edges, as for mist, clouds and shadows."""
        # A blurred mask holds no fine detail, so it is made at one pixel per point.
        pad = blur * 2.5 + 1
        xs, ys = [x for points in outlines for x, _ in points], [y for points in outlines for _, y in points]
        left, top = max(floor(min(xs) - pad), 0), max(floor(min(ys) - pad), 0)
        right, bottom = min(ceil(max(xs) + pad), SIZE), min(ceil(max(ys) + pad), SIZE)
        if left >= right or top >= bottom:
            return
        mask = Image.new("L", (right - left, bottom - top))
        pen = ImageDraw.Draw(mask)
        for points in outlines:
            pen.polygon([(x - left, y - top) for x, y in points], fill=round(255 * alpha))
        cut = (left * SCALE, top * SCALE, right * SCALE, bottom * SCALE)
        size = cut[2] - cut[0], cut[3] - cut[1]
        mask = mask.filter(ImageFilter.GaussianBlur(blur)).resize(size, Image.Resampling.BILINEAR)
        self.image.paste(self._tile(paint, cut, cut) if isinstance(paint, Fade) else paint, cut, mask)

    def mirror(self, rng: Generator, line: int, tone: Colour, share: float, squash: float) -> None:
        """Paint below `line` the rippled mirror image of what is above it, mixed with `tone`."""
        depth = SIZE - line
        top = max(line - round(depth * squash), 0)
        above = self.image.crop((0, top * SCALE, SIZE * SCALE, line * SCALE)).reduce(SCALE)
        flipped = np.asarray(above.transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize((SIZE, depth)))
        rows = np.arange(depth)
        sway = np.sin(rows * 0.9 + rng.normal(0, 0.7, depth)) * (0.6 + rows * 0.03) + rng.normal(
            0, 0.5, depth
        )
        columns = np.clip(np.arange(SIZE)[None, :] + np.rint(sway).astype(int)[:, None], 0, SIZE - 1)
        rippled = Image.fromarray(flipped[rows[:, None], columns])
        water = Image.blend(rippled, Image.new("RGB", rippled.size, tone), 1.0 - share)
        large = water.resize((SIZE * SCALE, depth * SCALE), Image.Resampling.BILINEAR)
        self.image.paste(large, (0, line * SCALE))

    def texture(
        self, rng: Generator, top: float, bottom: float, amount: float, cells: tuple[int, int]
    ) -> None:
        """Add smooth brightness noise on a grid of `cells` (across, down) between two heights."""
        cut = (0, round(top * SCALE), SIZE * SCALE, round(bottom * SCALE))
        noise = np.clip(128 + rng.normal(0.0, amount, cells[::-1]), 0, 255).astype(np.uint8)
        grey = Image.fromarray(noise).resize((cut[2] - cut[0], cut[3] - cut[1]), Image.Resampling.BICUBIC)
        shade = Image.merge("RGB", [grey] * 3)
        self.image.paste(ImageChops.add(self.image.crop(cut), shade, 1.0, -128), cut)

    def finish(self, rng: Generator) -> Image.Image:
        """Return the reduced picture with a faint vignette and grain."""
        pixels = np.asarray(self.image.reduce(SCALE), dtype=np.float32) * _vignette()
        pixels += rng.standard_normal((SIZE, SIZE, 1), dtype=np.float32) * np.float32(2.6)
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))

    def _fill(
        self, xs: Sequence[float], ys: Sequence[float], paint: Paint, alpha: float, trace: Trace
    ) -> None:
        """Fill what `trace` draws, whose points lie within `xs` and `ys`."""
        cover = round(255 * alpha)
        if not isinstance(paint, Fade):
            trace(self._pen, 0, 0, (*paint, cover))
        elif boxes := _boxes(xs, ys):
            left, top, right, bottom = boxes[1]
            mask = Image.new("L", (right - left, bottom - top))
            trace(ImageDraw.Draw(mask), left, top, cover)
            self.image.paste(self._tile(paint, *boxes), boxes[1], mask)

    def _tile(self, paint: Fade, box: Box, cut: Box) -> Image.Image:
        """Return the part `cut` of a fade that spans `box`."""
        colours = lookup(paint.stops)
        # Straight fades are made one pixel wide and repeated, which costs far less than scaling.
        side = 0 if paint.style == "across" else 1
        at = (np.arange(cut[side], cut[side + 2]) - box[side] + 0.5) * (255 / (box[side + 2] - box[side]))
        strip = colours[np.rint(at).astype(np.uint8)]
        thin = Image.fromarray(strip[None, :] if side == 0 else strip[:, None])
        return thin.resize((cut[2] - cut[0], cut[3] - cut[1]), Image.Resampling.NEAREST)


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
