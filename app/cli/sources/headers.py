"""Which column of a table holds what: as it is named, as the user says, or as can be guessed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from typing import Any

from app.cli.sources.columns import is_blank
from app.cli.sources.contents import form_of
from app.cli.sources.sheets import Sheet
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from solver.datasets import is_training_split

_ROLES = {"id": "id", "picture": "image", "text": "text"}
"""Columns that are taken if they are there and no other is named."""
_LABELS, _SPLIT = ("label", "labels"), "split"
_INDEX = "Unnamed: 0"  # column of the numbers that pandas writes before the others
_GUESSES = {
    "id": "id key sku uid uuid identifier artikelnummer artikelnr artnr artikel article item product "
    "referenz référence reference referencia codigo código codice nr no number asin ean code",
    "picture": "image picture photo img pic file filename path sound audio bild bilder foto datei dateiname "
    "fichier imagen archivo immagine zdjęcie",
    "text": "text caption description title name beschreibung titel bezeichnung titre descripción "
    "descripcion título titulo nombre descrizione titolo nome nom opis beschrijving",
    "label": "label labels class category kind type kategorie klasse warengruppe catégorie categorie "
    "categoría categoria rubrik tags",
}
"""Words of names of columns that are often for something."""
_SAMPLE_ROWS = 50
_PROSE_CHARACTERS = 15  # texts are longer than this on average, and of several words


@dataclass(frozen=True, slots=True)
class TableColumns:
    """Columns of a table by what they hold; None: as they are usually named; an empty text: there is none."""

    id: str | None = None
    picture: str | None = None
    text: str | None = None
    labels: tuple[str, ...] | None = None  # the main one first
    label_separator: str | None = None  # between several labels in one cell
    pair: str | None = None  # rows of the same value are partners; None: both contents of a row are
    split: str | None = None  # says which rows may be learned from
    index: str | None = None  # numbers of rows that pandas wrote before the other columns, which say nothing

    @property
    def expected(self) -> list[str]:
        """Those by which the header is recognised."""
        names = [
            self.id or "id",
            self.picture or "image",
            self.text or "text",
            self.pair,
            self.split,
            "label",
        ]
        return [name for name in (*names, *(self.labels or ())) if name]

    @property
    def used(self) -> set[str]:
        """Those that are no metadata."""
        names = (self.id, self.picture, self.text, self.pair, self.split, self.index, *(self.labels or ()))
        return {name for name in names if name}


def fit_columns(sheet: Sheet, request: TableColumns) -> TableColumns:
    """Return the columns of a table by what they hold, whatever their capitals; without pictures, or texts:
    the other kind."""
    # Raises InvalidFieldError, for one that is absent or twice, with a note of options that may make it fit.
    header = list(sheet.header)
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise InvalidFieldError(
            str(sheet.file),
            f"has the columns {_quote(repeated)} more than once: give each a name of its own",
        )
    named: list[str | None] = [request.id, request.picture, request.text, request.pair, request.split]
    missing = [name for name in [*named, *(request.labels or ())] if name and _find(header, name) is None]
    roles = {role: getattr(request, role) for role in _ROLES}
    fitting = {role: _find(header, _ROLES[role] if name is None else name) for role, name in roles.items()}
    columns = _sample(sheet)
    guesses = _guess(columns, {name for name in fitting.values() if name})
    for role, name in _ROLES.items():
        if roles[role] is None and fitting[role] is None and role in guesses:
            if role == "id" and guesses[role] == _INDEX:
                fitting[role] = _INDEX
            else:
                missing.append(name)
    if missing:
        likely = {role: fitting[role] or guesses.get(role) for role in _ROLES}
        likely["label"] = next(
            (_find(header, name) for name in _LABELS if _find(header, name)), guesses.get("label")
        )
        there = join_words([repr(name) for name in header], "and")
        doubt = "; its first line seems to be no header" if any(map(_names_a_file, header)) else ""
        reason = f"has no column {_quote(missing)}; it has {there}{doubt}"
        error = InvalidFieldError(str(sheet.file), reason)
        error.add_note(_options(likely))
        raise error
    labels = request.labels
    if labels is None:
        labels = tuple(
            name for name in [next(filter(None, (_find(header, other) for other in _LABELS)), "")] if name
        )
    is_index = fitting["id"] != _INDEX and all(str(cell).isdecimal() for cell in columns.get(_INDEX) or ["?"])
    return replace(
        request,
        **fitting,
        index=_INDEX if is_index else None,
        labels=tuple(_find(header, name) or name for name in labels),
        pair=_find(header, request.pair) if request.pair else None,
        split=_find_split(columns) if request.split is None else _find(header, request.split),
    )


def _find(header: Sequence[str], name: str) -> str | None:
    """Return the column of a name, whose capitals make no difference where only one fits."""
    if name in header:
        return name
    same = [other for other in header if other.casefold() == name.strip().casefold()]
    return same[0] if name and len(same) == 1 else None


def _find_split(columns: Mapping[str, Sequence[Any]]) -> str | None:
    """Return a column called "split", if what stands in it are splits."""
    name = _find(list(columns), _SPLIT)
    is_one = name and columns[name] and None not in map(is_training_split, map(str, columns[name]))
    return name if is_one else None


def _sample(sheet: Sheet) -> dict[str, list[Any]]:
    """Return the first cells of each column that are not blank."""
    rows = [
        cells for _, cells in islice(sheet.rows(lambda _: None), _SAMPLE_ROWS) if not isinstance(cells, str)
    ]
    return {
        name: [row[number] for row in rows if row and not is_blank(row[number])]
        for number, name in enumerate(sheet.header)
    }


def _guess(columns: Mapping[str, Sequence[Any]], taken: set[str]) -> dict[str, str]:
    """Return columns that probably hold something, by what: as their names say, or what is in them."""
    guesses: dict[str, str] = {}
    free = [name for name in columns if name not in taken]
    by_content = {"picture": _holds_files, "text": _holds_prose}
    for role in ("picture", "id", "text", "label"):
        likely = [name for name in free if role in by_content and by_content[role](columns[name])]
        likely = likely or [
            name for name in free if _rank(name, role) < inf and not _holds_files(columns[name])
        ]
        if role == "id" and _INDEX in free and not likely:
            likely = [_INDEX]
        for best in sorted(likely, key=lambda name: _rank(name, role))[:1]:
            guesses[role] = best
            free.remove(best)
    return guesses


def _rank(name: str, role: str) -> float:
    """Return how unusual a name is for a column of something; infinity for one of other words."""
    words = re.split(r"[^\w]|_", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).casefold())
    usual = _GUESSES[role].split()
    return min((usual.index(word) for word in words if word in usual), default=inf)


def _holds_files(cells: Sequence[Any]) -> bool:
    return sum(map(_names_a_file, cells)) * 2 > len(cells)


def _names_a_file(cell: Any) -> bool:
    _, point, ending = str(cell).strip().rpartition(".")
    return isinstance(cell, str) and point == "." and form_of(f".{ending}") is not None


def _holds_prose(cells: Sequence[Any]) -> bool:
    texts = [cell for cell in cells if isinstance(cell, str) and not _names_a_file(cell)]
    n_characters = sum(len(text) for text in texts if " " in text.strip())
    return bool(cells) and n_characters > _PROSE_CHARACTERS * len(cells)


def _options(columns: Mapping[str, str | None]) -> str:
    options = [f"--{role}-column {shlex.quote(name)}" for role, name in columns.items() if name]
    return " ".join(options)


def _quote(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
