"""A supersampled canvas with fades, glow, soft shapes, mirror images and grain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor

import numpy as np
from numpy.random import Generator
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from app.sample.palette import Colour, Fade, Paint, lookup
from app.sample.shapes import Points

__all__ = ["SIZE", "Canvas"]

SIZE = 256
Box = tuple[int, int, int, int]


@lru_cache(maxsize=8)
def _map(way: str) -> Image.Image:
    """Return a grey map, 0 to 255, of a ball's shading or of a glow."""
    axis = np.linspace(-1.0, 1.0, 128)
    if way == "ball":
        reach = np.hypot(axis[None, :] + 0.35, axis[:, None] + 0.42) / 1.55
        return Image.fromarray((255 * np.clip(reach, 0, 1)).astype(np.uint8))
    reach = np.clip(1.0 - np.hypot(axis[None, :], axis[:, None]), 0.0, 1.0)
    return Image.fromarray((255 * (0.75 * reach**2.4 + 0.25 * reach)).astype(np.uint8))


def _part(grey: Image.Image, box: Box, cut: Box) -> Image.Image:
    """Return the part ``cut`` of a grey map stretched over ``box``."""
    zoom_x, zoom_y = grey.width / (box[2] - box[0]), grey.height / (box[3] - box[1])
    source = (
        (cut[0] - box[0]) * zoom_x,
        (cut[1] - box[1]) * zoom_y,
        min((cut[2] - box[0]) * zoom_x, grey.width),
        min((cut[3] - box[1]) * zoom_y, grey.height),
    )
    return grey.resize((cut[2] - cut[0], cut[3] - cut[1]), Image.Resampling.BILINEAR, source)


@lru_cache(maxsize=1)
def _vignette() -> np.ndarray[tuple[int, int, int], np.dtype[np.float32]]:
    """Return the gentle darkening towards the corners."""
    axis = np.linspace(-1.0, 1.0, SIZE, dtype=np.float32)
    far = axis[None, :] ** 2 + axis[:, None] ** 2
    return (1.0 - 0.07 * far**1.5)[:, :, None].astype(np.float32)


class Canvas:
    """A square picture in points (0 to 256) that is drawn larger and reduced at the end.

    Parameters
    ----------
    scale
        Drawn pixels per point; 3 gives smooth edges.
    """

    def __init__(self, scale: int = 3) -> None:
        self.scale = scale
        self.image = Image.new("RGB", (SIZE * scale, SIZE * scale))
        self._pen = ImageDraw.Draw(self.image, "RGBA")

    def _box(self, xs: Sequence[float], ys: Sequence[float]) -> tuple[Box, Box]:
        """Return the pixel box around points, whole and cut to the picture."""
        side = SIZE * self.scale
        box = (floor(min(xs)), floor(min(ys)), ceil(max(xs)) + 1, ceil(max(ys)) + 1)
        return box, (max(box[0], 0), max(box[1], 0), min(box[2], side), min(box[3], side))

    def _tile(self, paint: Fade, box: Box, cut: Box) -> Image.Image:
        """Return the part ``cut`` of a fade that spans ``box``."""
        colours = lookup(paint.stops)
        size = (cut[2] - cut[0], cut[3] - cut[1])
        if paint.way == "ball":
            return Image.fromarray(colours[np.asarray(_part(_map("ball"), box, cut))])
        # Straight fades are made one pixel wide and repeated, which costs far less than scaling.
        side = 0 if paint.way == "across" else 1
        at = (np.arange(cut[side], cut[side + 2]) - box[side] + 0.5) * (255 / (box[side + 2] - box[side]))
        strip = colours[np.rint(at).astype(np.uint8)]
        thin = Image.fromarray(strip[None, :] if paint.way == "across" else strip[:, None])
        return thin.resize(size, Image.Resampling.NEAREST)

    def polygon(self, points: Points, paint: Paint, alpha: float = 1.0) -> None:
        """Fill an outline with a colour or a fade."""
        s, cover = self.scale, round(255 * alpha)
        drawn = [(x * s, y * s) for x, y in points]
        if not isinstance(paint, Fade):
            self._pen.polygon(drawn, fill=(*paint, cover))
            return
        box, cut = self._box([x for x, _ in drawn], [y for _, y in drawn])
        if cut[0] >= cut[2] or cut[1] >= cut[3]:
            return
        mask = Image.new("L", (cut[2] - cut[0], cut[3] - cut[1]))
        ImageDraw.Draw(mask).polygon([(x - cut[0], y - cut[1]) for x, y in drawn], fill=cover)
        self.image.paste(self._tile(paint, box, cut), cut, mask)

    def ellipse(self, cx: float, cy: float, rx: float, ry: float, paint: Paint, alpha: float = 1.0) -> None:
        """Fill an upright ellipse."""
        s, cover = self.scale, round(255 * alpha)
        left, top, right, bottom = (cx - rx) * s, (cy - ry) * s, (cx + rx) * s, (cy + ry) * s
        if not isinstance(paint, Fade):
            self._pen.ellipse((left, top, right, bottom), fill=(*paint, cover))
            return
        box, cut = self._box((left, right), (top, bottom))
        if cut[0] >= cut[2] or cut[1] >= cut[3]:
            return
        mask = Image.new("L", (cut[2] - cut[0], cut[3] - cut[1]))
        shifted = (left - cut[0], top - cut[1], right - cut[0], bottom - cut[1])
        ImageDraw.Draw(mask).ellipse(shifted, fill=cover)
        self.image.paste(self._tile(paint, box, cut), cut, mask)

    def rectangle(
        self, left: float, top: float, right: float, bottom: float, paint: Paint, alpha: float = 1.0
    ) -> None:
        """Fill an upright rectangle."""
        s = self.scale
        if isinstance(paint, Fade) and alpha == 1.0:
            box, cut = self._box((left * s, right * s - 1), (top * s, bottom * s - 1))
            if cut[0] < cut[2] and cut[1] < cut[3]:
                self.image.paste(self._tile(paint, box, cut), cut)
            return
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], paint, alpha)

    def line(self, points: Points, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """Draw a line with round joints."""
        s = self.scale
        drawn = [(x * s, y * s) for x, y in points]
        self._pen.line(
            drawn, fill=(*colour, round(255 * alpha)), width=max(1, round(width * s)), joint="curve"
        )

    def glow(self, cx: float, cy: float, radius: float, colour: Colour, strength: float = 1.0) -> None:
        """Add light that fades out from a centre."""
        s = self.scale
        box, cut = self._box(((cx - radius) * s, (cx + radius) * s), ((cy - radius) * s, (cy + radius) * s))
        if cut[0] >= cut[2] or cut[1] >= cut[3]:
            return
        grey = _part(_map("glow"), box, cut)
        self.image.paste(colour, cut, grey.point([min(round(v * strength), 255) for v in range(256)]))

    def soft(self, outlines: Sequence[Points], blur: float, paint: Paint, alpha: float = 1.0) -> None:
        """Fill outlines with blurred edges, as for mist, clouds and shadows."""
        # A blurred mask holds no fine detail, so it is made at one pixel per point.
        pad = blur * 2.5 + 1
        xs = [x for outline in outlines for x, _ in outline]
        ys = [y for outline in outlines for _, y in outline]
        left, top = max(floor(min(xs) - pad), 0), max(floor(min(ys) - pad), 0)
        right, bottom = min(ceil(max(xs) + pad), SIZE), min(ceil(max(ys) + pad), SIZE)
        if left >= right or top >= bottom:
            return
        mask = Image.new("L", (right - left, bottom - top))
        pen = ImageDraw.Draw(mask)
        for outline in outlines:
            pen.polygon([(x - left, y - top) for x, y in outline], fill=round(255 * alpha))
        mask = mask.filter(ImageFilter.GaussianBlur(blur))
        s = self.scale
        cut = (left * s, top * s, right * s, bottom * s)
        mask = mask.resize((cut[2] - cut[0], cut[3] - cut[1]), Image.Resampling.BILINEAR)
        if isinstance(paint, Fade):
            self.image.paste(self._tile(paint, cut, cut), cut, mask)
        else:
            self.image.paste(paint, cut, mask)

    def mirror(self, rng: Generator, line: float, tone: Colour, share: float, squash: float = 1.0) -> None:
        """Paint below ``line`` the rippled mirror image of what is above it, mixed with ``tone``."""
        s, depth = self.scale, SIZE - round(line)
        top = max(round(line) - round(depth * squash), 0)
        above = self.image.crop((0, top * s, SIZE * s, round(line) * s)).reduce(s)
        flipped = above.transpose(Image.Transpose.FLIP_TOP_BOTTOM).resize((SIZE, depth))
        rows = np.arange(depth)
        sway = np.sin(rows * 0.9 + rng.normal(0, 0.7, depth)) * (0.6 + rows * 0.03) + rng.normal(
            0, 0.5, depth
        )
        columns = np.clip(np.arange(SIZE)[None, :] + np.rint(sway).astype(int)[:, None], 0, SIZE - 1)
        rippled = Image.fromarray(np.asarray(flipped)[rows[:, None], columns])
        water = Image.blend(rippled, Image.new("RGB", rippled.size, tone), 1.0 - share)
        self.image.paste(water.resize((SIZE * s, depth * s), Image.Resampling.BILINEAR), (0, round(line) * s))

    def texture(
        self, rng: Generator, top: float, bottom: float, amount: float, cells: tuple[int, int]
    ) -> None:
        """Add smooth brightness noise of the given number of cells between two heights."""
        s = self.scale
        cut = (0, round(top * s), SIZE * s, round(bottom * s))
        noise = np.clip(128 + rng.normal(0.0, amount, (cells[1], cells[0])), 0, 255).astype(np.uint8)
        grey = Image.fromarray(noise).resize((cut[2] - cut[0], cut[3] - cut[1]), Image.Resampling.BICUBIC)
        shade = Image.merge("RGB", [grey] * 3)
        self.image.paste(ImageChops.add(self.image.crop(cut), shade, 1.0, -128), cut)

    def finish(self, rng: Generator) -> Image.Image:
        """Return the reduced picture with a faint vignette and grain."""
        pixels = np.asarray(self.image.reduce(self.scale), dtype=np.float32) * _vignette()
        pixels += rng.standard_normal((SIZE, SIZE, 1), dtype=np.float32) * np.float32(2.6)
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
