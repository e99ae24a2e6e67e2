"""Mountains with snow, behind a lake or meadows."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, whole
from app.sample.palette import Colour, Fade, dark, light, mix
from app.sample.scenery import conifer, glints, grass, hills
from app.sample.shapes import oval
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Mountains", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Mountains:
    """Parameters of one picture of mountains."""

    peaks: int
    snow: float
    lake: bool
    firs: int
    rock: str
    time: str
    cover: int


_ROCK: dict[str, Colour] = {"blue": (84, 104, 140), "grey": (112, 114, 122), "brown": (124, 100, 88)}


def choose(rng: Generator) -> Mountains:
    """Draw the parameters."""
    return Mountains(
        peaks=whole(rng, 1, 4),
        snow=pick(rng, (0.0, 0.3, 0.42, 0.62)),
        lake=chance(rng, 0.55),
        firs=pick(rng, (0, 4, 9)),
        rock=pick(rng, tuple(_ROCK)),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk", "overcast")),
        cover=whole(rng, 0, 2),
    )


def _edge(
    rng: Generator, x: float, top: float, foot_x: float, foot: float, steps: int = 9
) -> list[tuple[float, float]]:
    """Return a jagged line from a summit down to a foot."""
    line = [(x, top)]
    for k in range(1, steps):
        share = k / steps
        wobble = (foot - top) * 0.045
        line.append(
            (x + (foot_x - x) * share + between(rng, -wobble, wobble), top + (foot - top) * share**1.12)
        )
    return [*line, (foot_x, foot)]


def _clefts(
    canvas: Canvas, rng: Generator, rock: Colour, spine: list[tuple[float, float]], wide: float, high: float
) -> None:
    """Draw dark clefts beside the ridge."""
    for _ in range(5):
        k = whole(rng, 2, 6)
        sx, sy = spine[k]
        end = (sx - wide * between(rng, 0.08, 0.2), sy + high * between(rng, 0.12, 0.22))
        canvas.polygon([(sx, sy), end, (sx + 1, sy + high * 0.2)], dark(rock, 0.35), 0.55)


def _peak(
    canvas: Canvas,
    rng: Generator,
    rock: Colour,
    white: Colour,
    snow: float,
    x: float,
    top: float,
    foot: float,
    wide: float,
) -> None:
    """Draw one peak with a lit left face, a shaded right face and a ragged snow cap."""
    left, right = _edge(rng, x, top, x - wide, foot), _edge(rng, x, top, x + wide, foot)
    spine = _edge(rng, x, top, x + wide * between(rng, -0.15, 0.3), foot)
    low = mix(rock, dark(rock, 0.3), 0.5)
    canvas.polygon([*left, *reversed(right)], Fade((light(rock, 0.22), rock, low)))
    canvas.polygon([*spine, *reversed(right)], Fade((dark(rock, 0.32), dark(rock, 0.42), dark(low, 0.3))))
    _clefts(canvas, rng, rock, spine, wide, foot - top)
    if snow <= 0:
        return
    reach = max(2, round(9 * snow))
    drop = (foot - top) * 0.085

    def fringe(a: tuple[float, float], b: tuple[float, float]) -> list[tuple[float, float]]:
        parts = 6
        return [
            (
                a[0] + (b[0] - a[0]) * k / parts,
                a[1] + (b[1] - a[1]) * k / parts + drop * (1.1 if k % 2 else -0.5) * between(rng, 0.5, 1.4),
            )
            for k in range(1, parts)
        ]

    lit = [*left[: reach + 1], *fringe(left[reach], spine[reach]), *reversed(spine[: reach + 1])]
    shaded = [*spine[: reach + 1], *fringe(spine[reach], right[reach]), *reversed(right[: reach + 1])]
    canvas.polygon(lit, Fade((light(white, 0.35), white)))
    canvas.polygon(shaded, Fade((mix(white, rock, 0.3), mix(white, rock, 0.45))))


def _range(canvas: Canvas, rng: Generator, sky: Sky, p: Mountains, line: float) -> None:
    """Draw the far ridges and the main peaks."""
    hills(canvas, rng, sky, line + 2, between(rng, 30, 55), _ROCK[p.rock], 0.72, 5)
    rock, white = sky.tint(_ROCK[p.rock], 0.18), mix(sky.tint((250, 252, 255)), sky.shine, 0.3)
    places = [(k + 0.5) * 256 / p.peaks + between(rng, -22, 22) for k in range(p.peaks)]
    tall = sorted(between(rng, 56, 88) + (34 if p.peaks < 3 else 18) for _ in range(p.peaks))
    for k, j in enumerate(rng.permutation(p.peaks)):
        haze = 0.22 * (1 - (k + 1) / p.peaks)
        _peak(
            canvas,
            rng,
            mix(rock, sky.horizon, haze),
            white,
            p.snow,
            places[int(j)],
            line - tall[k],
            line + 6,
            tall[k] * between(rng, 0.85, 1.25),
        )
    canvas.soft(
        [oval(between(rng, 0, 256), line - between(rng, 0, 12), 150, 6) for _ in range(2)],
        5,
        sky.horizon,
        0.5,
    )
    wood = hills(canvas, rng, sky, line + 4, between(rng, 8, 18), (58, 96, 84), 0.2, 6)
    for x, y in wood[::2]:
        high = between(rng, 4, 8)
        canvas.polygon([(x - 2.2, y + 2), (x, y - high), (x + 2.2, y + 2)], sky.tint((44, 80, 74), 0.15))


def draw(canvas: Canvas, p: Mountains, rng: Generator) -> None:
    """Paint the picture."""
    sky, line = make_sky(rng, p.time), between(rng, 158, 184)
    paint_sky(canvas, rng, sky, line, p.cover)
    low = p.time in {"sunset", "dawn", "dusk"}
    sun(
        canvas,
        sky,
        between(rng, 30, 226),
        between(rng, 70, 100) if low else between(rng, 24, 44),
        11 if low else 9,
    )
    clouds(canvas, rng, sky, line * 0.5, p.cover)
    _range(canvas, rng, sky, p, line)
    if p.lake:
        canvas.mirror(rng, line + 4, sky.tint((40, 92, 128)), 0.62, 1.25)
        glints(canvas, rng, sky, line + 4, 256, 46)
        shore = sky.tint((92, 124, 74))
        canvas.soft([oval(128, line + 4.5, 150, 1.4)], 0.8, dark(shore, 0.3), 0.7)
        if p.firs:
            hills(canvas, rng, sky, 262, 22, (88, 122, 70), 0.0, 2)
    else:
        hills(canvas, rng, sky, line + 22, 20, (112, 146, 82), 0.1, 3)
        hills(canvas, rng, sky, line + 46, 22, (100, 142, 70), 0.0, 2)
        grass(canvas, rng, line + 40, 260, sky.tint((96, 140, 66)), 90)
    for k in range(p.firs):
        x = between(rng, 2, 84) if k % 2 else between(rng, 172, 254)
        conifer(canvas, rng, x, between(rng, 232, 258), between(rng, 40, 76), sky.tint((40, 88, 68)))
