"""Times of day: the colours of the sky, and the light that they throw on things."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator

from app.sample.colours import Colour, jitter, mix, rgb

__all__ = ["Sky", "make_sky"]

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
