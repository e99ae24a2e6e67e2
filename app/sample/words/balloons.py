"""Sentences about: hot-air balloons over the countryside."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS, SETTING, setting_slots
from app.sample.scenes.balloons import Balloons
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} <float[s/]|hang[s/]|drift[s/]> <high|quietly|without a sound> over {ground} {when}",
    "{colours} <silk|cloth|fabric> <swells|glows|shines> above {basket}, {air2}",
    "<Passengers|Travellers|People> in {basket} <look down on|pass over|watch> {ground} {when}",
    "{count} in {pair} <rise[s/]|climb[s/]|ascend[s/]> into {tones}",
    "<A flame flares|Warm air rises> under {colours} <cloth|fabric>, <above|high over> {ground}",
    "[A hot-air balloon/Hot-air balloons] in {pair} over {ground}",
    "<Carried|Borne> by the wind, {count} <cross[es/]|pass[es/] over> {ground}",
    "<Flight|A ride|A voyage> {when}: {count}, {pair}, and {ground} <below|underneath>",
    "{basket} under {colours} <envelope[/s]|domes|panels>, {air2}",
)


def describe(p: Balloons) -> Description:
    """Say what the picture shows."""
    ground = {
        "hills": ("the green hills", "the countryside", "fields and trees"),
        "sea": ("the sea", "the coast", "the water"),
        "clouds": ("a sea of mist", "banks of fog", "the cloud tops"),
    }[p.land]
    one, two = COLOUR_WORDS[p.first], COLOUR_WORDS[p.second]
    if p.pattern == "plain":
        colours: tuple[str, ...] = (
            one if p.number == 1 else tuple(f"{a} and {b}" for a, b in zip(one, two, strict=False))
        )
    else:
        colours = tuple(
            f"{a}-and-{b} {'striped' if p.pattern == 'stripes' else 'banded'}"
            for a, b in zip(one, two, strict=False)
        )
    names = (
        "round envelope",
        "silken globe",
        "great striped globe" if p.pattern == "stripes" else "great globe",
        "aerial traveller",
    )
    base = setting_slots(p.time, p.cover, ground)
    slots = {
        **base,
        "count": tuple(counted(p.number, name) for name in names),
        "colours": colours,
        "pair": one
        if p.pattern == "plain" and p.number == 1
        else tuple(f"{a} and {b}" for a, b in zip(one, two, strict=False)),
        "basket": "a wicker basket"
        if p.number == 1
        else ("wicker baskets", f"{counted(p.number, 'basket')}", "small baskets"),
        "air2": tuple(f"in a sky {air}" for air in base["air"]),
    }
    return Description(_SUBJECT, SETTING, slots, p.number > 1)
