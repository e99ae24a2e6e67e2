"""Houses, churches and their smoke."""

from __future__ import annotations

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.chance import between, chance, pick
from app.sample.palette import Colour, Fade, dark, jitter, light, mix
from app.sample.shapes import oval
from app.sample.skies import Sky

__all__ = ["ROOF", "church", "house", "smoke"]


ROOF: dict[str, Colour] = {
    "red": (184, 74, 58),
    "brown": (138, 92, 66),
    "grey": (106, 114, 130),
    "orange": (222, 126, 62),
}


_WALLS: tuple[Colour, ...] = (
    (244, 236, 220),
    (240, 214, 170),
    (226, 184, 164),
    (200, 214, 214),
    (236, 224, 196),
)


def _windows(canvas: Canvas, rng: Generator, sky: Sky, x: float, y: float, wide: float, high: float) -> None:
    """Draw one window, glowing in the evening."""
    lit = sky.dim and chance(rng, 0.8)
    glass = (255, 214, 120) if lit else mix(dark(sky.stops[0], 0.35), sky.horizon, 0.25)
    if lit:
        canvas.glow(x + wide / 2, y + high / 2, wide * 2.2, (255, 200, 110), 0.55)
    frame = sky.tint((250, 246, 236))
    canvas.rectangle(x - 0.7, y - 0.7, x + wide + 0.7, y + high + 0.7, frame)
    canvas.rectangle(x, y, x + wide, y + high, Fade((light(glass, 0.2), glass)))
    canvas.line([(x + wide / 2, y), (x + wide / 2, y + high)], 0.5, frame)
    canvas.line([(x, y + high / 2), (x + wide, y + high / 2)], 0.5, frame)


def _openings(
    canvas: Canvas, rng: Generator, sky: Sky, x: float, foot: float, size: float, high: float
) -> None:
    """Draw the windows and the door of a house."""
    front, long, pane = size * 0.72, size * 0.95, size * 0.15
    mid, eave = x + front / 2, foot - high
    for k in range(2):
        _windows(canvas, rng, sky, x + front + long * (0.2 + 0.42 * k), eave + high * 0.3, pane, pane * 1.2)
    _windows(canvas, rng, sky, mid - pane / 2, eave - size * 0.12, pane, pane)
    door = sky.tint(pick(rng, ((120, 76, 52), (62, 92, 112), (84, 108, 76))))
    canvas.rectangle(
        mid - size * 0.1,
        foot - size * 0.34,
        mid + size * 0.1,
        foot,
        Fade((light(door, 0.1), dark(door, 0.3))),
    )


def _top(
    canvas: Canvas, roof: Colour, top: Colour, x: float, foot: float, size: float, high: float
) -> tuple[float, float]:
    """Draw roof and chimney; return the chimney's upper end."""
    front, long, peak, eave = size * 0.72, size * 0.95, foot - high - size * 0.5, foot - high
    mid, right = x + front / 2, x + front + long
    cap = Fade((light(top, 0.22), top, dark(top, 0.22)))
    chimney = right - long * 0.35
    canvas.rectangle(
        chimney,
        peak - size * 0.16,
        chimney + size * 0.13,
        peak + size * 0.2,
        Fade((dark(roof, 0.1), dark(roof, 0.4)), "across"),
    )
    canvas.polygon(
        [
            (mid - 1, peak - 1),
            (right - size * 0.05, peak - 1),
            (right + size * 0.08, eave + 2),
            (x + front - 1, eave + 2),
        ],
        cap,
    )
    for k in range(1, 5):
        share = k / 5
        y = peak + (eave + 2 - peak) * share
        canvas.line(
            [(mid + (x + front - mid) * share, y), (right - size * 0.05 + size * 0.13 * share, y)],
            0.35,
            dark(top, 0.4),
            0.45,
        )
    canvas.line(
        [(x - size * 0.07, eave + 2), (mid, peak - 1), (x + front, eave + 2)], size * 0.06, dark(top, 0.12)
    )
    return chimney + size * 0.065, peak - size * 0.16


def house(
    canvas: Canvas, rng: Generator, sky: Sky, roof_colour: str, snow: bool, x: float, foot: float, size: float
) -> tuple[float, float]:
    """Draw one house seen at an angle; return the top of its chimney."""
    wall, roof = sky.tint(pick(rng, _WALLS)), sky.tint(jitter(rng, ROOF[roof_colour], 8))
    front, long, high = size * 0.72, size * 0.95, size * between(rng, 0.55, 0.75)
    peak, eave = foot - high - size * 0.5, foot - high
    mid, right = x + front / 2, x + front + long
    canvas.soft(
        [[(x - 3, foot), (right + 8, foot), (right + 3, foot + 3), (x, foot + 2)]],
        1.5,
        dark(sky.tint((70, 90, 60)), 0.5),
        0.5,
    )
    canvas.rectangle(x + front, eave, right, foot, Fade((wall, dark(wall, 0.2))))
    canvas.polygon(
        [(x, foot), (x, eave), (mid, peak), (x + front, eave), (x + front, foot)],
        Fade((dark(wall, 0.12), dark(wall, 0.3))),
    )
    top = light((236, 242, 250), 0.2) if snow else roof
    end = _top(canvas, roof, top, x, foot, size, high)
    _openings(canvas, rng, sky, x, foot, size, high)
    return end


def church(canvas: Canvas, sky: Sky, roof_colour: str, x: float, foot: float) -> None:
    """Draw a church with a pointed spire."""
    wall, roof = sky.tint((240, 234, 222)), sky.tint(ROOF[roof_colour])
    canvas.rectangle(x, foot - 24, x + 34, foot, Fade((wall, dark(wall, 0.25))))
    canvas.polygon(
        [(x - 2, foot - 23), (x + 4, foot - 38), (x + 32, foot - 38), (x + 37, foot - 23)],
        Fade((light(roof, 0.15), dark(roof, 0.2))),
    )
    canvas.rectangle(
        x - 11, foot - 50, x + 5, foot, Fade((light(wall, 0.2), wall, dark(wall, 0.3)), "across")
    )
    canvas.polygon(
        [(x - 13, foot - 49), (x - 3, foot - 86), (x + 7, foot - 49)],
        Fade((light(roof, 0.2), roof, dark(roof, 0.4)), "across"),
    )
    canvas.line([(x - 3, foot - 92), (x - 3, foot - 84)], 0.8, dark(roof, 0.5))
    glass = (255, 214, 120) if sky.dim else dark(wall, 0.6)
    canvas.ellipse(x - 3, foot - 40, 3.2, 3.2, glass)
    for at in (9, 17, 25):
        canvas.polygon(oval(x + at, foot - 12, 1.8, 5), glass)


def smoke(canvas: Canvas, rng: Generator, sky: Sky, x: float, y: float) -> None:
    """Draw smoke rising from a chimney."""
    drift = between(rng, 3, 7)
    puffs = [oval(x + drift * k * 0.6, y - 4 - 7 * k, 2.2 + 1.5 * k, 2.4 + 1.2 * k) for k in range(5)]
    canvas.soft(puffs, 2.2, light(sky.tint((214, 214, 218)), 0.2), 0.42)
