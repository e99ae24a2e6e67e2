"""Drawing: a supersampled canvas with its effects and sprites, and a picture in the making on it."""
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
# fade of that style (`app.sample.drawing.fade`), 80 % opaque. Colours are seen in the light of the sky; those
# with an exclamation mark shine by themselves (``#ffd27a!``).

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain
from math import ceil, cos, floor, pi, radians, sin, tan
from typing import Any, Literal

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


_TIMES = {  # two rows of colours from the zenith to the horizon, tint of things and its share, sunlight
    "dawn": ("#6884be #d6acc4 #ffceb0 #ffe6be", "#86a8ce #f0c6be #ffe2ba", "#ce96a0", 0.24, "#ffe2be"),
    "morning": ("#58a2de #98ccee #e2f2f2", "#6ebad6 #b0dee2 #f4f6e2", "#e1ebeb", 0.05, "#fffcec"),
    "noon": ("#2270ce #5ca8ea #b4def6", "#1880cc #54b8e8 #beeaf4", "#fffff0", 0.02, "#fffff8"),
    "afternoon": ("#4e92ce #9ccae0 #fae8c4", "#6298c8 #bcd0ce #ffe0aa", "#facd8c", 0.10, "#ffecb8"),
    "sunset": (
        "#423a7c #a84c7a #f07056 #ffc468",
        "#60487e #e26064 #ffa054 #ffd882",
        "#823a54",
        0.32,
        "#ffbe60",
    ),
    "dusk": ("#1e245c #52468c #bc6e98 #f4a08c", "#263468 #62629e #d696a0", "#3a3068", 0.45, "#ffb096"),
    "night": ("#080c26 #121e4a #2c4274", "#0a0a22 #1c1a48 #483a76", "#0e1436", 0.66, "#c8d6fa"),
    "overcast": ("#7e8c9e #a8b4be #ced4d4", "#949ca6 #b8bec2 #d6d6d0", "#96a0ac", 0.30, "#ecf0f2"),
}
# Layers are text, one a line: a verb with named arguments, ``hills y=line+3 rise=12..34``.
# A number is written as ``7``, as ``12..34`` if it is drawn at random, or relative to a name, ``line+3`` or
# ``line*0.6``; ``let`` introduces names, and facets that are numbers are names, too. A layer with
# ``if=island`` is drawn if that facet is neither ``no`` nor 0, one with ``if=land:firs|hills`` if it has one
# of these values; ``unless=`` is the opposite.
Span = tuple[float, float]
_VARIATION = 3.0
"""Standard deviation of a layer's brightness, of 255: no two pictures have quite the same ground."""


@dataclass(frozen=True, slots=True)
class Sky:
    """The light of one picture: `stops` are the sky's colours from the zenith to the horizon."""

    time: str
    stops: tuple[Colour, ...]
    tint_colour: Colour
    tint_share: float
    sunlight: Colour

    @property
    def horizon(self) -> Colour:
        """Colour of the sky just above the horizon."""
        return self.stops[-1]

    @property
    def is_dim(self) -> bool:
        """Whether lamps are on."""
        return self.time in {"dusk", "night"}

    @property
    def is_low(self) -> bool:
        """Whether the sun stands near the horizon."""
        return self.time in {"dawn", "sunset", "dusk"}

    def tint(self, colour: Colour, haze: float = 0.0) -> Colour:
        """Return the colour as seen in this light through some haze."""
        return mix(mix(colour, self.tint_colour, self.tint_share), self.horizon, haze)


def make_sky(rng: Generator, time: str, stops: str | None = None) -> Sky:
    """Return a sky of the time of day with slightly varied colours; `stops` replaces them."""
    one, other, tint, share, sunlight = _TIMES[time]
    row = (stops or (one, other)[int(rng.integers(2))]).split()
    return Sky(time, tuple(jitter(rng, rgb(stop), 6.0) for stop in row), rgb(tint), share, rgb(sunlight))


_RELATIVE = re.compile(r"([a-z_]+)(?:([+*-])([\d.]+))?")


Layer = Mapping[str, str]
"""The arguments of a layer, as written."""


def layers(text: str) -> tuple[tuple[str, Layer], ...]:
    """Return the layers written in a text: what each draws, and its arguments."""
    lines = [line.split() for line in text.strip().splitlines()]
    return tuple((words[0], dict(word.split("=", 1) for word in words[1:])) for words in lines)


def is_true(value: Any) -> bool:
    """Return whether a facet says yes."""
    return value not in {"no", 0}


def _holds(condition: str, facets: Mapping[str, Any]) -> bool:
    facet, _, values = condition.partition(":")
    return str(facets[facet]) in values.split("|") if values else is_true(facets[facet])


def _value(text: str, names: Mapping[str, float]) -> float:
    match = _RELATIVE.fullmatch(text)
    if match is None:
        return float(text)
    base, other = names[match[1]], float(match[3] or 0)
    return base * other if match[2] == "*" else base - other if match[2] == "-" else base + other


Sprites = Mapping[str, tuple[Shape, ...]]
Palette = Mapping[str, str | Mapping[str, str]]


class Scene:
    """One picture while it is drawn. `palette` holds colours by name, or by name and value of the facet of
    that name; of several one is drawn."""

    def __init__(self, facets: Mapping[str, Any], palette: Palette, sprites: Sprites, rng: Generator) -> None:
        self.facets, self.palette, self.sprites = facets, palette, sprites
        self.rng, self.canvas = rng, Canvas()
        self.names = {name: float(value) for name, value in facets.items() if isinstance(value, int)}
        self.sky = make_sky(rng, facets["time"], self._look_up("sky") if "sky" in palette else None)
        self.places: dict[str, list[Place]] = {}

    def draw(self, verb: str, layer: Layer) -> None:
        """Draw a layer, if it belongs to this picture."""
        is_drawn = "if" not in layer or _holds(layer["if"], self.facets)
        if is_drawn and not ("unless" in layer and _holds(layer["unless"], self.facets)):
            getattr(self, verb)(layer)

    def let(self, layer: Layer) -> None:
        """Give numbers names, for the layers that follow."""
        for name in layer:
            self.names[name] = self._number(layer, name, "0")

    def air(self, layer: Layer) -> None:
        """Paint the sky down to ``line`` with sun or full moon (``sun=no`` for none) and clouds."""
        line, cover, sky = self.names["line"], self.facets["cover"], self.sky
        self.canvas.band(0, line, Fade(sky.stops))
        self.canvas.band(line, SIZE, sky.horizon)
        self.canvas.texture(self.rng, 0, line, 2.2, (5, 9))
        if sky.time == "night":
            self._scatter_stars(line * 0.9, 70 - 25 * cover)
        x = self.names["sun_x"] = self._between(28, 228)
        if layer.get("sun") != "no":
            y = self._number(layer, "sun", "line*0.72..line" if sky.is_low else "24..54")
            self._draw_sun(x, y, self._number(layer, "radius", "9..12"))
        for height in sorted(self._between(0.12, 1.0) for _ in range((0, 3, 7)[cover])):
            y, size = line * self._number(layer, "clouds", "0.6") * height, self._between(16, 34)
            self._draw_cloud(self._between(-15, 271), y, size * (1.25 - 0.75 * height))

    def moon(self, layer: Layer) -> None:
        """Draw a moon; ``phase`` 1 is full, smaller values are crescents."""
        x, y, radius = (self._number(layer, name, "0") for name in ("x", "y", "size"))
        self._draw_moon(x, y, radius, self._number(layer, "phase", "1"))

    def hills(self, layer: Layer) -> None:
        """Draw rounded hills down to the lower edge, with a sprite at every eighth point (``along=fir``)."""
        y, rise, haze = (self._number(layer, name, "0") for name in ("y", "rise", "haze"))
        curve = ridge(self.rng, y, rise, int(self._number(layer, "waves", "3")))
        tone = self._tone(layer, haze)
        shades = Fade((light(tone, 0.14), tone, dark(tone, 0.16), dark(tone, 0.3)))
        self.canvas.polygon([*curve, (258, 257), (-2, 257)], shades)
        if along := layer.get("along"):
            step = int(self._number(layer, "step", "8"))
            for x, foot in curve[step // 2 :: step]:
                place = Place(x + self._between(-6, 6), foot + 4, self._number(layer, "size", "20"))
                self._draw_sprite(self._pick(along.split("|")), place, haze)

    def sea(self, layer: Layer) -> None:
        """Fill the picture below the line with water that carries the sky's light far away."""
        line, near = self.names["line"], self._tone(layer)
        far = mix(near, self.sky.horizon, 0.62)
        self.canvas.band(line, SIZE, Fade((far, mix(far, near, 0.6), near, dark(near, 0.22))))
        self.canvas.texture(self.rng, line, SIZE, 5.0, (4, 22))
        self.waves(layer)

    def waves(self, layer: Layer) -> None:
        """Draw short wave lines below ``y`` that grow and spread towards the viewer."""
        y = self._number(layer, "y", "line")
        bright, deep = light(self.sky.horizon, 0.25), dark(self.sky.stops[0], 0.35)
        for k in range(self._count(layer, "80")):
            near = self._between(0, 1) ** 1.3
            reach, tone = (1.5 + 11 * near) * self._between(0.5, 1.4), bright if k % 3 else deep
            at = (self._between(-5, 261), y + 1.5 + (SIZE - y) * near)
            self.canvas.ellipse(*at, reach, 0.22 + 0.62 * near, tone, 0.34 if k % 3 else 0.2)

    def sunpath(self, _: Layer) -> None:
        """Draw the glittering track of the sun's light on the water below the line."""
        line, x, shine = self.names["line"], self.names["sun_x"], self.sky.sunlight
        self.canvas.soft([oval(x, (line + SIZE) / 2, 13, (SIZE - line) * 0.5)], 9, shine, 0.28)
        for near in (self._between(0, 1) for _ in range(58)):
            at = (x + float(self.rng.normal(0, 2 + 10 * near)), line + 1 + (SIZE - line) * near)
            self.canvas.ellipse(*at, self._between(1.5, 5 + 8 * near), 0.3 + 0.6 * near, shine, 0.55)

    def mirror(self, layer: Layer) -> None:
        """Turn everything below ``y`` into water that shows a ``share`` of what is above it."""
        y, share = self._number(layer, "y", "line"), self._number(layer, "share", "0.6")
        self.canvas.mirror(self.rng, round(y), self._tone(layer), share, self._number(layer, "squash", "1.2"))

    def band(self, layer: Layer) -> None:
        """Fill the picture from ``y`` to ``to`` with a shaded colour, or with the colours of the sky."""
        y, to = self._number(layer, "y", "0"), self._number(layer, "to", "256")
        is_sky = layer.get("colour") == "sky"
        self.canvas.band(y, to, Fade(self.sky.stops) if is_sky else fade(self._tone(layer)))
        self.canvas.texture(self.rng, y, to, self._number(layer, "grain", "2"), (6, 9))

    def mist(self, layer: Layer) -> None:
        """Draw thin veils in the colour of the horizon around the line."""
        y, alpha = self.names["line"], self._number(layer, "alpha", "0.5")
        veils = [oval(self._between(0, 256), y + self._between(-8, 8), 130, 7) for _ in range(3)]
        self.canvas.soft(veils, 6, light(self.sky.horizon, 0.2), alpha)

    def dots(self, layer: Layer) -> None:
        """Scatter ellipses, along a line that ``lean`` turns."""
        for x, y, size, flat, tone, alpha in self._scatter(layer):
            lean = tan(self._number(layer, "lean", "0"))
            self.canvas.ellipse(x - lean * (y - 100), y, size, size * flat, tone, alpha)

    def blobs(self, layer: Layer) -> None:
        """Scatter uneven rounded things such as stones, bushes and crowns of leaves."""
        for x, y, size, flat, tone, alpha in self._scatter(layer):
            self.canvas.polygon(blob(self.rng, x, y, size, size * flat), fade(tone), alpha)

    def place(self, layer: Layer) -> None:
        """Draw a sprite several times: spread from left to right, or where another stands (``on=boat``)."""
        # The sprite is one of several at random (``fir|oak``), or the one that a facet names. Lower ones are
        # larger, and in less ``haze``; ``shrink=0.4`` makes many smaller than few; ``flip`` is ``each`` or
        # ``all``. With ``each=colours`` they alternate between that facet's colours, ``tone`` and ``other``.
        written, facet = layer.get("sprite", ""), layer.get("each", "")
        names = [written] if written in self.sprites else str(self.facets.get(written, written)).split("|")
        places, haze = self._placing(layer), self._span(layer, "haze", "0")
        self.places[layer.get("as", names[0])] = places
        for k, place in enumerate(places):
            near = haze[0] + (haze[1] - haze[0]) * (k + 1) / len(places)
            values = [self.facets[facet][(k + j) % len(self.facets[facet])] for j in (0, 1)] if facet else []
            tones = [self.tint(self._look_up(facet, value), near, 4.0) for value in values]
            colours = dict(zip(("tone", "other"), tones, strict=False))
            self._draw_sprite(self._pick(names), place, near, self._number(layer, "wobble", "0"), colours)

    def tint(self, colour: str, haze: float = 0.0, vary: float = 0.0) -> Colour:
        """Return a colour, or one of several, in the light of this picture and through some haze."""
        tone = rgb(self._pick(colour.split()))
        tone = jitter(self.rng, tone, vary) if vary else tone
        # Half tinted, so that the colours that the sentences name stay recognisable at dusk.
        return mix(self.sky.tint(tone, haze), tone, 0.5 * (1 - haze) if colour in NAMED else 0.0)

    def _look_up(self, name: str, value: Any = None) -> str:
        """Return what the palette says of a name, for the facet's value; else the name or value itself."""
        entry, value = self.palette.get(name), self.facets.get(name, name) if value is None else value
        return str(value) if entry is None else entry if isinstance(entry, str) else entry[value]

    def _tone(self, layer: Layer, haze: float = 0.0) -> Colour:
        return self.tint(self._look_up(layer.get("colour", "")), haze, _VARIATION)

    def _number(self, layer: Layer, name: str, default: str) -> float:
        """Return a number, drawn evenly from its range."""
        low, high = self._span(layer, name, default)
        return self._between(low, high) if low != high else low

    def _count(self, layer: Layer, default: str = "1") -> int:
        return round(self._number(layer, "count", default))

    def _span(self, layer: Layer, name: str, default: str) -> Span:
        """Return both ends of a range of numbers."""
        low, _, high = layer.get(name, default).partition("..")
        return _value(low, self.names), _value(high or low, self.names)

    def _between(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def _pick(self, options: Sequence[str]) -> str:
        return options[int(self.rng.integers(len(options)))]

    def _depths(self, layer: Layer) -> list[tuple[float, float, float]]:
        """Return nearness (0 to 1), height and size of scattered things, the nearest last."""
        (top, bottom), (small, large) = self._span(layer, "y", "line..256"), self._span(layer, "size", "1")
        nears = sorted(self._between(0, 1) for _ in range(self._count(layer)))
        return [(near, top + (bottom - top) * near, small + (large - small) * near) for near in nears]

    def _scatter(self, layer: Layer) -> Iterator[tuple[float, float, float, float, Colour, float]]:
        """Return place, size, height as a share of the width, colour and opacity of scattered things."""
        flat, alpha = self._number(layer, "flat", "1"), self._number(layer, "alpha", "1")
        for near, y, size in self._depths(layer):
            tone = self._tone(layer, self._number(layer, "haze", "0") * (1 - near))
            yield self._number(layer, "x", "0..256"), y, size, flat, tone, alpha

    def _placing(self, layer: Layer) -> list[Place]:
        """Return where the sprites of a layer go, the nearest last."""
        count = self._count(layer)
        if on := layer.get("on"):
            return self.places.get(on, [])
        low, high = self._span(layer, "x", "0..256")
        order, room = self.rng.permutation(count), (high - low) / count
        all_flip, flip = self.rng.random() < 0.5, layer.get("flip")
        places = []
        for k, (_, y, size) in enumerate(self._depths(layer)):
            x = low + (int(order[k]) + 0.5 + self._between(-0.3, 0.3)) * room
            size *= self._between(0.92, 1.08) / count ** self._number(layer, "shrink", "0")
            is_flipped = all_flip if flip == "all" else flip == "each" and self.rng.random() < 0.5
            places.append(Place(x, y, size, self._number(layer, "turn", "0"), bool(is_flipped)))
        return places

    def _draw_sprite(
        self,
        name: str,
        place: Place,
        haze: float = 0.0,
        wobble: float = 0.0,
        tones: Mapping[str, Colour] | None = None,
    ) -> None:
        """Draw a sprite; `wobble` moves its points at random, in shares of its size."""
        lit, unlit = rgb("#ffd678"), mix(dark(self.sky.stops[0], 0.35), self.sky.horizon, 0.25)
        tones = {"shade": rgb("#121222"), "glass": lit if self.sky.is_dim else unlit, **(tones or {})}

        def colour_of(colour: str) -> Colour:
            if colour.endswith("!"):
                return rgb(colour[:-1])
            if colour == "pane":
                return tones["glass"] if self.rng.random() < 0.55 else unlit
            if colour not in tones:
                vary = 0.0 if colour.startswith("#") else 4.0
                tones[colour] = self.tint(self._look_up(colour), haze, vary)
            return tones[colour]

        for shape in self.sprites[name]:
            if wobble:
                # The same point moves alike in all sprites at a place, so that their edges still meet.
                moved = [
                    (x + wobble * sin(37 * x + 17 * y + place.x), y + wobble * sin(29 * x + 53 * y + place.y))
                    for x, y in shape.points
                ]
                shape = replace(shape, points=tuple(moved))
            if shape.form != "lamp" or self.sky.is_dim:
                draw_shape(self.canvas, shape, place, rgb if shape.form in {"glow", "lamp"} else colour_of)

    def _draw_sun(self, x: float, y: float, radius: float) -> None:
        """Draw the sun with a wide glow, at night the full moon, a pale patch under an overcast sky."""
        time, shine = self.sky.time, self.sky.sunlight
        if time == "night":
            self._draw_moon(x, y, radius * 1.3, 1.0)
        else:
            reach, strength = (6, 0.25) if time == "overcast" else (9, 0.5)
            self.canvas.glow(x, y, radius * reach, shine, strength)
        if time not in {"night", "overcast"}:
            self.canvas.glow(x, y, radius * 3.4, shine, 0.7)
            self.canvas.ellipse(x, y, radius, radius, light(shine, 0.25 if self.sky.is_low else 0.8))

    def _draw_moon(self, x: float, y: float, radius: float, phase: float) -> None:
        self.canvas.glow(x, y, radius * 7, (150, 170, 230), 0.45)
        self.canvas.glow(x, y, radius * 2.6, (230, 232, 240), 0.55)
        face = (250, 246, 226)
        steps = [k * pi / 24 for k in range(25)]
        outer = [(x + radius * sin(a), y - radius * cos(a)) for a in steps]
        inner = [(x + radius * (1 - 2 * phase) * sin(a), y - radius * cos(a)) for a in reversed(steps)]
        self.canvas.polygon(outer + inner, face)
        spots = ((-30, -20, 24), (30, 15, 30), (-10, 45, 18), (35, -40, 12)) if phase >= 1 else ()
        for dx, dy, size in spots:
            at, spot = (x + dx / 100 * radius, y + dy / 100 * radius), size / 100 * radius
            self.canvas.ellipse(*at, spot, spot, dark(face, 0.1), 0.7)

    def _scatter_stars(self, bottom: float, count: int) -> None:
        """Scatter stars of several sizes above `bottom`, a few of them with a gleam."""
        for _ in range(count):
            x, y = self._between(0, 256), self._between(0, bottom)
            size = 0.35 + 0.75 * self._between(0, 1) ** 3
            colour = rgb(self._pick(("#ffffff", "#fff0d6", "#cedcff")))
            self.canvas.ellipse(x, y, size, size, colour, self._between(0.45, 1.0))
            if size > 0.95:
                self.canvas.glow(x, y, 7, colour, 0.8)

    def _draw_cloud(self, x: float, y: float, size: float) -> None:
        """Draw one cloud as a row of merged puffs, lit above and shaded below."""
        sky, count = self.sky, int(self.rng.integers(5, 9))
        rise = 0.34 if sky.is_low or self.rng.random() < 0.35 else 0.62
        puffs = [oval(x, y, size * 1.35, size * 0.13)]
        for at in ((k + 0.5) / count * 2 - 1 for k in range(count)):
            reach = size * (0.30 + 0.34 * (1 - at * at)) * self._between(0.8, 1.2)
            puffs.append(oval(x + at * size * 1.15, y - reach * rise * 0.5, reach, reach * rise))
        bright, alpha = light(mix(sky.horizon, sky.sunlight, 0.65), 0.25), 0.92
        if sky.is_dim:
            bright, alpha = mix(sky.horizon, sky.stops[1], 0.65), 0.6
        shaded = mix(sky.stops[len(sky.stops) // 2], bright, 0.45)
        self.canvas.soft(puffs, 1.1 + size * 0.03, Fade((bright, bright, shaded)), alpha)
