"""Forests in several seasons, with mist between the trees."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.scenery import conifer, grass, hills
from app.sample.shapes import blob, oval, smooth
from app.sample.skies import Sky, make_sky

__all__ = ["Forest", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Forest:
    """Parameters of one picture of a forest."""

    trees: str
    season: str
    path: bool
    mist: bool
    rays: bool
    time: str


_LEAVES: dict[str, tuple[Colour, ...]] = {
    "spring": ((146, 190, 84), (120, 176, 88), (170, 204, 104)),
    "summer": ((66, 128, 66), (84, 144, 70), (52, 112, 72)),
    "autumn": ((222, 130, 48), (204, 88, 46), (234, 174, 62), (178, 66, 48)),
    "winter": ((206, 216, 228), (226, 234, 242), (188, 202, 218)),
}
_FLOOR: dict[str, Colour] = {
    "spring": (120, 164, 76),
    "summer": (78, 122, 62),
    "autumn": (176, 110, 58),
    "winter": (226, 234, 244),
}


def choose(rng: Generator) -> Forest:
    """Draw the parameters."""
    trees = pick(rng, ("firs", "birches", "beeches"))
    return Forest(
        trees=trees,
        season=pick(rng, ("summer", "winter", "summer"))
        if trees == "firs"
        else pick(rng, ("spring", "summer", "autumn")),
        path=chance(rng, 0.5),
        mist=chance(rng, 0.5),
        rays=chance(rng, 0.5),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "overcast")),
    )


def _trunk(
    canvas: Canvas, rng: Generator, sky: Sky, p: Forest, x: float, foot: float, wide: float, haze: float
) -> None:
    """Draw one trunk that runs out of the picture at the top."""
    bark = (226, 224, 216) if p.trees == "birches" else (104, 80, 68)
    tone = sky.tint(jitter(rng, bark, 6), haze)
    lean = between(rng, -9, 9)
    outline = [
        (x - wide * 0.75, foot + wide * 0.2),
        (x - wide * 0.45, foot - wide * 1.4),
        (x + lean - wide * 0.34, -4),
    ]
    outline += [
        (x + lean + wide * 0.34, -4),
        (x + wide * 0.45, foot - wide * 1.4),
        (x + wide * 0.8, foot + wide * 0.2),
    ]
    canvas.polygon(outline, Fade((dark(tone, 0.15), light(tone, 0.25), tone, dark(tone, 0.42)), "across"))
    for _ in range(int(wide)):
        y, at = between(rng, 0, foot - wide), between(rng, -0.3, 0.3) * wide
        cx = x + lean * (1 - y / foot) + at
        if p.trees == "birches":
            canvas.ellipse(cx, y, wide * between(rng, 0.08, 0.24), wide * 0.05 + 0.3, dark(tone, 0.75), 0.8)
        else:
            canvas.line([(cx, y), (cx + at * 0.05, y + wide * 1.6)], wide * 0.05, dark(tone, 0.5), 0.5)


def _crowns(
    canvas: Canvas, rng: Generator, sky: Sky, p: Forest, bottom: float, haze: float, count: int, size: float
) -> None:
    """Draw clumps of leaves across the top of the picture."""
    for _ in range(count):
        tone = sky.tint(jitter(rng, pick(rng, _LEAVES[p.season]), 8), haze)
        x, y = between(rng, -10, 266), bottom * between(rng, -0.1, 1.0) ** 1.0
        reach = size * between(rng, 0.6, 1.2)
        canvas.polygon(
            blob(rng, x, y, reach, reach * 0.7, 0.16), Fade((light(tone, 0.25), tone, dark(tone, 0.3))), 0.92
        )
    for _ in range(count * 2):
        tone = light(sky.tint(pick(rng, _LEAVES[p.season]), haze), 0.3)
        canvas.ellipse(
            between(rng, 0, 256), bottom * between(rng, 0, 1.1), size * 0.12, size * 0.08, tone, 0.6
        )


def _path(canvas: Canvas, rng: Generator, sky: Sky, p: Forest, line: float) -> None:
    """Draw a track that winds away between the trees."""
    far, bend = between(rng, 100, 156), between(rng, -40, 40)
    tone = sky.tint((196, 168, 124) if p.season != "winter" else (198, 208, 226))
    right = smooth(
        [(far + 2, line + 3), (far + bend * 0.6 + 8, line + 22), (128 + bend + 30, 214), (196, 262)],
        closed=False,
    )
    left = smooth(
        [(far - 2, line + 3), (far + bend * 0.6 - 6, line + 22), (128 + bend - 26, 214), (70, 262)],
        closed=False,
    )
    canvas.polygon([*left, *reversed(right)], Fade((mix(tone, sky.horizon, 0.4), tone, dark(tone, 0.25))))


def _row(canvas: Canvas, rng: Generator, sky: Sky, p: Forest, depth: int, foot: float, haze: float) -> None:
    """Draw one row of trees, leaving the middle of the nearest row free."""
    firs = p.trees == "firs"
    count = (15, 8, 4)[depth] if firs else (13, 7, 4)[depth]
    for x in sorted(between(rng, -8, 264) for _ in range(count)):
        if depth == 2 and abs(x - 128) < 46:
            continue
        y, growth = foot + between(rng, -4, 8), between(rng, 0.75, 1.2)
        if firs:
            tone = sky.tint(jitter(rng, (42, 92, 70), 8), haze)
            size = (70, 106, 180)[depth] * growth
            conifer(canvas, rng, x, y, size, tone, 0.85 if p.season == "winter" else 0.0)
        else:
            _trunk(canvas, rng, sky, p, x, y, (4.0, 8.0, 17.0)[depth] * growth, haze)


def _rows(canvas: Canvas, rng: Generator, sky: Sky, p: Forest, line: float, air: Colour) -> None:
    """Draw three rows of trees from far to near, with ground and mist between."""
    floor = sky.tint(_FLOOR[p.season])
    for depth in (0, 1, 2):
        near = (0.2, 0.5, 1.0)[depth]
        haze, foot = 0.62 - 0.62 * near, line + (-6, 16, 58)[depth]
        if depth == 0 or p.trees == "firs":
            hills(canvas, rng, sky, foot - 4, 7, _FLOOR[p.season], haze * 0.8, 3)
        _row(canvas, rng, sky, p, depth, foot, haze)
        if depth == 0:
            canvas.rectangle(
                0, foot + 4, 256, 256, Fade((mix(floor, sky.horizon, 0.35), floor, dark(floor, 0.3)))
            )
            if p.path:
                _path(canvas, rng, sky, p, line)
        if p.trees != "firs":
            _crowns(canvas, rng, sky, p, (96, 74, 44)[depth], haze, (14, 11, 9)[depth], (18, 22, 30)[depth])
        if p.mist and depth < 2:
            canvas.soft(
                [oval(between(rng, 0, 256), foot - between(rng, 0, 24), 120, 9) for _ in range(3)],
                9,
                light(air, 0.4),
                0.6,
            )


def draw(canvas: Canvas, p: Forest, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 150, 180)
    leaf = _LEAVES[p.season][0]
    air = mix(sky.horizon, sky.tint(leaf), 0.28)
    canvas.rectangle(0, 0, 256, 256, Fade((mix(sky.stops[0], air, 0.5), air, light(air, 0.25))))
    glow_x = between(rng, 50, 206)
    canvas.glow(glow_x, line - 50, 130, sky.shine, 0.65)
    floor = sky.tint(_FLOOR[p.season])
    _rows(canvas, rng, sky, p, line, air)
    if p.rays:
        _rays(canvas, rng, sky, glow_x)
    if p.season != "winter":
        grass(canvas, rng, line + 26, 262, floor, 46 if p.path else 110)


def _rays(canvas: Canvas, rng: Generator, sky: Sky, x: float) -> None:
    """Draw slanting shafts of light."""
    shafts = []
    for k in range(5):
        at = x + (k - 2) * 30 + between(rng, -8, 8)
        shafts.append([(at, -6), (at + 9, -6), (at + 74 + between(rng, 0, 26), 236), (at + 40, 236)])
    canvas.soft(shafts, 5, Fade((sky.shine, sky.shine, mix(sky.shine, sky.horizon, 0.5))), 0.2)
