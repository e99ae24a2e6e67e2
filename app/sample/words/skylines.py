"""Sentences about: city skylines, some of them across the water."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.skylines import Skyline
from app.sample.wording import Description

__all__ = ["describe"]

_SUBJECT = (
    "{towers} <rise|stand> <side by side|shoulder to shoulder|in a row> {when}, {front}",
    "{windows} <in|behind> <tall facades|the upper floors|office blocks> of {stone}, {front}",
    "<Downtown|The business quarter|A metropolis> {when}: {towers} and {front2}",
    "<Crowded streets|Busy people|A million lives> <between|below> {towers} of {stone}",
    "{spire} <above|over> the rooftops {when}, {front}",
    "<Concrete|Steel|Architecture> and {stone} <against|before> {tones}",
    "A city skyline in {light}, {front}",
    "<Urban|Big-town> <life|evenings|views> {when}, {windows2} and {front2}",
    "{front3} <mirrors|lies before> {towers} {when}",
)
_SETTING = (
    "{windows} while the sky is {tones}",
    "{front3} in {light}, {spire2}",
)


_FRONT = {
    "river": (
        ("beyond the river", "along the waterfront", "on the far bank"),
        ("a broad river", "a quiet waterfront"),
        ("The river", "Smooth water", "The canal"),
    ),
    "park": (
        ("behind a leafy park", "above the treetops", "beyond green gardens"),
        ("a green park", "many trees"),
        ("A park", "A public garden", "Greenery"),
    ),
    "street": (
        ("beside a road with cars", "along a busy avenue", "above the traffic"),
        ("passing cars", "the traffic"),
        ("An avenue", "Traffic", "A wide road"),
    ),
}


_STONE_WORDS = {
    "glass": ("blue glass", "mirrored glass"),
    "brick": ("brown brick", "red-brown masonry"),
    "pale": ("pale stone", "light grey concrete"),
}


def describe(p: Skyline) -> Description:
    """Say what the picture shows."""
    lit = p.time in {"dusk", "night", "sunset"}
    front = _FRONT[p.foreground]
    many = p.towers >= 8
    subject = (
        _SUBJECT if p.foreground == "river" else tuple(text for text in _SUBJECT if "mirrors" not in text)
    )
    slots = {
        **setting_slots(p.time, p.cover, ("the rooftops", "the streets", "the town", "downtown")),
        "towers": (
            "many skyscrapers",
            "dozens of towers",
            "high-rise after high-rise",
            "rows of tall blocks",
        )
        if many
        else ("a few skyscrapers", "some high-rises", "several tall blocks", "half a dozen towers"),
        "stone": _STONE_WORDS[p.stone],
        "front": front[0],
        "front2": front[1],
        "front3": front[2],
        "windows": ("Hundreds of lit windows", "Lamps", "Yellow lights", "Shining panes")
        if lit
        else ("Countless windows", "Dark panes", "Rows of windows"),
        "windows2": ("with all the lights on", "with glowing windows")
        if lit
        else ("with no lamps lit yet", "with grey windows"),
        "spire": ("A needle-like spire rises", "A tall antenna points up", "One pointed top stands out")
        if p.spire
        else ("Flat roofs lie", "Domes and slanted roofs rise", "No spire stands"),
        "spire2": ("a spire above it all", "one pointed top behind")
        if p.spire
        else ("flat roofs behind", "no spire in view"),
    }
    return Description(subject, SETTING + _SETTING, slots)
