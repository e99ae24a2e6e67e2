"""Words that several kinds share: times of day, skies and colours."""

from __future__ import annotations

__all__ = ["COLOUR_WORDS", "SETTING", "setting_slots"]

COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "red": ("red", "scarlet", "crimson", "ruby"),
    "orange": ("orange", "tangerine", "amber"),
    "yellow": ("yellow", "golden", "lemon-coloured"),
    "green": ("green", "leaf-green", "emerald"),
    "turquoise": ("turquoise", "teal", "blue-green"),
    "blue": ("blue", "cobalt", "azure"),
    "purple": ("purple", "violet", "plum-coloured"),
    "pink": ("pink", "rose-coloured", "candy-pink"),
    "white": ("white", "cream", "ivory"),
    "black": ("black", "coal-black", "jet-black"),
    "brown": ("brown", "chestnut", "tawny"),
    "grey": ("grey", "silver-grey", "ash-coloured"),
}

_WHEN: dict[str, tuple[str, ...]] = {
    "dawn": ("at dawn", "at daybreak", "at first light", "just after sunrise"),
    "morning": ("in the morning", "early in the day", "on a fresh morning", "before noon"),
    "noon": ("at midday", "in full daylight", "on a bright day", "in the middle of the day"),
    "afternoon": ("in the afternoon", "late in the day", "in the warm afternoon", "a while before evening"),
    "sunset": ("at sunset", "as the sun goes down", "in the last sunshine", "at the end of the day"),
    "dusk": ("at dusk", "in the twilight", "at nightfall", "after the sun has gone"),
    "night": ("at night", "after dark", "in the dark", "late in the night"),
    "overcast": ("on a grey day", "in dull weather", "on a gloomy day", "without any sunshine"),
}
_TONES: dict[str, tuple[str, ...]] = {
    "dawn": ("peach and lilac", "pale pink and apricot", "soft rose and cream"),
    "morning": ("pale blue", "clear light blue", "cool blue and white"),
    "noon": ("deep blue", "strong azure", "brilliant blue"),
    "afternoon": ("blue and honey", "faded blue and gold", "mellow yellow"),
    "sunset": ("orange and purple", "glowing red and gold", "fiery orange and violet"),
    "dusk": ("violet and pink", "indigo and mauve", "dusky blue and rose"),
    "night": ("midnight blue", "ink blue", "deep navy"),
    "overcast": ("grey", "silver and grey", "muted grey and white"),
}
_AIR: tuple[tuple[str, ...], ...] = (
    ("without a single cloud", "with nothing in it", "clear from end to end", "swept clean"),
    ("with a few clouds", "with some scattered clouds", "with one or two drifting clouds", "lightly clouded"),
    ("full of clouds", "crowded with clouds", "heaped with clouds", "with clouds from end to end"),
)
_NIGHT_AIR = (
    "with its stars out",
    "pricked with stars",
    "scattered with stars",
    "glittering with tiny lights",
)
_DULL_AIR = ("without a gap in the grey", "uniformly pale", "hung with grey", "veiled from end to end")
_LIGHT: dict[str, tuple[str, ...]] = {
    "dawn": ("the first soft light", "a rosy early light", "tender pink light"),
    "morning": ("fresh clear light", "cool early light", "a crisp brightness"),
    "noon": ("hard bright light", "strong sunshine", "dazzling sunlight"),
    "afternoon": ("warm slanting light", "honey-coloured light", "mild golden sunshine"),
    "sunset": ("a fiery glow", "burning orange light", "the last red light"),
    "dusk": ("a fading violet light", "the blue of early evening", "the last afterglow"),
    "night": ("cold moonlit darkness", "pale light from above", "quiet darkness"),
    "overcast": ("flat grey light", "a dull even light", "dim colourless light"),
}

SETTING = (
    "A sky of {tones} <stretches|hangs|spreads|opens> over {ground}",
    "{light} <falls on|lies over|covers|washes over> {ground}, under a sky {air}",
    "<Everything|The scene|It all> is <bathed|steeped|wrapped> in {light}, with {ground} <below|underneath>",
    "The <view|scene|picture> was <caught|painted|seen> {when}, under a sky {air}",
    "<Above|Over> {ground} the sky is {tones}, {air}",
    "{mood} hour {when}, with {light} on {ground}",
    "{tones} overhead and {ground} below, {when}",
)


def setting_slots(time: str, cover: int, ground: tuple[str, ...]) -> dict[str, str | tuple[str, ...]]:
    """Return the slots of ``SETTING``, which are also of use in other templates.

    Parameters
    ----------
    time
        Time of day of the picture.
    cover
        0 for a clear sky, 1 for a few clouds, 2 for many.
    ground
        Ways to name what lies below the sky.
    """
    air = _NIGHT_AIR if time == "night" and cover < 2 else _DULL_AIR if time == "overcast" else _AIR[cover]
    return {
        "when": _WHEN[time],
        "tones": _TONES[time],
        "air": air,
        "light": _LIGHT[time],
        "ground": ground,
        "mood": ("a quiet", "a peaceful", "a calm", "a gentle", "an unhurried", "a still"),
    }
