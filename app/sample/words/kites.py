"""Sentences about: kites above a beach."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS, SETTING, setting_slots
from app.sample.scenes.kites import Kites
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} in {colours} <dance[s/]|flutter[s/]|soar[s/]> <above|over> the <sand|shore|beach> {when}",
    "{people} <hold the strings|look up|run along the sand>, {colours} <cloth|tails> <overhead|high above>",
    "<Long tails|Ribbons and bows|Taut strings> <stream|tug> in the <breeze|sea wind>, {parasol}",
    "<A windy|A breezy> <day|hour> for {people2} with {count} by the sea",
    "<Tugging at the line|Held by a string|Tethered>, {count} <climb[s/]|swoop[s/]> into {tones}",
    "[A kite/Kites] in {colours}, {parasol}",
    "<Bare feet|Footprints> in the sand and {colours} cloth in the air {when}",
    "{count} <ride[s/]|catch[es/]> the wind from the waves, {people2} <below|underneath>",
    "<Fun|Play|Holiday time> at the <seaside|shore> {when}: {people2}, {colours} shapes and {parasol2}",
)
_SETTING = (
    "<Surf|Foam> <runs up|washes> the sand {when}, {parasol}",
    "{people} on the sand in {light}",
)


_MANY_DO = "<hold the strings|look up|run along the sand>"
_ONE_DOES = "<holds the strings|looks up|runs along the sand>"
_PEOPLE = {
    1: (("Somebody", "A lone figure", "One person"), ("one person", "a lone figure")),
    2: (("Two friends", "A couple"), ("two friends", "two people")),
    3: (("Three people", "Three friends"), ("three people", "a family")),
}


def describe(p: Kites) -> Description:
    """Say what the picture shows."""
    names = ("paper diamond", "flying toy") if not p.delta else ("cloth triangle", "flying toy")
    people, people2 = _PEOPLE[p.people]
    slots = {
        **setting_slots(p.time, p.cover, ("the beach", "the sea", "the sand", "the shore")),
        "count": tuple(
            counted(p.number, name)
            for name in (
                *names,
                f"bright {names[0]}",
                f"{names[0]} on a string" if p.number == 1 else names[1],
            )
        ),
        "colours": tuple(
            f"{a} and {b}" for a, b in zip(COLOUR_WORDS[p.first], COLOUR_WORDS[p.second], strict=False)
        ),
        "people": people,
        "people2": people2,
        "parasol": ("beside a striped parasol", "near a sunshade")
        if p.parasol
        else ("on an empty strand", "with wide sand all round"),
        "parasol2": ("a parasol", "a striped sunshade") if p.parasol else ("empty sand", "lots of room"),
    }
    subject = tuple(text.replace(_MANY_DO, _ONE_DOES) for text in _SUBJECT) if p.people == 1 else _SUBJECT
    return Description(subject, SETTING + _SETTING, slots, p.number > 1)
