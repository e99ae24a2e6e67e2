"""Sentences about: forests in several seasons, with mist between the trees."""

from __future__ import annotations

from app.sample.phrases import setting_slots
from app.sample.scenes.forests import Forest
from app.sample.wording import Description

__all__ = ["describe"]

_SUBJECT = (
    "<Between|Among> {trees} {mist} <hangs|drifts>, {path}",
    "{trees} <stand|rise> <close together|side by side|in dense rows> {when}, {path}",
    "{season} <has come to|in> the wood, where {trees} <filter|hold back> {light}",
    "{rays} <through|between> {trees} {when}",
    "<A walk|A ramble|A stroll> under {trees}, {path} and {mist} <all around|ahead>",
    "{leaves} and <quiet trunks|mossy bark|the smell of earth>, {path}",
    "<Deep in the woods|Under the branches|In the shade> {when}, {rays2}",
    "A {season2} forest of {trees}, {path}",
    "<Deer|Squirrels|Owls> <might hide|could be living> <here|in this place>, among {trees} {when}",
)
_SETTING = (
    "{light} <finds its way|comes in> from <above|behind>, {path}",
    "{leaves} {when}, {rays2}",
    "{mood} <place|spot> <wrapped in|full of> {light}, {mist} <further back|behind>",
    "<Shades|Tones> of {tones} <shine through|are seen> behind {leaves}",
)


def describe(p: Forest) -> Description:
    """Say what the picture shows."""
    trees = {
        "firs": ("tall firs", "dark spruces", "evergreens", "pointed conifers"),
        "birches": ("white birches", "pale birch trunks", "slim white stems"),
        "beeches": ("old beeches", "brown trunks", "sturdy oaks"),
    }
    leaves = {
        "spring": ("fresh green leaves", "young foliage", "light green twigs"),
        "summer": ("dense green foliage", "dark green boughs", "deep green shade"),
        "autumn": ("orange and red leaves", "golden foliage", "rust-coloured leaves"),
        "winter": ("snow on the branches", "white-laden boughs", "frosted twigs"),
    }
    slots = {
        **setting_slots(p.time, 0, ("the moss",)),
        "trees": trees[p.trees],
        "season": p.season,
        "season2": {"spring": "springtime", "summer": "summer", "autumn": "autumnal", "winter": "wintry"}[
            p.season
        ],
        "leaves": leaves[p.season],
        "mist": ("thin mist", "a veil of fog", "white haze")
        if p.mist
        else ("clear air", "stillness", "cool air"),
        "path": ("a track leading away", "a winding trail ahead", "a footpath between them")
        if p.path
        else ("no path anywhere", "without a trail", "no way through"),
        "rays": ("sunbeams slant", "shafts of light fall")
        if p.rays
        else ("little light gets", "a dim glow comes"),
        "rays2": ("with sunbeams slanting down", "striped with rays of light")
        if p.rays
        else ("with hardly any direct sun", "in soft shade"),
    }
    return Description(_SUBJECT, _SETTING, slots)
