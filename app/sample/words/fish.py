"""Sentences about: fish under water."""

from __future__ import annotations

from app.sample.phrases import COLOUR_WORDS
from app.sample.scenes.fish import Fish
from app.sample.wording import Description, counted

__all__ = ["describe"]

_SUBJECT = (
    "{count} <swim[s/]|glide[s/]|dart[s/]> <through|across> the {water}, {bottom}",
    "{scales} <shine|flash|gleam> in the {water}, {bottom}",
    "<Bubbles rise|Bubbles climb|Pearls of air rise> past {count}",
    "<A diver|A snorkeller> would meet {count} here, {bottom}",
    "<Fins and tails|Slender fins|Waving fins> in {colour}, {bottom}",
    "[A fish/Fish] with {scales} in the {water}",
    "{count} <keep[s/] close to|hover[s/] above|pass[es/]> the <sandy bottom|reef|rocks>, {stripe}",
    "<Below the waves|Beneath the surface|Down in the deep>: {count}, {stripe}",
    "<Cold-blooded and quick|Silent and quick|Gills open>, {count} <turn[s/]|move[s/]> in the {water}",
)
_SETTING = (
    "<Sunbeams|Rays of light|Shafts of light> <fall|reach> from the surface into the {water}",
    "{bottom2} <on|over> the sandy floor, and bubbles <everywhere|rising|here and there>",
    "<Quiet|A hush|Cool silence> <below|beneath> the waves, in the {water}",
    "The {water} <grows darker|fades> towards the bottom, {bottom}",
)


def describe(p: Fish) -> Description:
    """Say what the picture shows."""
    bottom = (
        ("weeds and corals below", "a garden of plants and coral")
        if p.weed and p.coral
        else ("long weeds swaying", "tall water plants near by")
        if p.weed
        else ("corals on the ground", "a colourful reef below")
        if p.coral
        else ("bare sand below", "nothing growing near by")
    )
    stripe = (
        ("banded with pale stripes", "with striped flanks")
        if p.striped
        else ("plain in colour", "without any stripes")
    )
    names = ("finned swimmer", "creature with scales", "reef dweller", f"{COLOUR_WORDS[p.colour][0]} swimmer")
    plural = {"creature with scales": "creatures with scales"}
    slots = {
        "count": tuple(counted(p.number, name, plural.get(name)) for name in names),
        "colour": COLOUR_WORDS[p.colour],
        "scales": tuple(f"{word} scales" for word in COLOUR_WORDS[p.colour]),
        "water": {
            "bright": ("clear blue water", "sunny lagoon", "bright shallows"),
            "green": ("green water", "sea-green lagoon", "emerald water"),
            "deep": ("dark blue deep", "dim deep water", "midnight-blue gulf"),
        }[p.water],
        "bottom": tuple(f"{word}" for word in bottom),
        "bottom2": ("Weeds", "Plants", "Green blades")
        if p.weed
        else ("Corals", "Branching corals")
        if p.coral
        else ("Ripples", "Faint shadows"),
        "stripe": stripe,
    }
    return Description(_SUBJECT, _SETTING, slots, p.number > 1)
