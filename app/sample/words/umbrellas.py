"""Sentences about: people with umbrellas in the rain."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS
from app.sample.scenes.umbrellas import Umbrellas
from app.sample.wording import Description, counted, join

__all__ = ["describe"]

_SUBJECT = (
    "{count} <hurry|walk|stroll> <home|along|down the street> under {colours} <canopies|domes>",
    "{rain} <drums|patters|runs> on {colours} cloth {when}",
    "<Wet|Glistening|Shining> <pavement|ground> <mirrors|reflects> {colours} {when}",
    "{colours} <brighten|light up> a <grey|wet|damp> street, {lamps}",
    "<Coats are on|Collars are up|Nobody stays long>: {count} <in|out in> the <wet|drizzle>, {place}",
    "[An umbrella/Umbrellas] in {colours} {when}, {place}",
    "<Puddles|Drops> everywhere, {count} and {colours} <fabric|overhead shelter>",
    "{count} <keep dry|shelter> under {colours} <cloth|fabric> {when}, {lamps}",
    "<No weather for a picnic|Take your boots|It is raining>: {count} on the way, {place}",
)
_SETTING = (
    "{rain} <falls|comes down> {when}, {place}",
    "{lamps2} in the <mist|haze|wet air>, {place}",
    "{tones} all around, and the ground is <wet|shiny>, {place}",
    "{mood} and <damp|soggy> hour {when}, {lamps}",
)


_WHEN = {
    "day": ("by day", "on a grey day", "in dull weather"),
    "evening": ("in the evening", "at dusk", "in the twilight"),
    "night": ("at night", "after dark", "late in the night"),
}


_TONES = {
    "day": ("grey and white", "silver and grey"),
    "evening": ("violet and pink", "mauve and rose"),
    "night": ("deep blue", "midnight blue"),
}


_SINGULAR = (
    ("<hurry|walk|stroll>", "<hurries|walks|strolls>"),
    ("<keep dry|shelter>", "<keeps dry|shelters>"),
    ("<brighten|light up>", "<brightens|lights up>"),
    ("<canopies|domes>", "<cloth|shelter>"),
)


def describe(p: Umbrellas) -> Description:
    """Say what the picture shows."""
    number = len(p.colours)
    colours = tuple(join([COLOUR_WORDS[colour][k] for colour in p.colours]) for k in range(3))
    subject: tuple[str, ...] = _SUBJECT
    if number == 1:
        for old, new in _SINGULAR:
            subject = tuple(text.replace(old, new) for text in subject)
    slots = {
        "count": tuple(
            counted(number, one, many)
            for one, many in (("person", "people"), ("walker", "walkers"), ("passer-by", "passers-by"))
        ),
        "colours": colours,
        "rain": ("heavy rain", "a downpour", "pelting rain")
        if p.heavy
        else ("light rain", "drizzle", "a fine rain"),
        "when": _WHEN[p.time],
        "tones": _TONES[p.time],
        "lamps": ("without any street lamp", "no lamp near by")
        if not p.lamps
        else ("next to a glowing lamp", "by the light of a lamp")
        if p.lamps == 1
        else ("between two street lamps", "lit by two lanterns"),
        "lamps2": ("Blurred shapes", "Dim outlines")
        if not p.lamps
        else ("Lamplight", "A warm glow", "Halos of light"),
        "place": ("with blurred houses behind", "in front of town houses", "between city walls")
        if p.background == "houses"
        else ("in a misty park", "with dripping trees behind", "beside pale trees"),
        "mood": ("a quiet", "a chilly", "a gentle", "a melancholy"),
    }
    return Description(subject, _SETTING, slots, number > 1)
