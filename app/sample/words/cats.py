"""Sentences about: cats sitting on a wall."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.cats import Cats
from app.sample.wording import Description, join

__all__ = ["describe"]

_SUBJECT = (
    "{count}, {furs}, <sit[s/]|rest[s/]|wait[s/]> <on|on top of> a {wall} {when}",
    "<Whiskers|Pointed ears|Soft paws> and {furs} fur <on|above> a {wall}, {facing}",
    "{facing2} from the {wall} {when}, {ivy}",
    "<Purring|A quiet meow|Patience> {when}: {count} with {furs} <fur|hair>",
    "<Mice should beware|The birds keep away|Nobody dares to pass>: {count}, {furs}, on the <look-out|watch>",
    "[A cat/Cats] with {furs} fur, {facing}, {ivy}",
    "<A tail hangs|Tails hang> down over the {wall}, {furs} fur <shines|glows> in {light}",
    "<Curious|Proud|Sleepy>, {count} with {furs} fur <enjoy[s/]|like[s/]> {light}",
    "<On the garden wall|Up on the coping|On the boundary> {when}, {count}, {facing}",
)
_SETTING = (
    "A {wall} {ivy2} {when}, {tones} behind",
    "{ivy3} in the foreground, {ground} behind, all in {light}",
)


def describe(p: Cats) -> Description:
    """Say what the picture shows."""
    number = len(p.furs)
    one, many = ("tabby", "tabbies") if p.striped else ("house pet", "house pets")
    names = (
        (one, many),
        ("feline", "felines"),
        ("tomcat", "tomcats"),
        ("mouser", "mousers"),
        ("furry friend", "furry friends"),
    )
    numbers = {1: "a", 2: "two", 3: "three", 4: "four"}
    furs = join(list(dict.fromkeys(p.furs)))
    tail = "Tails hang" if number > 1 else "A tail hangs"
    subject = tuple(text.replace("<A tail hangs|Tails hang>", tail) for text in _SUBJECT)
    slots = {
        **setting_slots(p.time, p.cover, ("the hills", "the gardens", "the trees", "the land")),
        "count": tuple(f"{numbers[number]} {single if number == 1 else plural}" for single, plural in names),
        "furs": (f"striped {furs}", f"banded {furs}") if p.striped else (furs, f"plain {furs}"),
        "wall": {
            "brick": ("brick wall", "red-brick wall"),
            "stone": ("stone wall", "grey stone wall"),
            "white": ("white wall", "plastered wall"),
        }[p.wall],
        "facing": ("looking at us", "with bright eyes") if p.facing else ("looking away", "seen from behind"),
        "facing2": ("Bright eyes look down", "A steady gaze comes")
        if p.facing
        else ("Somebody looks into the distance", "Backs turned, a look goes out"),
        "ivy": ("with ivy at the side", "beside green ivy")
        if p.ivy
        else ("with nothing growing near", "on bare masonry"),
        "ivy2": ("with ivy", "overgrown with leaves") if p.ivy else ("without any plants", "quite bare"),
        "ivy3": ("Ivy and masonry", "Green leaves") if p.ivy else ("Bare masonry", "A plain wall"),
    }
    return Description(subject, SETTING + _SETTING, slots, number > 1)
