"""Hot-air balloons over the countryside."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sin

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick, several, whole
from app.sample.palette import NAMED, Colour, Fade, dark, light, mix
from app.sample.scenery import bird, broadleaf, hills, sea
from app.sample.skies import Sky, clouds, make_sky, paint_sky, sun

__all__ = ["Balloons", "choose", "draw"]


@dataclass(frozen=True, slots=True)
class Balloons:
    """Parameters of one picture of hot-air balloons."""

    number: int
    first: str
    second: str
    pattern: str
    land: str
    time: str
    cover: int


def choose(rng: Generator) -> Balloons:
    """Draw the parameters."""
    first, second = several(
        rng, ("red", "orange", "yellow", "green", "turquoise", "blue", "purple", "pink", "white"), 2
    )
    return Balloons(
        number=whole(rng, 1, 6),
        first=first,
        second=second,
        pattern=pick(rng, ("stripes", "stripes", "bands", "plain")),
        land=pick(rng, ("hills", "sea", "clouds")),
        time=pick(rng, ("dawn", "morning", "noon", "afternoon", "sunset", "dusk")),
        cover=whole(rng, 0, 2),
    )


def _profile(share: float) -> float:
    """Return the half width of the envelope from its crown (0) to its mouth (1)."""
    if share < 0.46:
        return sin(pi / 2 * float((share / 0.46) ** 0.58))
    rest = (share - 0.46) / 0.54
    return 1.0 - 0.86 * float(rest**1.55)


def _outline(
    x: float, top: float, reach: float, high: float, left: float, right: float, start: float, stop: float
) -> list[tuple[float, float]]:
    """Return the part of an envelope between two meridians (-1 to 1) and two heights (0 to 1)."""
    shares = [start + (stop - start) * k / 18 for k in range(19)]
    one = [(x + left * reach * _profile(s), top + high * s) for s in shares]
    return one + [(x + right * reach * _profile(s), top + high * s) for s in reversed(shares)]


def _basket(canvas: Canvas, sky: Sky, x: float, mouth: float, reach: float) -> None:
    """Draw ropes, basket and the burner's glow."""
    deck = mouth + reach * 0.34
    if sky.dim or sky.time in {"dawn", "sunset"}:
        canvas.glow(x, mouth - reach * 0.3, reach * 0.9, (255, 190, 90), 0.75)
    for side in (-1, -0.35, 0.35, 1):
        canvas.line(
            [(x + side * reach * 0.13, mouth), (x + side * reach * 0.15, deck)],
            reach * 0.012,
            dark(sky.tint((90, 70, 60)), 0.3),
        )
    wicker, wide = sky.tint((164, 112, 66)), reach * 0.17
    canvas.polygon(
        [
            (x - wide, deck),
            (x + wide, deck),
            (x + wide * 0.85, deck + wide * 1.35),
            (x - wide * 0.85, deck + wide * 1.35),
        ],
        Fade((light(wicker, 0.2), wicker, dark(wicker, 0.45)), "across"),
    )
    canvas.rectangle(
        x - wide * 1.1, deck - wide * 0.1, x + wide * 1.1, deck + wide * 0.22, dark(wicker, 0.35)
    )


def _balloon(
    canvas: Canvas, sky: Sky, p: Balloons, colours: tuple[Colour, Colour], x: float, y: float, reach: float
) -> None:
    """Draw one balloon with gores, shading, basket and burner flame."""
    high, top = reach * 2.25, y - reach * 1.05
    first, second = colours
    edges = [sin(pi / 2 * (-1 + k / 4)) for k in range(9)]
    for k in range(8):
        tone = second if p.pattern == "stripes" and k % 2 else first
        canvas.polygon(_outline(x, top, reach, high, edges[k], edges[k + 1], 0.0, 1.0), tone)
    if p.pattern == "bands":
        for start, stop in ((0.2, 0.36), (0.5, 0.6), (0.86, 1.0)):
            canvas.polygon(_outline(x, top, reach, high, -1, 1, start, stop), second)
    body = _outline(x, top, reach, high, -1, 1, 0.0, 1.0)
    canvas.polygon(
        body, Fade((dark(first, 0.2), light(first, 0.5), dark(first, 0.35), dark(first, 0.75)), "across"), 0.4
    )
    canvas.polygon(_outline(x, top, reach, high, -0.62, -0.34, 0.08, 0.62), (255, 252, 240), 0.2)
    canvas.polygon(_outline(x, top, reach, high, -1, 1, 0.72, 1.0), dark(first, 0.6), 0.25)
    for edge in edges[1:-1]:
        canvas.line(
            [(x + edge * reach * _profile(k / 14), top + high * k / 14) for k in range(15)],
            reach * 0.012,
            dark(first, 0.5),
            0.5,
        )
    _basket(canvas, sky, x, top + high, reach)


def _land(canvas: Canvas, rng: Generator, sky: Sky, p: Balloons) -> None:
    """Draw what the balloons fly over."""
    if p.land == "sea":
        line = between(rng, 196, 216)
        hills(canvas, rng, sky, line + 2, 14, (92, 120, 126), 0.6, 4)
        sea(canvas, rng, sky, line, 256, (36, 108, 160))
        return
    if p.land == "clouds":
        for k in range(4):
            tone = mix(light(sky.horizon, 0.4), sky.stops[len(sky.stops) // 2], 0.12 * k)
            hills(canvas, rng, sky, 214 + 13 * k, 18, tone, 0.35, 7 - k)
        return
    hills(canvas, rng, sky, 206, 30, (104, 128, 136), 0.62, 4)
    hills(canvas, rng, sky, 220, 22, (98, 140, 96), 0.35, 3)
    near = hills(canvas, rng, sky, 240, 18, (112, 152, 78), 0.08, 2)
    for x, y in near[6::9]:
        broadleaf(canvas, rng, x + between(rng, -6, 6), y + 3, between(rng, 10, 18), sky.tint((72, 120, 70)))


def draw(canvas: Canvas, p: Balloons, rng: Generator) -> None:
    """Paint the picture."""
    sky = make_sky(rng, p.time)
    paint_sky(canvas, rng, sky, 226, p.cover)
    low = p.time in {"sunset", "dawn", "dusk"}
    sun(canvas, sky, between(rng, 24, 232), between(rng, 160, 190) if low else between(rng, 24, 60), 10)
    clouds(canvas, rng, sky, 226 * 0.85, p.cover)
    _land(canvas, rng, sky, p)
    # Half tinted, so that the colours that the sentences name stay recognisable at dusk.
    a, b = (mix(sky.tint(NAMED[name]), NAMED[name], 0.5) for name in (p.first, p.second))
    swap = p.pattern == "plain" and p.number > 1
    columns = rng.permutation(p.number)
    for k in range(p.number):
        near = (k + 1) / p.number
        reach = (14 + 25 * near) * (1.2, 1.1, 0.85, 0.76, 0.68, 0.62)[p.number - 1]
        x = 28 + (int(columns[k]) + 0.5) * 200 / p.number + between(rng, -9, 9)
        y = between(rng, 46, 118) if near > 0.7 else between(rng, 30, 160)
        first = mix(b if swap and k % 2 else a, sky.horizon, 0.45 * (1 - near))
        _balloon(canvas, sky, p, (first, mix(b, sky.horizon, 0.45 * (1 - near))), x, y, reach)
    if chance(rng, 0.4):
        for _ in range(4):
            bird(
                canvas,
                rng,
                between(rng, 20, 236),
                between(rng, 120, 200),
                between(rng, 2.5, 4.5),
                dark(sky.stops[0], 0.4),
            )
