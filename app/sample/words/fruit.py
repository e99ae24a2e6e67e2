"""Sentences about: bowls of fruit on a table."""

from __future__ import annotations

from app.sample.scenes.fruit import FruitBowl
from app.sample.wording import Description, join

__all__ = ["describe"]

_SUBJECT = (
    "{fruit} <in|heaped in|piled up in> a {bowl} <dish|basin|vessel> on {table}",
    "<Ripe|Juicy|Sweet|Fresh> {fruit}, {wall} behind",
    "<Breakfast|Dessert|A snack> is ready: {fruit} on {table}",
    "<A still life|A painter's study|A kitchen scene> with {fruit} {light}",
    "<Vitamins|Something healthy|A harvest> for everyone, {fruit} in {bowl} <china|pottery|stoneware>",
    "A fruit bowl with {fruit}, {light}",
    "{table2} <carries|holds> {fruit}, {wall} behind",
    "<Somebody has bought|The market had|Here are> {fruit}, served in {bowl} <china|pottery>",
    "<Help yourself|Take one|Who is hungry>: {fruit} {light}",
)
_SETTING = (
    "{wall2} <and|above> {table}, {light}",
    "A <quiet|calm|homely> <corner|room> with {wall}, {light}",
    "<Indoors|Inside the house|At home>, {light}, {wall} behind {table}",
    "{table2} <against|before> {wall} {light}",
)


def describe(p: FruitBowl) -> Description:
    """Say what the picture shows."""
    extra = (["bananas"] if p.bananas else []) + (["grapes"] if p.grapes else [])
    listed = [*p.fruit, *extra]
    walls = (f"a {p.wall} wall", f"a {p.wall} background", f"{p.wall} plaster")
    tables = (f"a {p.table} table", f"a {p.table} tabletop")
    slots = {
        "fruit": (join(listed), join(listed[::-1]), join([*listed[1:], listed[0]])),
        "bowl": {
            "blue": ("blue", "cobalt"),
            "white": ("white", "cream"),
            "brown": ("brown", "earth-coloured"),
            "turquoise": ("turquoise", "teal"),
            "black": ("black", "dark"),
        }[p.bowl],
        "table": tables,
        "table2": tables,
        "wall": walls,
        "wall2": walls,
        "light": ("with sunlight from a window", "in squares of light", "lit through the panes")
        if p.window
        else ("in soft lamplight", "in even light", "in gentle shade"),
    }
    return Description(_SUBJECT, _SETTING, slots)
