"""Sentences about: trains through the countryside."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS, SETTING, setting_slots
from app.sample.scenes.trains import Train
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{engine} <pulls|draws|leads> {coaches} {place}",
    "{coaches} <roll|travel|run> behind {engine} {when}",
    "<Passengers|Commuters|Travellers> <look out of|sit behind> the windows of {coaches}, {place}",
    "<Steel wheels|Wheels> <rattle|hum|sing> {place} {when}, {smoke}",
    "{smoke2} <above|over> {colour} <paintwork|sides>, {place}",
    "The {colour} train <passes|hurries by|is on time> {when}, {smoke}",
    "<Next stop|Destination> <unknown|far away|the coast>: {engine} <heads|runs> to the {side}, {place}",
    "A railway <line|journey> {when}, with {coaches} {place}",
    "<The express|The local service|The timetable> <brings|sends> {coaches} through {ground}",
)
_SETTING = (
    "{place2} <crosses|cuts through> {ground}, {smoke}",
    "{ground} <slide|glide> past {when}",
)


def describe(p: Train) -> Description:
    """Say what the picture shows."""
    colour = COLOUR_WORDS[p.colour]
    engines = (
        ("steam engine", "old locomotive", "puffing engine")
        if p.steam
        else ("streamlined engine", "modern railcar", "fast electric engine")
    )
    ground = ("green hills", "fields and woods", "rolling pastures")
    slots = {
        **setting_slots(p.time, p.cover, ground),
        "engine": tuple(f"a {tone} {engine}" for tone, engine in zip(colour * 2, engines, strict=False)),
        "coaches": tuple(
            counted(p.coaches, f"{tone} {word}")
            for tone, word in zip(colour * 2, ("coach", "carriage", "wagon"), strict=False)
        ),
        "colour": colour,
        "place": ("across a stone viaduct", "over a bridge with arches", "high on an arched bridge")
        if p.bridge
        else ("along the embankment", "on level tracks", "on rails through the grass"),
        "place2": ("A viaduct of many arches", "A stone bridge")
        if p.bridge
        else ("A straight track", "A low embankment"),
        "smoke": ("white steam behind it", "puffs of steam in the air")
        if p.steam
        else ("without any smoke", "smooth and fast"),
        "smoke2": ("A plume of steam", "White clouds of steam") if p.steam else ("Clean air", "No smoke"),
        "side": "left" if p.left else "right",
    }
    slots["coaches"] = tuple(text.replace("coachs", "coaches") for text in slots["coaches"])
    subject = (
        _SUBJECT if p.coaches > 1 else tuple(text for text in _SUBJECT if not text.startswith("{coaches}"))
    )
    return Description(subject, SETTING + _SETTING, slots, p.coaches > 1)
