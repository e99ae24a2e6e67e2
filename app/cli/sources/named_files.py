"""Files by the names that tables give them, which other machines, programs and people wrote."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path

from app.domain.errors import InvalidFieldError

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://|data:|www\.", re.IGNORECASE)
_UNSEEN = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)  # what is copied with a name, as from Windows
_ABSOLUTE = re.compile(r"[a-z]:|[/\\]", re.IGNORECASE)


class NamedFiles:
    """The files of a folder and below it, by names relative to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._by_name: dict[str, list[tuple[str, ...]]] | None = None

    def find(self, name: str) -> Path:
        """Return the file of a name: as it is written, or else the one that is meant; raises
        InvalidFieldError without a field."""
        # Blanks around, backslashes, capitals, accents and folders make no difference, as long as one file
        # fits.
        if _ADDRESS.match(name.strip()):
            raise InvalidFieldError(
                "", "is an address, and nothing is fetched: download the files, and name them in the table"
            )
        path = self._folder / name
        try:
            if path.is_file():
                return path
            paths = self._fitting(_UNSEEN.sub("", name))
        except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
            raise InvalidFieldError("", "can be no name of a file") from error
        if not paths:
            raise InvalidFieldError(
                "", f"is not found in {self._folder}; --pictures names the folder in which the files are"
            )
        if len(paths) > 1:
            raise InvalidFieldError(
                "", f"may be one of several files below {self._folder}: name its folder, too"
            )
        return self._folder.joinpath(*paths[0])

    def _fitting(self, name: str) -> list[tuple[str, ...]]:
        """Return the files that a path of another machine may mean: those of which it says most steps."""
        steps = [_normal(step) for step in re.split(r"[/\\]", name) if step.strip() not in ("", ".")]
        paths = (
            {candidate: [*map(_normal, candidate)] for candidate in self._index().get(steps[-1], [])}
            if steps
            else {}
        )

        def n_common(candidate: tuple[str, ...]) -> int:
            n_steps = min(len(candidate), len(steps))
            return n_steps if paths[candidate][-n_steps:] == steps[-n_steps:] else 0

        # Of a path from the root of another machine the folders may have other names here.
        fitting = [candidate for candidate in paths if n_common(candidate) or _ABSOLUTE.match(name.strip())]
        nearest = [candidate for candidate in fitting if n_common(candidate) == max(map(n_common, fitting))]
        whole = [candidate for candidate in nearest if paths[candidate] == steps]
        return whole or nearest

    def _index(self) -> dict[str, list[tuple[str, ...]]]:
        """Return the steps to each file by its last one; made when a name is not one as it is written."""
        if self._by_name is None:
            self._by_name = {}
            for place, folders, files in os.walk(self._folder):
                folders[:] = [folder for folder in folders if not folder.startswith(".")]
                steps = Path(place).relative_to(self._folder).parts
                for file in files:
                    self._by_name.setdefault(_normal(file), []).append((*steps, file))
        return self._by_name


def _normal(name: str) -> str:
    """Return a form in which names are compared: blanks, capitals and forms of accents make no difference."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).strip().casefold())
