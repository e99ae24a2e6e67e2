"""Sentences about: deserts with dunes and cacti."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.deserts import Desert
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{sand} <dunes|sands|waves of sand> <roll|stretch> to the horizon {when}, {cacti}",
    "{cacti2} <on|above> {sand} <ground|dunes> {when}",
    "<Nothing but dust|Endless dry land|A waterless waste>, {cacti}, {mesas}",
    "<Heat|Silence|Drought> <rules|lies> over {sand} <sand|ridges>, {mesas}",
    "<A caravan|A camel|A lone rider> could <pass|rest> here {when}, {cacti}",
    "The {sand} desert {when}, {mesas}",
    "<Thorns|Spines> and <sand|stones>: {cacti2} {when}",
    "<Wind has drawn|Wind has shaped> <ripples|sharp crests> in {sand} sand, {vultures}",
    "<No rain has fallen here for months|Water is scarce here|The wells are dry>, {cacti}",
)
_SETTING = (
    "{mesas2} <under|below> a sky of {tones}, {vultures}",
    "{light} on {sand} <slopes|crests>, {vultures}",
)


def describe(p: Desert) -> Description:
    """Say what the picture shows."""
    names = ("prickly column", "thorny plant", "green saguaro")
    bloom = " in bloom" if p.bloom else ""
    if p.cacti:
        cacti: tuple[str, ...] = tuple(
            f"with {counted(p.cacti, name)}{bloom}" for name in (*names, "spiny giant")
        )
        cacti2 = tuple(f"{counted(p.cacti, name)}{bloom}" for name in names)
    else:
        cacti, cacti2 = (
            ("without a single plant", "with no green at all", "bare of all life"),
            ("not a plant", "nothing green", "no shade"),
        )
    slots = {
        **setting_slots(p.time, p.cover, ("the dunes", "the dry land", "the wide emptiness", "the land")),
        "sand": {
            "golden": ("golden", "yellow", "honey-coloured"),
            "red": ("red", "rust-red", "reddish"),
            "pale": ("pale", "bone-white", "cream-coloured"),
        }[p.sand],
        "cacti": cacti,
        "cacti2": cacti2,
        "mesas": ("table mountains far behind", "flat-topped rocks in the distance")
        if p.mesas
        else ("flat to the very edge", "no rock in sight"),
        "mesas2": ("Flat-topped rocks", "Red table mountains")
        if p.mesas
        else ("A level horizon", "Nothing but emptiness"),
        "vultures": ("vultures circling above", "large birds wheeling")
        if p.vultures
        else ("no living thing in the air", "nothing stirring"),
    }
    subject = _SUBJECT if p.cacti else tuple(text for text in _SUBJECT if "Thorns" not in text)
    return Description(subject, SETTING + _SETTING, slots)
