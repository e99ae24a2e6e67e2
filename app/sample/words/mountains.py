"""Sentences about: mountains with snow, behind a lake or meadows."""

from __future__ import annotations

from app.sample.phrases import SETTING, setting_slots
from app.sample.scenes.mountains import Mountains
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} of {rock} <stone|rock> <rise[s/]|tower[s/]|soar[s/]> <above|over> {low}, {snow}",
    "{snow2} {when}, {firs} <in front|near by|in the foreground>",
    "<A hiker's view|A wanderer's view|An alpine view> over {low} to {count}",
    "{low} <lies|stretches> <below|at the foot of> {count} {when}",
    "<Steep|Jagged|Rugged> slopes of {rock} stone, {snow}, <under|below> {tones}",
    "The <summit[/s]|height[/s]|crag[/s]> <catch[es/]|stand[s/] in> {light}, {snow}",
    "[A lone mountain/Mountains] {when}, {snow}",
    "<Thin air|Cool air|Silence> around {count}; {firs} beside {low}",
    "<Climbers|Walkers> would need <ropes|good boots|a whole day> for {count}, {snow}",
)
_SETTING = (
    "{low} <in|with> {light}, {firs} <at the edge|on the slope|down here>",
    "<Far away|In the distance> the land <climbs|rises> <into|towards> the {tones} of the sky",
)


def describe(p: Mountains) -> Description:
    """Say what the picture shows."""
    names = ("steep summit", "jagged peak", "rocky height", "sharp crag", "alpine top")
    slots = {
        **setting_slots(p.time, p.cover, ("the valley", "the high country", "the slopes", "the land")),
        "count": tuple(counted(p.peaks, name) for name in names),
        "rock": {
            "blue": ("blue", "slate-blue", "bluish"),
            "grey": ("grey", "ash-grey", "pale grey"),
            "brown": ("brown", "reddish brown", "ochre"),
        }[p.rock],
        "low": ("a still lake", "a glassy tarn", "mirror-like water")
        if p.lake
        else ("a green valley", "a grassy pasture", "rolling turf"),
        "snow": ("bare of snow", "without any snow", "all naked rock")
        if not p.snow
        else ("dusted with snow", "white at the very top", "lightly capped with white")
        if p.snow < 0.5
        else ("deep in snow", "covered in ice and snow", "white far down"),
        "snow2": ("Bare rock", "Naked stone")
        if not p.snow
        else ("Snow on the heights", "White caps up high", "Ice and rock"),
        "firs": ("no trees", "not a single tree")
        if not p.firs
        else ("some firs", "a few spruces")
        if p.firs < 6
        else ("dark firs", "many evergreens"),
    }
    return Description(_SUBJECT, SETTING + _SETTING, slots, p.peaks > 1)
