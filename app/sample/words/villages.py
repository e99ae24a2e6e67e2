"""Sentences about: houses of a village among hills."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.villages import Village
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} with {roof} <tiles|roofs> <nestle[s/]|stand[s/]|huddle[s/]> <among|between> {land}, {church}",
    "{windows} <under|below> {roof} <gables|roofs> {when}",
    "<Smoke|A thread of smoke> <climbs|curls> from the chimney[/s] of {count}{road2}",
    "<Neighbours|Families|Old friends> live in {count} <here|in this hamlet>, {church}",
    "<Whitewashed|Pale|Painted> walls and {roof} <tiles|gables>, {road}",
    "<A hamlet|A rural settlement|A small parish> of {count} {when}, {church}",
    "<Behind the doors|Inside> it is <warm|time for a meal>, {windows2}{road2}",
    "The village <lies|rests> among {land} {when}, {windows2}",
    "{count} and {trees} {when}, {road}",
)
_SETTING = (
    "{land} <around|on every side>, {road}",
    "{trees} in {light}, {road}",
    "<Country life|Rural peace|A homely place> {when}, {church}",
)


def describe(p: Village) -> Description:
    """Say what the picture shows."""
    lit = p.time in {"dusk", "night"}
    land = (
        ("snowy hills", "white slopes", "snow-covered fields")
        if p.snow
        else ("green hills", "gentle slopes", "meadows and trees")
    )
    subject = _SUBJECT if p.smoke else tuple(text for text in _SUBJECT if "chimney" not in text)
    slots = {
        **setting_slots(p.time, p.cover, land),
        "count": tuple(
            counted(p.houses, name) for name in ("cottage", "gabled home", "country dwelling", "farmhouse")
        ),
        "roof": {
            "red": ("red", "brick-red", "terracotta"),
            "brown": ("brown", "nut-brown", "chestnut"),
            "grey": ("grey", "slate-grey"),
            "orange": ("orange", "apricot", "bright orange"),
        }[p.roof]
        if not p.snow
        else ("snow-covered", "white-capped", "snowy"),
        "church": ("with a church spire behind", "around a steeple", "with a pointed bell tower")
        if p.church
        else ("without any church", "far from the next town", "with no steeple"),
        "windows": ("Lamps are on", "Windows glow", "Yellow panes shine")
        if lit
        else ("Small windows", "Shutters and doors", "Plain panes"),
        "windows2": ("with lamplight in the windows", "with every pane aglow")
        if lit
        else ("with its lamps still off", "with its shutters open"),
        "road": ("a lane leading in", "a country road winding by")
        if p.road
        else ("no road in view", "grass up to the doorsteps"),
        "road2": (", by a winding lane", ", beside the road") if p.road else (", away from any road", ""),
        "land": land,
        "trees": ("snowy firs", "white-laden trees") if p.snow else ("leafy trees", "round green trees"),
    }
    return Description(subject, SETTING + _SETTING, slots, p.houses > 1)
