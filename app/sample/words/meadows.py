"""Sentences about: flower meadows below a wide sky."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.meadows import Meadow
from app.sample.wording import Description

__all__ = ["describe"]

_SUBJECT = (
    "{flower} <bloom|nod|sway> <in the grass|in the breeze|side by side> {when}, {tree}",
    "<A carpet|A sea|A whole field> of {flower} <reaches|runs> to the <hills|horizon>, {tree}",
    "{petals} <in full bloom|on slender stems> {when}, {visitors}",
    "<Bees|Insects> <hum|are busy> <around|among> {flower}, {tree}",
    "{petals} as far as the eye can see, under {tones}",
    "<Somebody could pick|A painter would love|It smells of> {flower} here, {visitors}",
    "A flower meadow full of {petals}, {tree}",
    "{few} in front, countless more behind them {when}",
    "<Stems and leaves|Blades of grass> <between|around> {flower}, {visitors}",
)
_SETTING = (
    "<Summer|Warm|Sweet> air over {ground}, {visitors}",
    "{ground} <with|and> {tree2} {when}",
    "{visitors2} in {light}, {tree}",
)


def describe(p: Meadow) -> Description:
    """Say what the picture shows."""
    petals = {
        "sunflowers": ("large yellow heads", "golden petals around dark hearts", "tall sun-yellow blossoms"),
        "daisies": ("white petals with yellow hearts", "small white blossoms", "white stars on the green"),
        "poppies": ("scarlet petals", "bright red blossoms", "thin red cups"),
        "tulips": ("blossoms of red, orange and yellow", "colourful cups", "spring blooms of many colours"),
        "cornflowers": ("deep blue blossoms", "blue petals", "blue heads"),
        "lavender": ("purple spikes", "violet ears of bloom", "scented purple stalks"),
    }[p.flower]
    names = {"daisies": ("daisies", "marguerites"), "lavender": ("lavender plants", "lavender bushes")}.get(
        p.flower, (p.flower,)
    )
    slots = {
        **setting_slots(p.time, p.cover, ("the field", "the grassland", "the green hills", "the pasture")),
        "flower": (*names, *names, *petals),
        "petals": petals,
        "tree": ("one tree on the slope", "a single tree behind", "a leafy tree in the distance")
        if p.tree
        else ("no tree in sight", "low hills behind", "open country behind"),
        "tree2": ("a round tree", "one old tree") if p.tree else ("bare hills", "distant ridges"),
        "visitors": ("with a butterfly above", "visited by a butterfly")
        if p.butterflies == 1
        else ("with butterflies about", "visited by butterflies")
        if p.butterflies
        else ("with nothing stirring", "undisturbed"),
        "visitors2": ("Butterflies", "Bright wings") if p.butterflies else ("Stillness", "Rest"),
        "few": ("a few blossoms", "a handful of blooms")
        if p.big < 6
        else ("a row of blossoms", "a good many blooms"),
    }
    return Description(_SUBJECT, SETTING + _SETTING, slots)
