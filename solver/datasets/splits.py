"""Names that people give to the splits of a data set."""

from __future__ import annotations

import re
import unicodedata

_MORE = "(?:dat(?:a|en)|set|split|image|img|picture|photo|file|sample|item|dir|folder|v|full|mini|small)s?"
"""Words beside the one that counts, as in "test_set", "train_images", "train_v2" and "minival"."""
_NAMES = {
    True: "train(?:ing|val)?|trn|learn(?:ing)?",
    False: "test(?:ing)?|tst|eval(?:uation)?|h[eo]ldout|val(?:id(?:ation|ate)?)?|dev(?:el(?:opment)?)?",
}
_PATTERNS = {
    is_training: re.compile(f"(?:{_MORE})*(?:(?:{names})s?(?:{_MORE})*)+")
    for is_training, names in _NAMES.items()
}


def is_training_split(name: str) -> bool | None:
    """Return whether the name of a split says that it is learned from; None if it is no such name.

    Parameters
    ----------
    name : str
        Such as "train", "Training-Set", "val2017" or "held out", in any case.
    """
    letters = re.sub(r"[\W\d_]", "", unicodedata.normalize("NFKC", name).casefold())
    return next((answer for answer, pattern in _PATTERNS.items() if pattern.fullmatch(letters)), None)
