"""Sentences about: starry nights with a moon."""

from __future__ import annotations

from app.sample.phrases import setting_slots
from app.sample.scenes.nights import Night
from app.sample.wording import Description

__all__ = ["describe"]

_SUBJECT = (
    "{stars} <glitter|sparkle|twinkle> <above|over> {land}, {moon}",
    "{moon2} <among|between> <countless points of light|many constellations|distant suns>",
    "{comet} <above|over> {land}, {band}",
    "<A stargazer|An astronomer|A dreamer> could <count|watch> the <constellations|stars> here, {moon}",
    "<The heavens|The firmament|The cosmos> in {hue}, {band}",
    "{land2} <sleeps|rests|lies quiet> <under|below> {stars2}, {moon}",
    "{tent} <under|beneath> {stars2} {when}",
    "A starry night in {hue}, {moon} and {comet2}",
    "<Make a wish|Look up|Listen to the silence>: {stars2}, {band}",
)
_SETTING = (
    "{hue2} <overhead|up above> and {land} below, {when}",
    "{mood} hour {when}, {tent2} and <cool air|not a sound|a faint breeze>",
    "<Darkness|Gloom|Shadow> <covers|lies over|fills> {land}, {tent2}",
    "<Everything|It all> is <bathed|steeped> in {hue}, {tent2}",
)


_LAND = {
    "firs": ("the firs", "the dark trees", "the wooded hills"),
    "hills": ("the hills", "the sleeping country", "the lonely heights"),
    "lake": ("the lake", "the still water", "the mirror of the lake"),
}


_LANDSCAPE = {
    "firs": ("The wood", "The pine slope"),
    "hills": ("The country", "The open land"),
    "lake": ("The lake", "The water"),
}


_HUE = {
    "blue": ("deep blue", "midnight blue"),
    "purple": ("violet and magenta", "deep purple"),
    "green": ("dark teal", "blue-green"),
}


_HUE_FIRST = {
    "blue": ("Navy blue", "Ink blue"),
    "purple": ("Purple", "Dark violet"),
    "green": ("Teal", "Bottle green"),
}


_MOON = {
    "full": (
        ("with a full moon", "the moon round and bright"),
        ("A full moon", "The round moon", "A bright disc"),
    ),
    "thin": (
        ("with a crescent moon", "the moon a thin sickle"),
        ("A crescent", "A sickle moon", "The thin moon"),
    ),
    "none": (("without a moon", "with no moon at all"), ("Moonless dark", "Empty blackness", "No moon")),
}


def describe(p: Night) -> Description:
    """Say what the picture shows."""
    land = _LAND[p.land]
    land2 = _LANDSCAPE[p.land]
    moon_words, moon2 = _MOON["full" if p.phase >= 1 else "thin" if p.phase > 0 else "none"]
    slots = {
        **setting_slots("night", p.cover, land),
        "stars": ("Thousands of stars", "Tiny lights", "Bright stars", "Far suns"),
        "stars2": ("thousands of stars", "a glittering dome", "a sparkling canopy", "the constellations"),
        "hue": _HUE[p.hue],
        "hue2": _HUE_FIRST[p.hue],
        "moon": moon_words,
        "moon2": moon2,
        "land": land,
        "land2": land2,
        "comet": ("A shooting star", "A meteor streaks", "A falling star")
        if p.comet
        else ("Nothing but stars", "Faint starlight", "Only distant lights"),
        "comet2": ("a falling star", "a meteor") if p.comet else ("many small lights", "silence"),
        "band": ("crossed by the Milky Way", "with the Milky Way glowing")
        if p.band
        else ("scattered evenly with stars", "dark between its stars"),
        "tent": ("A lit tent", "Campers with a lamp", "An orange tent")
        if p.tent
        else ("No light on the ground", "Solitude", "A quiet landscape"),
        "tent2": ("a tent glowing from inside", "a camp near by")
        if p.tent
        else ("no lamp near by", "nobody around"),
    }
    return Description(_SUBJECT, _SETTING, slots)
