"""Sentences about: lighthouses on rocky shores."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS, SETTING, setting_slots
from app.sample.scenes.lighthouses import Lighthouse
from app.sample.wording import Description

__all__ = ["describe"]

_SUBJECT = (
    "A {band} tower <stands|rises|keeps watch> <on|above> {rock} {when}",
    "<High above|Beside|Over> the surf, a <round|tall|slender> tower painted {band}",
    "The lamp {lamp} <above the rocks|over the headland|at the edge of the land> {when}",
    "<A keeper's post|A seamark|A beacon> in {band} on {rock}, {cottage}",
    "<Ships|Sailors|Captains> <look for|steer by|are warned by> this {band} beacon on the {side}",
    "<Waves break|Foam gathers|Surf rolls in> below the {band} tower, {cottage}",
    "A lighthouse {when}, its lamp {lamp}",
    "On the {side} of the <view|bay> a <lantern room|gallery> tops the {band} walls, above {rock}",
)
_SETTING = (
    "<Rocks|Boulders|Stones> and <foam|spray|surf> on the {side}, and {light} on the water",
    "The sea is <calm|restless|lively> {when}, {gulls}",
    "{rock} <drops|falls> to the water, {gulls}",
)


def describe(p: Lighthouse) -> Description:
    """Say what the picture shows."""
    colour = COLOUR_WORDS[p.band]
    banded = ("plain white", "all white", "pure white")
    lit = p.time in {"sunset", "dusk", "night"}
    slots = {
        **setting_slots(p.time, p.cover, ("the sea", "the coast", "the rocky shore", "the waves")),
        "band": banded if p.band == "white" else tuple(f"{word}-and-white" for word in colour),
        "rock": ("a grassy headland", "a green cliff", "turf-covered rock")
        if p.green
        else ("bare rock", "a stony point", "a grey cliff"),
        "lamp": ("shines", "is lit", "sends out its beam", "glows")
        if lit
        else ("is out", "is dark", "waits for evening"),
        "cottage": ("a cottage at its foot", "with a small house next to it", "a red roof beside it")
        if p.cottage
        else ("alone against the sky", "with no house near it", "quite alone"),
        "side": ("left", "left-hand side") if p.left else ("right", "right-hand side"),
        "gulls": ("gulls <in the air|overhead>", "white birds <circling|above it>")
        if p.gulls
        else ("no birds about", "empty air above it"),
    }
    return Description(_SUBJECT, SETTING + _SETTING, slots)
