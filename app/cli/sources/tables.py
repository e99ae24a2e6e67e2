"""Tables of pictures or sounds, and texts: CSV, Excel and Parquet files. Which column holds what is as it is
named, as the user says, or as can be guessed."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from operator import lt
from pathlib import Path
from typing import Any

from app.cli.sources.columns import Column, Kind, decide_all, is_blank, plain, plain_text
from app.cli.sources.folders import name_files
from app.cli.sources.rows import (
    Refusal,
    Row,
    content_of,
    form_of,
    identifier_of,
    read_bounded,
    row_name,
    with_source,
)
from app.cli.sources.sheets import Sheet, open_sheet
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.names import IDENTIFIER_PATTERN, MAX_IDENTIFIER, join_words, some_of
from app.services.catalogue.preparation import ItemChange, NewItem
from solver.datasets import is_training_split

_ROLES = {"id": "id", "picture": "image", "text": "text"}
"""Columns that are taken if they are there and no other is named."""
_LABELS, _SPLIT = ("label", "labels"), "split"
_INDEX = "Unnamed: 0"  # column of the numbers that pandas writes before the others
_OF_NUMBERS = re.compile(r"#|n[or°º]\.?|number|nummer|row|index|pos\.?|unnamed: 0", re.IGNORECASE)
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
_LEAST_DIFFERENT = 0.8  # of the cells of ids: a few rows may come twice
_PROSE_CHARACTERS = 15  # texts are longer than this on average, and of several words
_MARKS = "|;,"  # what may stand between labels in a cell
_EXAMPLES = 3
_TEXT_ALONE = "its text is added alone: delete it if the row comes again with its file, or give rows ids"


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
    index: tuple[str, ...] = ()  # numbers of rows, which say nothing

    @property
    def expected(self) -> list[str]:
        """Those by which the header is recognised."""
        contents = self.id or "id", self.picture or "image", self.text or "text"
        names = (*contents, self.pair, self.split, "label", *(self.labels or ()))
        return [name for name in names if name]

    @property
    def used(self) -> set[str]:
        """Those that are no metadata."""
        names = (self.id, self.picture, self.text, self.pair, self.split, *self.index, *(self.labels or ()))
        return {name for name in names if name}


def fit_columns(sheet: Sheet, request: TableColumns) -> TableColumns:
    """Return the columns of a table by what they hold, whatever their capitals; without pictures, or texts:
    the other kind."""
    # Raises InvalidFieldError, for one that is absent or twice, with a note of options that may make it fit.
    header = list(sheet.header)
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise InvalidFieldError(
            str(sheet.file), f"has the columns {_quote(repeated)} more than once: give each a name of its own"
        )
    named: list[str | None] = [request.id, request.picture, request.text, request.pair, request.split]
    missing = [name for name in [*named, *(request.labels or ())] if name and _find(header, name) is None]
    roles = {role: getattr(request, role) for role in _ROLES}
    fitting = {role: _find(header, _ROLES[role] if name is None else name) for role, name in roles.items()}
    usual_label = next(filter(None, (_find(header, name) for name in _LABELS)), None)
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
        likely["label"] = usual_label or guesses.get("label")
        likely["text"] = likely["text"] or _find_words(columns, {name for name in likely.values() if name})
        there = join_words([repr(name) for name in header], "and")
        doubt = "; its first line seems to be no header" if any(map(_names_a_file, header)) else ""
        reason = f"has no column {_quote(missing)}; it has {there}{doubt}"
        error = InvalidFieldError(str(sheet.file), reason)
        error.add_note(
            " ".join(f"--{role}-column {shlex.quote(name)}" for role, name in likely.items() if name)
        )
        raise error
    labels = request.labels
    if labels is None:
        labels = (usual_label,) if usual_label else ()
    return replace(
        request,
        **fitting,
        index=tuple(
            name for name in columns if name not in fitting.values() and _numbers_rows(columns, name)
        ),
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
            name
            for name in free
            if (_rank(name, role) < inf or (role == "id" and name == _INDEX))
            and not (_holds_files(columns[name]) or (role == "id" and _numbers_rows(columns, name)))
            and (role != "id" or len(set(columns[name])) >= _LEAST_DIFFERENT * len(columns[name]))
        ]
        for best in sorted(likely, key=lambda name: _rank(name, role))[:1]:
            guesses[role] = best
            free.remove(best)
    return guesses


def _numbers_rows(columns: Mapping[str, Sequence[Any]], name: str) -> bool:
    """Return whether a column numbers rows, as a person or pandas does: another table has the same."""
    # As the page sees it (`rows.js`).
    cells = [plain_text(cell).removesuffix(".0") for cell in columns[name]]
    if not (cells and _OF_NUMBERS.fullmatch(name) and all(map(str.isdecimal, cells))):
        return False
    numbers = list(map(int, cells))
    return name == _INDEX or (numbers[0] <= 1 and all(map(lt, numbers, numbers[1:])))


def _find_words(columns: Mapping[str, Sequence[Any]], taken: set[str]) -> str | None:
    """Return the one column that is left whose cells are words, if there is one."""
    likely = [
        name
        for name, cells in columns.items()
        if name not in taken and not _holds_files(cells) and any(str(cell).isalpha() for cell in cells)
    ]
    return likely[0] if len(likely) == 1 else None


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


def _quote(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


@dataclass(frozen=True, slots=True)
class Table:
    """The contents of each row, and what else it says."""

    # A content is a text, a vector, the name of a file, or the bytes of a picture or sound: as they are, or
    # with the name of their file, as in data sets of Hugging Face.

    sheet: Sheet
    columns: TableColumns  # as `fit_columns` returned them
    modality_names: tuple[str, str]  # of the column of pictures and of that of texts
    # what both encoders take: "picture", "sound", "text" or "vector"
    content_forms: tuple[str | None, str | None]
    find_file: Callable[[str], Path]  # by the name in a cell
    types: Mapping[str, Column]  # what the other columns were taken as; empty where the file says it itself
    total: int  # of items and changes; 0 if not known
    notes: tuple[str, ...]  # what was taken as what, and what was left out

    def rows(self) -> Iterator[Row]:
        """Yield the items of each row; one without content is a change, an empty one is passed over."""
        counts: Counter[str] = Counter()
        for place, cells in self.sheet.rows(lambda _: None):
            place = f"{self.sheet.file.name}, {place}"
            if isinstance(cells, str):
                yield Refusal(place, cells)
            elif cells:
                yield from self._row(place, dict(zip(self.sheet.header, cells, strict=True)), counts)

    def _row(self, place: str, cells: dict[str, Any], counts: Counter[str]) -> Iterator[Row]:
        columns = self.columns
        if columns.id and is_blank(cells[columns.id]):
            yield Refusal(place, f"column {columns.id!r} is empty")
            return
        contents: list[Content | None] = [None, None]
        refusals = []
        used = columns.picture, columns.text
        for side, (column, form) in enumerate(zip(used, self.content_forms, strict=True)):
            if column and not is_blank(cells[column]):
                try:
                    contents[side] = self._content(cells[column], form)
                except InvalidFieldError as error:
                    where = f"{place}, {_short_text(cells[column]) or column}"
                    refusals.append(Refusal(where, error.message))
        if refusals and contents[1] and not columns.id:  # a part gets another id than the whole
            refusals = [replace(refusals[0], reason=f"{refusals[0].reason}; {_TEXT_ALONE}")]
        yield from refusals
        if columns.id:
            name = self._identifier(plain_text(cells[columns.id]))
        elif refusals and not contents[1]:
            return
        elif contents == [None, None]:
            yield Refusal(place, "has neither a picture nor a text, and no id that names an item to change")
            return
        else:
            name = row_name(contents, counts)
        pair = cells[columns.pair] if columns.pair else name
        shared: dict[str, Any] = {
            "labels": self._labels(cells),
            "pair_id": None if is_blank(pair) else self._identifier(plain_text(pair)),
            "train": self._is_train(cells),
        }
        metadata = self._metadata(cells)
        for column, modality, form, content in zip(
            used, self.modality_names, self.content_forms, contents, strict=True
        ):
            if column and content is not None:
                file = _short_text(cells[column]) if form in ("picture", "sound") else ""
                yield NewItem(
                    modality=modality,
                    content=content,
                    id=f"{modality}-{name}",
                    metadata=with_source(metadata, file) if file else metadata,
                    place=place,
                    **shared,
                )
        if not refusals and contents == [None, None]:  # of what is stored, this is a change
            ids = (*(f"{modality}-{name}" for modality in self.modality_names), name)
            yield ItemChange(ids, shared["labels"] or None, self._facts(cells), place)

    def _identifier(self, name: str) -> str:
        """Return an id for what a table calls a row: the same where that can be one."""
        longest = max(map(len, self.modality_names)) + 1 + len(name)
        is_one = longest <= MAX_IDENTIFIER and re.fullmatch(IDENTIFIER_PATTERN, name)
        return name if is_one else identifier_of(name)

    def _content(self, value: Any, form: str | None) -> Content:
        if form in ("picture", "sound"):
            return self._file(value, form)
        if form == "vector":
            if not isinstance(value, list) or not all(isinstance(number, float | int) for number in value):
                raise InvalidFieldError("", f"expected a list of numbers, got {type(value).__name__}")
            return Content(vector=[float(number) for number in value])
        if isinstance(value, list | dict | bytes):
            raise InvalidFieldError("", f"expected a text, got {type(value).__name__}")
        return Content(text=value if isinstance(value, str) else plain_text(value))

    def _file(self, value: Any, form: str) -> Content:
        if isinstance(value, dict):  # as Hugging Face stores pictures and sounds
            value = value.get("bytes") or value.get("path") or ""
        if isinstance(value, bytes) and value:
            return content_of(form, value)
        if isinstance(value, str) and value:
            return content_of(form, read_bounded(self.find_file(value)), f"{form} {value.strip()}")
        raise InvalidFieldError("", f"expected a {form} or the name of its file, got {type(value).__name__}")

    def _labels(self, cells: dict[str, Any]) -> tuple[str, ...]:
        labels: list[str] = []
        for name in self.columns.labels or ():
            values = cells[name] if isinstance(cells[name], list) else [cells[name]]
            for text in (plain_text(value) for value in values if not is_blank(value)):
                separator = self.columns.label_separator
                labels += [part.strip() for part in text.split(separator)] if separator else [text]
        return tuple(dict.fromkeys(label for label in labels if label))

    def _is_train(self, cells: dict[str, Any]) -> bool:
        return not self.columns.split or is_training_split(plain_text(cells[self.columns.split])) is True

    def _facts(self, cells: dict[str, Any]) -> dict[str, Any]:
        """Return what the other columns say."""
        used = self.columns.used
        metadata: dict[str, Any] = {}
        for name, cell in cells.items():
            if name in used or is_blank(cell):
                continue
            value = self.types[name].value(cell) if name in self.types else plain(cell)
            if value is not None:
                metadata[name] = value
        return metadata

    def _metadata(self, cells: dict[str, Any]) -> dict[str, Any]:
        metadata = self._facts(cells)
        if self.columns.id:
            written = plain_text(cells[self.columns.id])
            metadata |= {} if self._identifier(written) == written else {self.columns.id: written}
        if self.columns.split:
            metadata["split"] = "train" if self._is_train(cells) else "test"
        return metadata


def open_table(
    file: Path,
    request: TableColumns,
    modality_names: tuple[str, str],
    content_forms: tuple[str | None, str | None],
    *,
    pictures: Path | None = None,
    kinds: Mapping[str, Kind] | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
) -> Table:
    """Open a table and read it once, to find out what its columns are, unless the user says their kinds."""
    # Raises InvalidFieldError or DatasetError as `open_sheet` and `fit_columns` do, or for a column of
    # another kind. `pictures` is the folder of the files that it names; None: its own.
    opened = open_sheet(file, request.expected, encoding, sheet)
    columns = fit_columns(opened, request)
    types, total, notes = _survey(opened, columns, kinds or {})
    find_file = name_files(file.parent if pictures is None else pictures)
    return Table(opened, columns, modality_names, content_forms, find_file, types, total, notes)


def _survey(
    sheet: Sheet, columns: TableColumns, kinds: Mapping[str, Kind]
) -> tuple[dict[str, Column], int, tuple[str, ...]]:
    """Return the types of the other columns, the number of items and changes, and what is to be said."""
    others = [name for name in sheet.header if name not in columns.used]
    unknown = [name for name in kinds if name not in others]
    if unknown:
        raise InvalidFieldError(
            "--type", f"{sheet.file} has no other column {join_words(map(repr, unknown))}"
        )
    types = {} if sheet.is_typed else {name: Column(name, kinds.get(name)) for name in others}
    contents = [name for name in (columns.picture, columns.text) if name]
    counts: Counter[str] = Counter()
    marks: Counter[str] = Counter()
    splits: Counter[str] = Counter()
    strays: list[str] = []
    # A file that says its types itself may hold pictures, which are not read twice.
    for _, cells in () if sheet.is_typed else sheet.rows(strays.append):
        if isinstance(cells, str) or not cells:
            counts["faulty" if cells else "empty"] += 1
            continue
        counts["rows"] += 1
        row = dict(zip(sheet.header, cells, strict=True))
        counts["contents"] += sum(not is_blank(row[name]) for name in contents) or 1
        for name, column in types.items():
            if not is_blank(row[name]):
                column.see(row[name])
        if columns.label_separator is None:
            texts = [row[name] for name in columns.labels or () if isinstance(row[name], str)]
            marks.update({mark for mark in _MARKS for text in texts if mark in text})
        if columns.split:
            splits[plain_text(row[columns.split])] += 1
    if not (sheet.n_rows or counts["rows"] or counts["faulty"]):
        raise InvalidFieldError(str(sheet.file), "has a header line and nothing else")
    decide_all(list(types.values()))
    notes = (
        *sheet.notes,
        *_describe(columns, types),
        *_left_out(columns, counts, strays),
        *_of_labels(columns, marks),
        *_of_split(splits),
    )
    total = counts["contents"] + counts["faulty"] or sheet.n_rows * len(contents)
    return types, total, notes


def _describe(columns: TableColumns, types: Mapping[str, Column]) -> Iterator[str]:
    """Say what each column was taken as."""
    contents = {"ids": columns.id, "pictures": columns.picture, "texts": columns.text}
    uses = {**contents, "partners": columns.pair, "split": columns.split}
    shares = [f"{name} = {use}" for use, name in uses.items() if name]
    shares += [f"{name} = labels" for name in columns.labels or ()]
    yield f"columns: {', '.join(shares)}" + ("" if columns.id else "; ids are made of what rows hold")
    for word in ("number", "date", "yes or no", "text"):
        named = [column for column in types.values() if column.word == word and not column.is_empty]
        shown = [
            f"{column.name} ({column.remark})" if column.remark and word == "number" else column.name
            for column in named
        ]
        if shown:
            yield f"taken as {word}: {', '.join(shown)}"
    for column in types.values():
        if column.remark and column.word == "text":
            yield f"column {column.name!r} is text: {column.remark}"


def _left_out(columns: TableColumns, counts: Mapping[str, int], strays: Sequence[str]) -> Iterator[str]:
    if columns.index:
        yield f"the numbers of rows in {_quote(columns.index)} are left out"
    if counts["empty"]:
        yield f"{counts['empty']} empty rows are left out"
    if strays:
        yield f"quotes that do not pair are taken as signs of the text: {_some(strays)}"


def _of_labels(columns: TableColumns, marks: Mapping[str, int]) -> Iterator[str]:
    for mark, count in sorted(marks.items(), key=lambda entry: -entry[1])[:1]:
        yield (
            f"{count} cells of labels have {mark!r} in them and are one label each: "
            f"--label-separator '{mark}' makes several of them"
        )


def _of_split(splits: Mapping[str, int]) -> Iterator[str]:
    held_out = {value: count for value, count in splits.items() if not is_training_split(value)}
    if splits:
        n_train = sum(splits.values()) - sum(held_out.values())
        named = f": {some_of(sorted(held_out))}" if held_out else ""
        yield f"{n_train} rows to learn from, {sum(held_out.values())} held out{named}"


def _some(places: Sequence[str]) -> str:
    n_more = len(places) - _EXAMPLES
    return join_words([*places[:_EXAMPLES], *([f"{n_more} more"] if n_more > 0 else [])], "and")


def _short_text(cell: Any) -> str:
    return cell.strip() if isinstance(cell, str) and len(cell) <= MAX_IDENTIFIER else ""
