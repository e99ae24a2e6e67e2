"""Sentences about: sailing boats on the sea."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS, SETTING, setting_slots
from app.sample.scenes.boats import Boats
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} with {sail} <canvas|sails> <glide[s/]|drift[s/]|slip[s/]> <across|over> the {water}",
    "{sail} sails <fill|swell|catch the breeze> above [a /]{hull} hull[/s] <out at sea|off the coast>",
    "<The wind|A light breeze> <pushes|carries|drives> {count} <along|towards the harbour> {when}",
    "<Masts|Triangles of cloth> <stand|rise> against {tones}, [a /]{hull} hull[/s] <rocking|resting> below",
    "<A regatta day|A day for the crew|Time for a cruise>: {count}, {hull} below and {sail} above",
    "{count} <lean[s/]|heel[s/]> <a little|gently> in the wind {when}, {island}",
    "[A single sailing boat/Several sailing boats] <under|with> {sail} canvas, {island}",
    "The {water} <ripples|glitters|shimmers> around {count} <under way|heading out|coming home> {when}",
)
_SETTING = (
    "A {water} with {light}, {island}",
    "The {water} <mirrors|reflects|takes on> the {tones} of the sky {when}",
    "{gulls} over the {water}, {island}",
)


def describe(p: Boats) -> Description:
    """Say what the picture shows."""
    water = {
        "blue": ("blue bay", "blue sea", "deep blue swell"),
        "green": ("green bay", "sea-green swell", "bottle-green sea"),
        "dark": ("dark swell", "dark sea", "inky bay"),
    }
    slots = {
        **setting_slots(p.time, p.cover, ("the sea", "the waves", "the water", "the wide bay")),
        "count": tuple(
            counted(p.number, word) for word in ("yacht", "sloop", "sailing vessel", "skiff", "small craft")
        ),
        "sail": COLOUR_WORDS[p.sail],
        "hull": COLOUR_WORDS[p.hull],
        "water": water[p.water],
        "island": ("with hills along the horizon", "an island far behind", "land in the distance")
        if p.island
        else ("with no land in sight", "nothing but water to the horizon", "far from any shore"),
        "gulls": ("A few gulls wheel", "Gulls circle", "Seabirds glide")
        if p.gulls
        else ("No bird is to be seen", "Stillness"),
    }
    slots["count"] = tuple(word.replace("crafts", "craft") for word in slots["count"])
    return Description(_SUBJECT, SETTING + _SETTING, slots, p.number > 1)
