"""Lighthouses on rocky shores."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import NAMED, Colour, Fade, dark, jitter, light, mix
from app.sample.scenery import bird, glints, hills, sea, sun_path
from app.sample.shapes import blob, oval
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Lighthouse", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Lighthouse:
    """Parameters of one picture of a lighthouse."""

    band: str
    bands: int
    left: bool
    cottage: bool
    green: bool
    time: str
    cover: int
    gulls: int


def choose(rng: Generator) -> Lighthouse:
    """Draw the parameters."""
    return Lighthouse(
        band=pick(rng, ("red", "red", "blue", "black", "green", "white", "orange")),
        bands=whole(rng, 2, 4),
        left=chance(rng, 0.5),
        cottage=chance(rng, 0.5),
        green=chance(rng, 0.5),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "night", "overcast")),
        cover=whole(rng, 0, 2),
        gulls=pick(rng, (0, 0, 4, 6)),
    )


def _tower(canvas: Canvas, sky: Sky, p: Lighthouse, x: float, foot: float, high: float) -> None:
    """Draw the banded tower with its gallery, lamp and dome."""
    wide, top = high * 0.13, foot - high * 0.8
    white, band = sky.tint(NAMED["white"]), sky.tint(NAMED[p.band])

    def reach(share: float) -> float:
        return wide * (1 - 0.38 * share)

    rows = p.bands * 2 + 1
    for k in range(rows):
        low, up = foot - (foot - top) * k / rows, foot - (foot - top) * (k + 1) / rows
        tone = band if k % 2 else white
        a, b = reach(k / rows), reach((k + 1) / rows)
        paint = Fade((dark(tone, 0.12), light(tone, 0.3), tone, dark(tone, 0.45)), "across")
        canvas.polygon([(x - a, low), (x - b, up), (x + b, up), (x + a, low)], paint)
    for share in (0.2, 0.55):
        y = foot - (foot - top) * share
        canvas.rectangle(x - 1.3, y - 4, x + 1.3, y, (255, 220, 130) if sky.dim else dark(white, 0.7))
    canvas.rectangle(x - 2.4, foot - 8, x + 2.4, foot, dark(band, 0.5))
    edge, iron = reach(1) * 1.45, dark(band if p.band != "white" else (90, 90, 100), 0.45)
    canvas.rectangle(x - edge, top - 1.5, x + edge, top + 1.5, iron)
    for k in range(7):
        at = x - edge + edge * 2 * k / 6
        canvas.line([(at, top - 1), (at, top - 6)], 0.5, iron)
    canvas.line([(x - edge, top - 6), (x + edge, top - 6)], 0.7, iron)
    room, lamp = reach(1) * 0.72, high * 0.11
    glass = (255, 236, 170) if sky.dim or sky.time == "sunset" else mix((196, 224, 236), sky.horizon, 0.3)
    canvas.rectangle(
        x - room, top - lamp, x + room, top - 1, Fade((light(glass, 0.5), glass, dark(glass, 0.25)), "across")
    )
    for bar in (-1.0, -0.33, 0.33, 1.0):
        canvas.line([(x + bar * room, top - lamp), (x + bar * room, top - 1)], 0.6, iron)
    dome = [(x - room * 1.35, top - lamp), (x - room * 0.7, top - lamp * 1.55), (x, top - lamp * 1.8)]
    dome += [(2 * x - px, py) for px, py in reversed(dome[:2])]
    canvas.polygon(dome, Fade((light(band, 0.25), band, dark(band, 0.4)), "across"))
    canvas.line([(x, top - lamp * 1.75), (x, top - lamp * 2.3)], 0.8, iron)


def _beam(canvas: Canvas, sky: Sky, x: float, y: float, left: bool) -> None:
    """Draw the lamp's light."""
    canvas.glow(x, y, 46, (255, 226, 150), 0.9)
    if sky.time == "sunset":
        return
    for side, alpha in ((1 if left else -1, 0.34), (-1 if left else 1, 0.16)):
        far = x + side * 260
        canvas.soft([[(x, y - 1.5), (far, y - 44), (far, y + 8), (x, y + 1.5)]], 2.5, (255, 238, 186), alpha)


def _crags(canvas: Canvas, rng: Generator, stone: Colour, side: int, x: float, top: float) -> None:
    """Draw lit and shaded faces of the cliff and boulders at its foot."""
    drop = 256 - top
    for k in range(7):
        fx, fy = x - side * (24 - k * between(rng, 12, 20)), top + between(rng, 2, 8)
        foot, wide = 262.0, between(rng, 7, 15)
        bend = [
            (fx - side * between(rng, 2, 9), fy + drop * 0.35),
            (fx - side * between(rng, 8, 20), fy + drop * 0.7),
        ]
        face = [
            (fx, fy),
            *bend,
            (fx - side * 26, foot),
            (fx - side * 26 + wide * 1.6, foot),
            (bend[1][0] + wide, bend[1][1]),
            (bend[0][0] + wide * 0.5, bend[0][1]),
        ]
        tone = light(stone, 0.16) if k % 2 else dark(stone, 0.42)
        canvas.polygon(face, Fade((tone, mix(tone, stone, 0.4), dark(stone, 0.5))), 0.75)
    for k in range(14):
        bx, by = (
            x - side * between(rng, 30, 84) + side * (k % 5) * 26,
            256 - 11 * (k % 3) + between(rng, -6, 4),
        )
        size, tone = between(rng, 6, 14), jitter(rng, dark(stone, 0.2), 8)
        canvas.polygon(
            blob(rng, bx, by, size, size * 0.62, 0.14), Fade((light(tone, 0.24), tone, dark(tone, 0.5)))
        )


def _rock(canvas: Canvas, rng: Generator, sky: Sky, p: Lighthouse, x: float, top: float) -> None:
    """Draw the headland below the tower, with boulders and surf."""
    side = -1 if p.left else 1
    stone = sky.tint((112, 104, 104) if not p.green else (120, 108, 92))
    far = x + side * 150.0
    edge = [(far, top - 3), (x + side * 30, top + 1), (x, top), (x - side * 24, top + 3)]
    drop = 256 - top
    for k in range(1, 6):
        edge.append((x - side * (28 + k * between(rng, 5, 11)), top + drop * k / 6 + between(rng, -4, 4)))
    edge += [(x - side * 88, 262), (far, 262)]
    canvas.polygon(edge, Fade((light(stone, 0.12), stone, dark(stone, 0.4), dark(stone, 0.6))))
    _crags(canvas, rng, stone, side, x, top)
    if p.green:
        turf = sky.tint((104, 142, 78))
        cover = [
            (far, top - 5),
            (x, top - 2),
            (x - side * 26, top + 2),
            (x - side * 20, top + 7),
            (x, top + 9),
        ]
        cover += [(x + side * k * 12, top + 10 + between(rng, -3, 3)) for k in range(1, 11)]
        canvas.polygon([*cover, (far, top + 12)], Fade((light(turf, 0.2), turf, dark(turf, 0.3))))
    for k in range(10):
        fx, fy = x - side * between(rng, 48, 104), 256 - 9 * (k % 4) - between(rng, 0, 8)
        canvas.soft(
            [oval(fx, fy, between(rng, 5, 13), between(rng, 0.8, 2.2))], 0.9, sky.tint((250, 252, 252)), 0.75
        )


def draw(canvas: Canvas, p: Lighthouse, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 150, 182)
    paint_sky(canvas, rng, sky, line, p.cover)
    x = between(rng, 54, 100) if p.left else between(rng, 156, 202)
    sun_x = 256 - x + between(rng, -30, 30)
    low = p.time in {"sunset", "dawn"}
    if p.time not in {"dusk", "overcast"}:
        sun(canvas, sky, sun_x, line - between(rng, 4, 24) if low else between(rng, 24, 60), 10)
    clouds(canvas, rng, sky, line * 0.75, p.cover)
    if chance(rng, 0.4):
        hills(canvas, rng, sky, line + 2, between(rng, 6, 16), (80, 110, 116), 0.6, 3)
    sea(canvas, rng, sky, line, 256, (30, 88, 136) if not p.green else (36, 110, 128))
    if not sky.dim:
        sun_path(canvas, rng, sky, sun_x, line, 256)
    glints(canvas, rng, sky, line, 256, 90)
    foot, high = line + between(rng, -8, 12), between(rng, 100, 138)
    _rock(canvas, rng, sky, p, x, foot)
    if p.cottage:
        _cottage(canvas, sky, x + (-34 if p.left else 14), foot + 3)
    _tower(canvas, sky, p, x, foot + 2, high)
    if sky.dim or p.time == "sunset":
        _beam(canvas, sky, x, foot + 2 - high * 0.85, p.left)
    for _ in range(p.gulls):
        tone = mix(NAMED["white"], sky.stops[0], 0.25)
        bird(canvas, rng, between(rng, 16, 240), between(rng, 20, 120), between(rng, 3, 6), tone)


def _cottage(canvas: Canvas, sky: Sky, x: float, foot: float) -> None:
    """Draw the keeper's cottage."""
    wall, roof = sky.tint((240, 234, 222)), sky.tint((168, 76, 62))
    canvas.rectangle(x, foot - 14, x + 22, foot, Fade((wall, dark(wall, 0.3)), "across"))
    canvas.polygon(
        [(x - 2, foot - 13), (x + 3, foot - 22), (x + 19, foot - 22), (x + 24, foot - 13)],
        Fade((light(roof, 0.2), dark(roof, 0.2))),
    )
    for at in (4, 14):
        canvas.rectangle(
            x + at, foot - 10, x + at + 4, foot - 5, (255, 214, 120) if sky.dim else dark(wall, 0.65)
        )
