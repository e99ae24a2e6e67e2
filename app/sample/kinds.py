"""The kinds of scenes, in a fixed order, each with how it is drawn and described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from numpy.random import Generator

from app.sample.canvas import Canvas
from app.sample.scenes import (
    balloons,
    boats,
    cats,
    deserts,
    fish,
    forests,
    fruit,
    kites,
    lighthouses,
    meadows,
    mountains,
    nights,
    skylines,
    trains,
    umbrellas,
    villages,
)
from app.sample.wording import Description
from app.sample.words import balloons as balloons_words
from app.sample.words import boats as boats_words
from app.sample.words import cats as cats_words
from app.sample.words import deserts as deserts_words
from app.sample.words import fish as fish_words
from app.sample.words import forests as forests_words
from app.sample.words import fruit as fruit_words
from app.sample.words import kites as kites_words
from app.sample.words import lighthouses as lighthouses_words
from app.sample.words import meadows as meadows_words
from app.sample.words import mountains as mountains_words
from app.sample.words import nights as nights_words
from app.sample.words import skylines as skylines_words
from app.sample.words import trains as trains_words
from app.sample.words import umbrellas as umbrellas_words
from app.sample.words import villages as villages_words

__all__ = ["SCENES", "Scene"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Scene(Generic[P]):
    """One kind of scene.

    Parameters
    ----------
    kind
        Lowercase English label.
    choose
        Draws the parameters of one picture.
    draw
        Paints a picture with these parameters.
    describe
        Says what can be said about such a picture.
    """

    kind: str
    choose: Callable[[Generator], P]
    draw: Callable[[Canvas, P, Generator], None]
    describe: Callable[[P], Description]


SCENES: tuple[Scene[Any], ...] = (
    Scene("sailing boats", boats.choose, boats.draw, boats_words.describe),
    Scene("lighthouses", lighthouses.choose, lighthouses.draw, lighthouses_words.describe),
    Scene("kites", kites.choose, kites.draw, kites_words.describe),
    Scene("mountains", mountains.choose, mountains.draw, mountains_words.describe),
    Scene("forests", forests.choose, forests.draw, forests_words.describe),
    Scene("flower meadows", meadows.choose, meadows.draw, meadows_words.describe),
    Scene("hot-air balloons", balloons.choose, balloons.draw, balloons_words.describe),
    Scene("fish", fish.choose, fish.draw, fish_words.describe),
    Scene("village houses", villages.choose, villages.draw, villages_words.describe),
    Scene("city skylines", skylines.choose, skylines.draw, skylines_words.describe),
    Scene("starry nights", nights.choose, nights.draw, nights_words.describe),
    Scene("trains", trains.choose, trains.draw, trains_words.describe),
    Scene("deserts", deserts.choose, deserts.draw, deserts_words.describe),
    Scene("umbrellas", umbrellas.choose, umbrellas.draw, umbrellas_words.describe),
    Scene("fruit bowls", fruit.choose, fruit.draw, fruit_words.describe),
    Scene("cats", cats.choose, cats.draw, cats_words.describe),
)
